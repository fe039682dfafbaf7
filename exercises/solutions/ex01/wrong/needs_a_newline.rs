//! Misconception: a request ends at its newline, and in no other way.
//!
//! A client may end its line by its half-close. `recv` then returns no byte, and will do so for ever.
//!
//! Killed by: a_half_closed_client_is_answered (does not answer)
//! Hint: You wait for the newline alone. What does recv return when the client has said all, without one?

mod common;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;

use oddeven::{LINE_BYTES_MAX, Session};

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() {
        let length = client.read(&mut bytes)?;
        if length == 0 {
            return Ok(()); // Nothing can be answered: there was no newline.
        }
        session.feed(&bytes[..length]);
    }
    common::answer(client, session.unsent())
}
