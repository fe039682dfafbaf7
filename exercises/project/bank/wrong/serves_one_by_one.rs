//! Misconception: every client is served so quickly that the next one can wait.
//!
//! A client that says half a request is not served quickly.

mod common;
mod frame;
mod mine;

use std::process::ExitCode;

fn main() -> ExitCode {
    common::run_on(|client| drop(common::converse(&client)))
}
