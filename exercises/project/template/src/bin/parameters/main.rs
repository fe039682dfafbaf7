//! Prints your variant of the project as the file `src/mine.rs`.
//!
//! `cargo run --quiet --bin parameters -- YOUR-NAME > src/mine.rs`, with the name by which the course
//! system knows you: the grader derives the same from it.

mod derive;
mod term;

use std::process::ExitCode;

use derive::{Framing, Parameters, Stop};

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1).filter(|it| !it.starts_with('-')) else {
        eprintln!("parameters YOUR-NAME, as in `cargo run --quiet --bin parameters -- alice`");
        return ExitCode::from(2);
    };
    let seed = format!("{}/{name}", term::TERM);
    print!("{}", mine(&seed, Parameters::of(&seed)));
    ExitCode::SUCCESS
}

/// The text of `src/mine.rs`.
fn mine(seed: &str, parameters: Parameters) -> String {
    let (framing, in_words) = match parameters.framing {
        Framing::Delimiter(byte) => (
            format!("Framing::Delimiter({byte})"),
            format!("each request and each answer ends with the byte {:?}", char::from(byte)),
        ),
        Framing::Digits(digits) => (
            format!("Framing::Digits({digits})"),
            format!("each request and each answer begins with its length in {digits} digits"),
        ),
        Framing::BigEndian => (
            "Framing::BigEndian".into(),
            "each request and each answer begins with its length in two bytes, high, low".into(),
        ),
        Framing::LittleEndian => (
            "Framing::LittleEndian".into(),
            "each request and each answer begins with its length in two bytes, low, high".into(),
        ),
    };
    let (stop, ends) = match parameters.stop {
        Stop::Word => ("Stop::Word".into(), "the request BYE, which is answered BYE".into()),
        Stop::Count(answers) => {
            (format!("Stop::Count({answers})"), format!("{answers} answers"))
        },
        Stop::Empty => ("Stop::Empty".into(), "an empty request, which is not answered".into()),
    };
    TEMPLATE
        .replace("@SEED", seed)
        .replace("@IN_WORDS", &in_words)
        .replace("@ENDS", &ends)
        .replace("@FRAMING", &framing)
        .replace("@PATIENCE_MS", &parameters.patience_ms.to_string())
        .replace("@SILENT_CLIENTS", &parameters.silent_clients.to_string())
        .replace("@STOP", &stop)
}

const TEMPLATE: &str = r#"//! The variant of the project that belongs to the seed @SEED.
//!
//! Made by `cargo run --quiet --bin parameters`: @IN_WORDS.
//! A conversation ends with @ENDS.
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
    @FRAMING
}

/// How long a client may take for a request, and for taking its answers.
pub fn patience_ms() -> u64 {
    @PATIENCE_MS
}

/// How many silent clients are there when another one asks.
pub fn silent_clients() -> usize {
    @SILENT_CLIENTS
}

/// What ends a conversation.
pub fn stop() -> Stop {
    @STOP
}
"#;
