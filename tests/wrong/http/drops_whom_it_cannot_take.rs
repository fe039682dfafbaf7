//! Misconception: who comes when all places are taken is best sent away at once.
//!
//! It is: with an answer. A close without one looks like a server that has broken down, and over bytes that
//! nobody has read it is a reset.
//!
//! Killed by: a_full_pool_refuses_politely_or_queues (resets the connection)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;

use common::{Client, Config, Core, Ways};

fn main() -> ExitCode {
    common::run(|listener, config| {
        common::serve(listener, config, Ways { accept, waits_when_full: false, ..Ways::RIGHT })
    })
}

fn accept(
    listener: &TcpListener,
    core: &mut Core,
    served: usize,
    config: &Config,
) -> anyhow::Result<Option<Client>> {
    let client = common::accept(listener, core, served, config)?;
    Ok(client.filter(|_| served < config.connections_max))
}
