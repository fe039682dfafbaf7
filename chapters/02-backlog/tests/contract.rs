//! Holds chapter 02 to its column of the table.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::harness::hold("ch02", env!("CARGO_BIN_EXE_ch02"))
}
