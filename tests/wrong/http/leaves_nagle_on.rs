//! Misconception: small packets are the network's concern.
//!
//! What the kernel does by itself, Nagle's algorithm, holds a small answer back until the one before it is
//! acknowledged. A client that has asked for both says nothing more, and acknowledges late.
//!
//! Killed by: no_answer_waits_for_an_acknowledgement (an answer waits for an acknowledgement)

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
    inside: usize,
    config: &Config,
) -> anyhow::Result<Option<Client>> {
    let client = common::accept(listener, core, inside, config)?;
    if let Some(client) = &client {
        let _ = client.socket.set_nodelay(false);
    }
    Ok(client)
}
