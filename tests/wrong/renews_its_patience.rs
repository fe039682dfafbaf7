//! Misconception: a timeout for each read is a timeout for the request.
//!
//! A client that sends a byte now and then is never silent for long. It is not slow by accident,
//! perhaps, and there may be many of it: the attack is called Slowloris.
//!
//! Killed by: a_dripping_client_is_let_go (each byte renews the patience)

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
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() && !session.is_done() {
        let deadline = Instant::now() + common::PATIENCE;
        let length = common::read_before(deadline, client, &mut bytes)?;
        session.feed(&bytes[..length]);
    }
    common::answer(client, session.unsent())
}
