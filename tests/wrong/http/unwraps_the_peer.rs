//! Misconception: a socket that is open is connected, so it has a peer with an address.
//!
//! After a reset, `getpeername` fails with ENOTCONN, on a socket that `accept` has just returned as well as on
//! any other. A port scan is enough to end this server.
//!
//! Killed by: resets_harm_nobody_else (the server ends)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;

use common::{Client, Config, Core, Ways};

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { accept, ..Ways::RIGHT }))
}

#[expect(clippy::unwrap_used, reason = "the misconception")]
fn accept(
    listener: &TcpListener,
    core: &mut Core,
    served: usize,
    config: &Config,
) -> anyhow::Result<Option<Client>> {
    let client = common::accept(listener, core, served, config)?;
    if let Some(client) = &client {
        client.socket.peer_addr().unwrap();
    }
    Ok(client)
}
