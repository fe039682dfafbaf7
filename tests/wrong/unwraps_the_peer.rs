//! Misconception: a client that was accepted is connected, so it has an address.
//!
//! One that was reset while it waited in the queue is accepted all the same, and `getpeername`
//! then fails with ENOTCONN. A port scan is enough to end this server.
//!
//! Killed by: resets_harm_nobody_else (the server ends)

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::thread;

fn main() -> ExitCode {
    common::run(serve)
}

#[expect(clippy::unwrap_used, reason = "the misconception")]
fn serve(listener: TcpListener) -> anyhow::Result<()> {
    let mut visits = HashMap::new();
    for client in listener.incoming() {
        match client {
            Ok(client) => {
                *visits.entry(client.peer_addr().unwrap().ip()).or_insert(0_u64) += 1;
                drop(thread::Builder::new().spawn(move || common::converse(&client)));
            }
            Err(error) => common::survive(error)?,
        }
    }
    Ok(())
}
