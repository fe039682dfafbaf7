//! Misconception: a program that has ended has left its port.
//!
//! The kernel remembers for a minute each connection that the server closed first.
//!
//! Killed by: it_restarts_at_once (the address is still taken)

mod common;

use std::process::ExitCode;

use common::{BACKLOG, Ways};

fn main() -> ExitCode {
    common::run_on(
        |address| common::listen(address, BACKLOG, false),
        |listener, config| common::serve(listener, config, Ways::RIGHT),
    )
}
