//! Misconception: a timeout that is set once counts the time of the whole connection.
//!
//! SO_RCVTIMEO counts the time of one call. The next call begins with all of it, and a client needs no
//! more than a byte to get to the next call.
//!
//! Killed by: a_dripping_client_is_let_go (each byte renews the patience)
//! Hint: You set the timeout to the whole patience. How much of it is left when the third byte has come, and who tells the kernel?

mod common;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;

use oddeven::{LINE_BYTES_MAX, Session};

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    client.set_read_timeout(Some(common::PATIENCE))?;
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() && !session.is_done() {
        let length = client.read(&mut bytes)?;
        session.feed(&bytes[..length]);
    }
    common::answer(client, session.unsent())
}
