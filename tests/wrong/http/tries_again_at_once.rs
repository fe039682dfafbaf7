//! Misconception: an `accept` that failed can be tried again at once.
//!
//! When the descriptors are used up, the client stays in the queue and so does the reason: level-triggered
//! epoll says so at every wait.
//!
//! Killed by: an_accept_error_stops_nobody (burns CPU time)
//! Killed by: running_out_of_descriptors_does_not_spin (burns CPU time)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;

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
    let Ok((socket, _)) = listener.accept() else { return Ok(None) };
    Client::new(socket, core).map(Some)
}
