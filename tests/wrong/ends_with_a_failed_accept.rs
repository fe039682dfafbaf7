//! Misconception: an error of `accept` is an error of the listener.
//!
//! Most of them are the story of one client that went away (ECONNABORTED), of the network
//! (ENETDOWN) or of a moment (EMFILE), and the next call may succeed. The `?` makes each the end
//! of the server.
//!
//! Killed by: an_accept_error_stops_nobody (the server ends)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (client, _) = listener.accept().context("accept")?;
        thread::spawn(move || common::converse(&client));
    }
}
