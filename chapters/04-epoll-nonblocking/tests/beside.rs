//! Holds the servers beside chapter 04 to their columns of the table.

use std::process::ExitCode;

fn main() -> ExitCode {
    contract::harness::beside(&[
        ("ch04-bare", env!("CARGO_BIN_EXE_ch04-bare")),
        ("ch04-mio", env!("CARGO_BIN_EXE_ch04-mio")),
        ("ch04-polling", env!("CARGO_BIN_EXE_ch04-polling")),
    ])
}
