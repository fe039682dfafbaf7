//! Misconception: clients that are served fast enough need not be served at once.
//!
//! First come, first served, and nobody takes more than the patience. It is right until somebody
//! does take all of it: one client that says nothing, and everybody behind it waits.
//!
//! Killed by: a_silent_client_stalls_nobody (others wait for its 2 s of patience)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    for client in listener.incoming() {
        match client {
            Ok(client) => drop(common::converse(&client)), // Whatever it is, it is over.
            Err(error) => common::survive(error)?,
        }
    }
    Ok(())
}
