//! Misconception: two hundred and fifty-six buffers are enough for everybody.
//!
//! Who comes when all are lent is dropped, without a word, though there are descriptors and memory.
//!
//! Killed by: three_hundred_at_once_are_all_answered (does not answer)
//! Killed by: a_thousand_at_once_are_all_answered (does not answer)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;

use common::{Client, Config, Core, Ways};

const BUFFERS: usize = 256;

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { accept, ..Ways::RIGHT }))
}

fn accept(
    listener: &TcpListener,
    core: &mut Core,
    lent: usize,
    config: &Config,
) -> anyhow::Result<Option<Client>> {
    let client = common::accept(listener, core, lent, config)?;
    Ok(client.filter(|_| lent < BUFFERS))
}
