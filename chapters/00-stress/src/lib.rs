//! Stub, replaced at once.
