//! Misconception: the answer is sent, so the connection can be closed.
//!
//! When bytes of the client are still unread, `close` sends a reset instead of the end, and a
//! reset can overtake the answer on its way.
//!
//! Killed by: an_overlong_line_is_refused (resets the connection)

mod common;

use std::io::{self, Write};
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
        let length = common::read_before(deadline, client, &mut bytes)?;
        session.feed(&bytes[..length]);
    }
    client.write_all(session.unsent())
    // The thread ends, the client is dropped, the descriptor is closed.
}
