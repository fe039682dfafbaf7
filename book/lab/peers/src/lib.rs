//! What all peers answer: the body of `GET /` of chapter 07.
#![forbid(unsafe_code)]

/// The body.
pub const BODY: &[u8] = b"Ask /parity/7\n";
