//! Misconception: a line ends somewhere, so it is read until then.
//!
//! The buffer grows for as long as the client likes to send. One that never ends its line never
//! hears that it is too long, and decides how much memory the server needs.
//!
//! Killed by: an_overlong_line_is_refused (does not answer)

mod common;

use std::io;
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

use oddeven::{Answer, LINE_BYTES_MAX};

fn main() -> ExitCode {
    common::run(|listener| common::thread_each(&listener, converse))
}

fn converse(client: &TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + common::PATIENCE;
    let mut line = Vec::new();
    let mut bytes = [0; 4096];
    while !line.contains(&b'\n') {
        match common::read_before(deadline, client, &mut bytes)? {
            0 if line.is_empty() => return Ok(()),
            0 => break,
            length => line.extend(&bytes[..length]),
        }
    }
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let answer = if line.len() < LINE_BYTES_MAX { oddeven::parity(line) } else { Answer::Invalid };
    common::answer(client, answer.bytes())
}
