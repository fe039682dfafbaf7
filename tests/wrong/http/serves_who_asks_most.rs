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
use std::time::{Duration, Instant};

use common::{Client, Core, Ways};
use http::Wants;

fn main() -> ExitCode {
    common::run(|listener, config| common::serve(listener, config, Ways { turn, ..Ways::RIGHT }))
}

/// A pause that is shorter is not the end of what a client has to say.
const PAUSE: Duration = Duration::from_secs(3);

fn turn(client: &mut Client, core: &mut Core) -> bool {
    let mut heard_last = Instant::now();
    while heard_last.elapsed() < PAUSE {
        match common::step(client, core) {
            Ok(true) => heard_last = Instant::now(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            Ok(false) => return client.connection.wants() == Wants::Wait,
            Err(_) => return false,
        }
    }
    true
}
