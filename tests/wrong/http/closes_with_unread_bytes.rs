//! Misconception: the refusal is sent, so the connection can be closed.
//!
//! What the client is still sending meets a closed socket, and the kernel answers with a reset, which takes
//! the refusal with it where it has not been read yet.
//!
//! Killed by: a_refusal_is_not_lost_to_a_reset (resets the connection)

mod common;

use std::process::ExitCode;

use common::{Client, Core, Ways};
use http::Wants;

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    while client.connection.wants() != Wants::Linger {
        match common::step(client, core) {
            Ok(true) => {}
            Ok(false) => return client.connection.wants() != Wants::Close,
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
    false
}
