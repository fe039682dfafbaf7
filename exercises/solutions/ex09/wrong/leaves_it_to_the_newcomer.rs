//! Misconception: with SO_REUSEPORT somebody listens all the time, so that the old process can simply be ended.
//!
//! The newcomer gets those who come from now on. Those who are in the old one's queue and in its hands
//! belong to the old one, and nobody inherits them.
//!
//! Killed by: a_restart_loses_nobody (does not answer)
//! Hint: SIGTERM ends your process as it stands. Who is with it at that moment, and can the newcomer answer them?

mod common;

use std::process::ExitCode;

fn main() -> ExitCode {
    common::run_on(common::listen_shared, |listener| {
        common::thread_each(&listener, common::converse)
    })
}
