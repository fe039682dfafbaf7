//! Misconception: one more `recv` takes what is there.
//!
//! It takes as much as its buffer holds. A line that is too long may be longer than that.
//!
//! Killed by: an_overlong_line_is_refused (resets the connection)
//! Hint: You read once before you close. How many bytes does that take, and how many may be there?

mod common;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;

use oddeven::LINE_BYTES_MAX;

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let session = common::request(client)?;
    client.write_all(session.unsent())?;
    client.set_nonblocking(true)?;
    let _ = client.read(&mut [0; LINE_BYTES_MAX + 1]);
    Ok(())
}
