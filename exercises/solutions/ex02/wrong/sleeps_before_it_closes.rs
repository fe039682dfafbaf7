//! Misconception: the answer needs a moment to get out before the connection is closed.
//!
//! It got out at once. What is wrong is on the way in: the bytes that nobody has read are unread a
//! moment later, too.
//!
//! Killed by: an_overlong_line_is_refused (resets the connection)
//! Hint: You wait before you close. The reset is not about your bytes: whose bytes are still in the kernel?

mod common;

use std::io::{self, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let session = common::request(client)?;
    client.write_all(session.unsent())?;
    thread::sleep(Duration::from_millis(10));
    Ok(()) // The client is dropped, and its descriptor closed.
}
