//! The variant of the project that belongs to the seed 0000X/YOUR-NAME.
//!
//! Made by `cargo run --quiet --bin parameters`: each request and each answer begins with its length in two bytes, the high one first.
//! A conversation ends with an empty request, which is not answered.
#![allow(dead_code, reason = "a variant uses a part of it")]

/// How the bytes of a stream are cut into requests, and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Each ends with this byte, which occurs nowhere else.
    Delimiter(u8),
    /// Each begins with its length in so many decimal digits, filled up with zeroes.
    Digits(usize),
    /// Each begins with its length in two bytes, the high one first.
    BigEndian,
    /// Each begins with its length in two bytes, the low one first.
    LittleEndian,
}

/// What ends a conversation, besides the client's leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The request `BYE`, which is answered `BYE`.
    Word,
    /// That so many requests have been answered.
    Count(u32),
    /// A request without a byte, which is not answered.
    Empty,
}

/// How requests and answers are framed.
pub fn framing() -> Framing {
    Framing::BigEndian
}

/// How long a client may take for a request, and for taking its answers.
pub fn patience_ms() -> u64 {
    1750
}

/// How many silent clients are there when another one asks.
pub fn silent_clients() -> usize {
    48
}

/// What ends a conversation.
pub fn stop() -> Stop {
    Stop::Empty
}
