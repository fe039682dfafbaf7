//! Misconception: sixteen KiB for each client is nothing.
//!
//! It is nothing ten thousand times, for clients most of whom are silent.
//!
//! Killed by: idle_connections_are_free (its memory grows)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Mutex;

use common::{Client, Config, Core, Ways};

/// Simplified: they are not given back, since no promise that this server breaks asks for it.
static BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { accept, ..Ways::RIGHT }))
}

fn accept(
    listener: &TcpListener,
    core: &mut Core,
    served: usize,
    config: &Config,
) -> anyhow::Result<Option<Client>> {
    let client = common::accept(listener, core, served, config)?;
    if let (Some(_), Ok(mut buffers)) = (&client, BUFFERS.lock()) {
        buffers.push(vec![1; 16384]); // Written to, or the kernel has not given it yet.
    }
    Ok(client)
}
