//! Misconception: a server that is asked to stop stops.
//!
//! Those who have asked already, and whose answers are on their way, hear the end instead.
//!
//! Killed by: stop_answers_what_is_in_flight (the server ends)

mod common;

use std::process::ExitCode;

use common::Ways;

fn main() -> ExitCode {
    common::run(|listener, config| {
        common::serve(listener, config, Ways { stop: |_| false, ..Ways::RIGHT })
    })
}
