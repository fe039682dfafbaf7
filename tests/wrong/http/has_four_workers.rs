//! Misconception: a few threads that each serve one client at a time are enough for everybody.
//!
//! They are as long as fewer clients stall than there are threads. It passes every test that holds one
//! client, and is one client at a time again when four do.
//!
//! Killed by: a_pool_full_of_silent_clients_stalls_nobody (others wait for its 2 s of patience)

mod common;

use std::process::ExitCode;
use std::thread;

fn main() -> ExitCode {
    common::run(|listener, config| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Ok((client, _)) = listener.accept() {
                        let _ = common::converse(client, &config); // Whatever it is, it is over.
                    }
                });
            }
        });
        anyhow::bail!("accept4 failed in each of its threads")
    })
}
