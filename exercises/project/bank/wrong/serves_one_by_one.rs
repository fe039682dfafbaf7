//! Misconception: every client is served so quickly that the next one can wait.
//!
//! A client that says half a request is not served quickly.

mod frame;
mod mine;
mod right;

use std::process::ExitCode;

fn main() -> ExitCode {
    right::run_on(|client| drop(right::converse(&client)))
}
