//! Misconception: a program that has ended has left its port.
//!
//! The connections that it closed stay in TIME_WAIT for a minute, and hold the port against
//! everybody who has not set SO_REUSEADDR.
//!
//! Killed by: it_restarts_at_once (the address is still taken)

mod common;

use std::process::ExitCode;

fn main() -> ExitCode {
    common::run_on(
        |address| common::listen(address, common::BACKLOG, false),
        |listener| common::thread_each(&listener, common::converse),
    )
}
