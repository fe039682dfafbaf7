//! Misconception: the time of a request begins with its first byte.
//!
//! Then a client that never sends one has all the time in the world, and a thread and a descriptor
//! with it.
//!
//! Killed by: a_silent_client_is_let_go (held for ever)

mod common;

use std::io;
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    common::run(|listener| common::thread_each(&listener, converse))
}

fn converse(client: &TcpStream) -> io::Result<()> {
    while let Err(error) = client.peek(&mut [0]) {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    common::converse_until(client, Instant::now() + common::PATIENCE)
}
