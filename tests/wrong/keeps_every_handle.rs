//! Misconception: a thread that has ended costs nothing.
//!
//! Its stack stays until it is joined or its handle is dropped, and these are kept in order to be
//! joined at the end of a loop that has none.
//!
//! Killed by: nothing_leaks (something is not given back)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;
use std::thread;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    let mut threads = Vec::new();
    for client in listener.incoming() {
        match client {
            Ok(client) => {
                threads.push(thread::Builder::new().spawn(move || common::converse(&client))?);
            }
            Err(error) => common::survive(error)?,
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}
