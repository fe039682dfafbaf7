//! Misconception: SO_LINGER makes `close` wait until the answer has arrived.
//!
//! It makes `close` wait for our bytes to be taken. With unread input of the client, `close` resets the
//! connection without waiting for anything.
//!
//! Killed by: an_overlong_line_is_refused (resets the connection)
//! Hint: SO_LINGER says how long close waits for your own bytes. Whose bytes are unread here?

mod common;

use std::io::{self, Write};
use std::net::TcpStream;
use std::process::ExitCode;

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let session = common::request(client)?;
    client.write_all(session.unsent())?;
    setsockopt(&client, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 1 })?;
    Ok(())
}
