//! Misconception: a server that is asked to stop stops.
//!
//! Its successor serves already, so nobody seems to lose anything. But those whom it has begun with,
//! and those in its queue, are its own: nobody else can answer them.
//!
//! Killed by: a_restart_loses_nobody (does not answer)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;

fn main() -> ExitCode {
    common::run_on(common::listen_shared, serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    common::thread_each(&listener, common::converse) // SIGTERM ends the process, as by default.
}
