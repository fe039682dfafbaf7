//! Misconception: to stop in good order, close the listener first, so that nobody new comes.
//!
//! Those who wait in its queue have come already: their handshakes are done and their requests sent,
//! and the close resets them all. Everybody whom it has accepted is answered.
//!
//! Killed by: a_restart_loses_nobody (resets the connection)

mod common;

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{Shutdown, shutdown};

fn main() -> ExitCode {
    common::run_on(common::listen_shared, serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block().context("sigprocmask")?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = signals.wait();
            // No listener any more: its queue is reset, and `accept` fails with EINVAL.
            let _ = shutdown(listener.as_raw_fd(), Shutdown::Both);
        });
        loop {
            match listener.accept() {
                Ok((client, _)) => {
                    let converse = move || drop(common::converse(&client));
                    drop(thread::Builder::new().spawn_scoped(scope, converse));
                }
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINVAL as i32) => {
                    return Ok(()); // The scope waits for those who are being served.
                }
                Err(error) => common::survive(error)?,
            }
        }
    })
}
