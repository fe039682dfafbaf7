//! Misconception: a client that says nothing for a moment has said all that it will say.
//!
//! It gets every client answered that is tried on one machine. A moment is too short for a client
//! behind a slow link, and everybody else waits for it for nothing.
//!
//! Killed by: any_split_is_the_same_request (answers wrongly)
//! In other rows, timing decides whether it is seen.
//! Hint: You answer when the client has been quiet for a moment. Is the line complete by then, always?

mod common;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use oddeven::{LINE_BYTES_MAX, Session};

/// A moment.
const MOMENT: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    let length = client.read(&mut bytes)?;
    session.feed(&bytes[..length]);
    client.set_read_timeout(Some(MOMENT))?;
    while let Ok(length @ 1..) = client.read(&mut bytes) {
        session.feed(&bytes[..length]);
    }
    session.feed(b""); // Quiet for a moment: that was all.
    common::answer(client, session.unsent())
}
