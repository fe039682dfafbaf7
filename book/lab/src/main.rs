//! `cargo lab`: the experiments on this machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::cli::main()
}
