//! Misconception: TCP itself ends a connection on which nothing happens; one has to say after how long.
//!
//! TCP_USER_TIMEOUT, like keepalive, ends a connection whose other *machine* does not confirm what it
//! is sent. This client's machine confirms everything; its program says nothing.
//!
//! Killed by: a_silent_client_is_let_go (held for ever)
//! Breaks too: a_dripping_client_is_let_go (held for ever)
//! Hint: You have set an option of TCP. Whose silence does it measure: the program's at the other end, or its kernel's?

mod common;

use std::io;
use std::net::TcpStream;
use std::process::ExitCode;

use nix::sys::socket::{setsockopt, sockopt};

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(client: &TcpStream) -> io::Result<()> {
    setsockopt(&client, sockopt::TcpUserTimeout, &(common::PATIENCE.as_millis() as u32))?;
    setsockopt(&client, sockopt::KeepAlive, &true)?;
    setsockopt(&client, sockopt::TcpKeepIdle, &1)?;
    setsockopt(&client, sockopt::TcpKeepInterval, &1)?;
    let session = common::request(client)?;
    common::answer(client, session.unsent())
}
