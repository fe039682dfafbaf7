//! Misconception: what one `recv` returns is the request.
//!
//! A stream has no pieces. The network cuts it where it likes, and often enough not at all, so that
//! this works for as long as it is tried by hand.
//!
//! Killed by: any_split_is_the_same_request (answers wrongly)
//! Hint: You answer after one recv, whatever it brought. What if it brought half of the line?

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
    let length = client.read(&mut bytes)?;
    session.feed(&bytes[..length]);
    session.feed(b""); // That was all.
    common::answer(client, session.unsent())
}
