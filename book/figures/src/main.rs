//! The command that mdBook runs: a book of JSON comes in, and goes out with its directives expanded.

use std::env;
use std::io;
use std::process::ExitCode;

use anyhow::Context;

fn main() -> ExitCode {
    // `supports html` asks whether a renderer is supported. Our HTML is Markdown to all of them.
    if env::args().nth(1).as_deref() == Some("supports") {
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mdbook-figures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let (context, book) = mdbook_preprocessor::parse_input(io::stdin().lock())
        .context("mdBook runs this and gives it the book: mdbook build book")?;
    let book = figures::preprocess(&context, book)?;
    serde_json::to_writer(io::stdout().lock(), &book).context("write: the book")
}
