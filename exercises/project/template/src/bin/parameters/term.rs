//! The term that this copy of the project was handed out for.

/// What your own name is put behind to make your seed.
pub const TERM: &str = "0000X";
