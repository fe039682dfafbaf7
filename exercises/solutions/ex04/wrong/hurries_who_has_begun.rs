//! Misconception: whoever has begun its line has the rest of it ready, so that a tenth of a second will do.
//!
//! It cuts off the drip, and every honest client whose next packet is a little late.
//!
//! Killed by: a_half_closed_client_is_answered (does not answer)
//! Hint: After the first byte you wait for a shorter time than before. Who says that the rest is on its way already, when the line is slow?

mod common;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use oddeven::{LINE_BYTES_MAX, Session};

const MOMENT: Duration = Duration::from_millis(100);

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
        client.set_read_timeout(Some(MOMENT))?;
    }
    common::answer(client, session.unsent())
}
