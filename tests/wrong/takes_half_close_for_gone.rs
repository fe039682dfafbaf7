//! Misconception: `recv` returned 0, so the client is gone.
//!
//! It has only said that it will send no more. It may well wait for its answer, and the protocol
//! lets it end its line in this way.
//!
//! Killed by: a_half_closed_client_is_answered (does not answer)

mod common;

use std::io;
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

use oddeven::{LINE_BYTES_MAX, Session};

fn main() -> ExitCode {
    common::run(|listener| common::thread_each(&listener, converse))
}

fn converse(client: &TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + common::PATIENCE;
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() {
        let length = common::read_before(deadline, client, &mut bytes)?;
        if length == 0 {
            return Ok(()); // Gone.
        }
        session.feed(&bytes[..length]);
    }
    common::answer(client, session.unsent())
}
