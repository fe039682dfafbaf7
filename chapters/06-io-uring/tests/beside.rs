//! Holds the server beside chapter 06 to its column of the table.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::harness::beside(&[("ch06-crate", env!("CARGO_BIN_EXE_ch06-crate"))])
}
