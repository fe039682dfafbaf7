//! Chapters 01 and 02, and the two libraries beside 04, with what stands in for Linux on a Mac
//! (`chapters/01-blocking/src/socket.rs`): held to their columns like the programs themselves.
//!
//! It shows that nothing of Linux's own is left in the way of these calls, and not that they build on a
//! Mac: nobody of us has tried.

use std::process::ExitCode;

use contract::{build, harness};

/// The programs that are written for a Mac too.
const PROGRAMS: [&str; 4] = ["ch01", "ch02", "ch04-mio", "ch04-polling"];

fn main() -> ExitCode {
    let built = match build::elsewhere(&PROGRAMS) {
        Ok(built) => built,
        Err(error) => {
            eprintln!("with RUSTFLAGS=\"--cfg elsewhere\": {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let mut servers = Vec::new();
    for name in PROGRAMS {
        match built.get(name).and_then(|it| it.to_str()) {
            Some(path) => servers.push((name, path)),
            None => {
                eprintln!(
                    "cargo has built no {name} with --cfg elsewhere, or where nobody can name it"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    harness::beside(&servers)
}
