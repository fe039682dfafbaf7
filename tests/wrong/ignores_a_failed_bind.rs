//! Misconception: a thread and a listener for each core, and every core serves.
//!
//! Without SO_REUSEPORT only the first bind succeeds. The others fail with EADDRINUSE, which is taken
//! for "it listens already", and their threads have nothing to do.
//!
//! Killed by: every_core_serves (one core does all the work)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;
use std::thread;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    for _ in 1..thread::available_parallelism()?.get() {
        thread::spawn(move || match common::listen(address, common::BACKLOG, true) {
            Ok(listener) => common::thread_each(&listener, common::converse),
            Err(_) => Ok(()), // It listens already.
        });
    }
    common::thread_each(&listener, common::converse)
}
