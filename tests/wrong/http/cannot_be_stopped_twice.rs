//! Misconception: a signal that is handled in good order is handled.
//!
//! The first one lets the server drain; the second one, sent by somebody who does not want to wait, finds the
//! signal blocked still.
//!
//! Killed by: a_second_stop_ends_at_once (goes on when asked to stop)

mod common;

use std::process::ExitCode;

use common::Ways;

fn main() -> ExitCode {
    common::run(|listener, config| {
        common::serve(listener, config, Ways { stop: |_| true, ..Ways::RIGHT })
    })
}
