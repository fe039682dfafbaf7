//! Misconception: clients that are served fast enough need not be served at once.
//!
//! How fast a client is served is for the client to say. While one says nothing, all others wait; and one
//! core does all the work.
//!
//! Killed by: a_silent_client_stalls_nobody (others wait for its 2 s of patience)
//! Killed by: every_core_serves (one core does all the work)

mod common;

use std::process::ExitCode;

fn main() -> ExitCode {
    common::run(|listener, config| {
        loop {
            let Ok((client, _)) = listener.accept() else { continue };
            let _ = common::converse(client, &config); // Whatever it is, it is over.
        }
    })
}
