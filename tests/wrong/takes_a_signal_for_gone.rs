//! Misconception: an error of `recv` means that the client is gone.
//!
//! EINTR means that a signal came while it slept, and the client is where it was.
//!
//! Killed by: a_signal_loses_nobody (does not answer)

mod common;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

use oddeven::{LINE_BYTES_MAX, Session};

fn main() -> ExitCode {
    common::run(|listener| common::thread_each(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + common::PATIENCE;
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() && !session.is_done() {
        let left = deadline.saturating_duration_since(Instant::now());
        client.set_read_timeout(Some(left))?; // No time left is an error too.
        let length = client.read(&mut bytes)?;
        session.feed(&bytes[..length]);
    }
    common::answer(client, session.unsent())
}
