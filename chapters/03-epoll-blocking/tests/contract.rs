//! Holds chapter 03 to its column of the table.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::harness::hold("ch03", env!("CARGO_BIN_EXE_ch03"))
}
