//! Misconception: an `accept` that fails means that the listener is broken.
//!
//! Nearly all of its errors are about the client that was to be accepted, or about a moment in which something is
//! scarce. See accept(2), "Error handling".
//!
//! Killed by: an_accept_error_stops_nobody (the server ends)

mod common;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::ExitCode;

use anyhow::Context;
use common::{Client, Config, Core, Ways};

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { accept, ..Ways::RIGHT }))
}

fn accept(
    listener: &TcpListener,
    core: &mut Core,
    _: usize,
    _: &Config,
) -> anyhow::Result<Option<Client>> {
    match listener.accept() {
        Ok((socket, _)) => Client::new(socket, core).map(Some),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error).context("accept4"),
    }
}
