//! Misconception: what one `recv` returns is one request.
//!
//! It is, as long as nobody tests it with anything but a whole line in one `send` on loopback. TCP
//! is a stream of bytes and keeps no trace of who called `send` how often.
//!
//! Killed by: any_split_is_the_same_request (answers wrongly)

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
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    let length = common::read_before(Instant::now() + common::PATIENCE, client, &mut bytes)?;
    let mut session = Session::new();
    session.feed(&bytes[..length]);
    session.feed(&[]); // That was it.
    common::answer(client, session.unsent())
}
