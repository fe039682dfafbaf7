//! Misconception: an error of `recv` means that the client is gone.
//!
//! EINTR says that a signal came while nothing had been read, and nothing about the client.
//!
//! Killed by: an_interrupted_wait_harms_nobody (resets the connection)

mod common;

use std::io;
use std::process::ExitCode;

use common::{Client, Core, Ways};
use http::Wants;

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    if client.connection.wants() != Wants::Read {
        return common::turn(client, core);
    }
    match common::read(client, core) {
        Ok(_) => common::turn(client, core),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}
