//! The kill matrix: every wrong server of `wrong/` against every row of the table.
//!
//! To put one in a chapter's place, and see what a reader would see of it:
//!
//! ```text
//! cargo build -p contract && SERVER=$PWD/target/debug/wrong-reads-text cargo test -p ch04
//! ```

#[path = "kill/bank.rs"]
mod bank;

use std::process::ExitCode;

use bank::Bank;
use contract::probes;
use contract::verdicts::LINES;

fn main() -> ExitCode {
    bank::main(Bank {
        table: LINES,
        folder: "wrong",
        prefix: "wrong-",
        record: "matrix",
        is_whole: true,
        at_once: 12,
        probe: probes::run,
    })
}
