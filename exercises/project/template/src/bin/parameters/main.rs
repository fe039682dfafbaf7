//! Prints your variant of the project as the file `src/mine.rs`.
//!
//! `cargo run --quiet --bin parameters -- YOUR-NAME > mine.txt && mv mine.txt src/mine.rs`, with the name
//! by which the course system knows you: the grader derives the same from it.

mod derive;
mod term;

use std::process::ExitCode;

use derive::Parameters;

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1).filter(|it| !it.starts_with('-')) else {
        eprintln!("parameters YOUR-NAME, as in `cargo run --quiet --bin parameters -- alice`");
        return ExitCode::from(2);
    };
    let seed = format!("{}/{name}", term::TERM);
    print!("{}", Parameters::of(&seed).mine(&seed, include_str!("mine.txt")));
    ExitCode::SUCCESS
}
