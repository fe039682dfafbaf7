//! Misconception: `send` sends what it is given.
//!
//! It sends what the kernel has room for, and returns how much that was. The lint that knows this
//! has to be silenced for this file.
//!
//! Killed by: a_short_send_is_finished (answers wrongly)

mod common;

use std::io::{self, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

use oddeven::{LINE_BYTES_MAX, Session};

fn main() -> ExitCode {
    common::run(|listener| common::thread_each(&listener, converse))
}

#[expect(clippy::unused_io_amount, reason = "the misconception")]
fn converse(mut client: &TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + common::PATIENCE;
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() && !session.is_done() {
        let length = common::read_before(deadline, client, &mut bytes)?;
        session.feed(&bytes[..length]);
    }
    client.write(session.unsent())?;
    common::hang_up(client)
}
