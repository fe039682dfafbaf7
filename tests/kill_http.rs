//! The kill matrix of the models' table: every wrong server of `wrong/http/` against every row.
//!
//! To put one in a model's place, and see what a reader would see of it:
//!
//! ```text
//! cargo build -p contract
//! SERVER=$PWD/target/debug/wrong-http-answers-the-first MODEL=epoll-edge cargo test -p ch07
//! ```

#[path = "kill/bank.rs"]
mod bank;

use std::path::Path;
use std::process::ExitCode;

use bank::Bank;
use contract::probes::Outcome;
use contract::probes::http::{self, Subject};
use contract::server::Program;
use contract::verdicts::models::HTTP;

fn main() -> ExitCode {
    bank::main(Bank {
        table: HTTP,
        folder: "wrong/http",
        prefix: "wrong-http-",
        record: "http",
        is_whole: false,
        at_once: 8,
        probe,
    })
}

fn probe(row: &str, exe: &Path) -> Outcome {
    http::run(row, &Subject::new(Program::new(exe, &[]), ""))
}
