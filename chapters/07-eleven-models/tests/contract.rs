//! Holds the eleven models to their columns of the table.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::harness::models(env!("CARGO_BIN_EXE_ch07"))
}
