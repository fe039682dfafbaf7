//! Misconception: whoever must not wait for too long must not wait at all, and looks at the clock instead.
//!
//! The deadline is kept. Until it comes the processor turns round in a loop for a client that says
//! nothing, at full speed: to sleep until something happens is what blocking calls are for.
//!
//! Killed by: an_idle_server_burns_no_cpu (burns CPU time)
//! Hint: Your server keeps its deadline, and a core busy meanwhile. Which call could sleep until a byte comes or the time is up?

mod common;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

use oddeven::{LINE_BYTES_MAX, Session};

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + common::PATIENCE;
    client.set_nonblocking(true)?;
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() && !session.is_done() {
        match client.read(&mut bytes) {
            Ok(length) => session.feed(&bytes[..length]),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => {}
        }
    }
    common::answer(client, session.unsent())
}
