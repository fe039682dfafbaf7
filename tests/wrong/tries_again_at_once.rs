//! Misconception: an `accept` that failed can be tried again at once.
//!
//! When the descriptors are used up, the client stays in the queue and so does the reason. This
//! server asks as fast as it can until somebody leaves.
//!
//! Killed by: running_out_of_descriptors_does_not_spin (burns CPU time)

mod common;

use std::net::TcpListener;
use std::process::ExitCode;
use std::thread;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let Ok((client, _)) = listener.accept() else { continue };
        drop(thread::Builder::new().spawn(move || common::converse(&client)));
    }
}
