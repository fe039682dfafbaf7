//! Holds chapter 06 to its column of the table.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::harness::hold("ch06", env!("CARGO_BIN_EXE_ch06"))
}
