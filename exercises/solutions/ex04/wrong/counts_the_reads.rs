//! Misconception: an honest request comes in a piece or two, so that a client with more of them drips.
//!
//! The network cuts where it likes. A request in five pieces, quickly one after the other, is as good as
//! one in a single piece; and two pieces, each just in time, still take twice the patience.
//!
//! Killed by: any_split_is_the_same_request (does not answer)
//! Hint: You count how often a client sends. Who decides into how many pieces a request is cut, and what is it that a client must not use up?

mod common;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;

use oddeven::{LINE_BYTES_MAX, Session};

const READS_MAX: usize = 2;

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    client.set_read_timeout(Some(common::PATIENCE))?;
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    for _ in 0..READS_MAX {
        let length = client.read(&mut bytes)?;
        session.feed(&bytes[..length]);
        if !session.unsent().is_empty() || session.is_done() {
            break;
        }
    }
    common::answer(client, session.unsent())
}
