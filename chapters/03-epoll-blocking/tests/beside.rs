//! Holds the servers beside chapter 03 to their columns of the table.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::harness::beside(&[("ch03-one-recv", env!("CARGO_BIN_EXE_ch03-one-recv"))])
}
