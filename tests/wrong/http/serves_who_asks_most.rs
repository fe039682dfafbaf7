//! Misconception: a client is served until it has nothing more to say.
//!
//! Edge-triggered, that is what the manual says: read until EAGAIN. A client that sends as fast as it is
//! served never lets the server come to that, and all others wait.
//!
//! Killed by: one_greedy_client_does_not_starve_others (others wait until it lets go)

mod common;

use std::io;
use std::process::ExitCode;
use std::thread;

use common::{Client, Core, Ways};
use http::Wants;

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

fn turn(client: &mut Client, core: &mut Core) -> bool {
    // A short pause is not the end of what it has to say, on a machine with few cores.
    let mut pauses = 0;
    while pauses < 500 {
        match common::step(client, core) {
            Ok(true) => pauses = 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                pauses += 1;
                thread::yield_now();
            }
            Ok(false) | Err(_) => break,
        }
    }
    pauses == 500 || client.connection.wants() == Wants::Wait
}
