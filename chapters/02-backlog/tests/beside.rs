//! Holds the servers beside chapter 02 to their columns of the table.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::harness::beside(&[
        ("ch02-backlog-only", env!("CARGO_BIN_EXE_ch02-backlog-only")),
        ("ch02-patience-only", env!("CARGO_BIN_EXE_ch02-patience-only")),
    ])
}
