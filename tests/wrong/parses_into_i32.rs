//! Misconception: a number is what fits an `i32`, and the library's parser knows what a number is.
//!
//! `str::parse` takes a sign that the protocol does not, and gives up at ten digits.
//!
//! Killed by: answers_odd_even_invalid (answers wrongly)

mod common;

use std::io;
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

use oddeven::LINE_BYTES_MAX;

fn main() -> ExitCode {
    common::run(|listener| common::thread_each(&listener, converse))
}

fn converse(client: &TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + common::PATIENCE;
    let mut line = Vec::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while !line.contains(&b'\n') && line.len() <= LINE_BYTES_MAX {
        match common::read_before(deadline, client, &mut bytes)? {
            0 if line.is_empty() => return Ok(()),
            0 => break,
            length => line.extend(&bytes[..length]),
        }
    }
    common::answer(client, judge(&line).as_bytes())
}

fn judge(line: &[u8]) -> &'static str {
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match str::from_utf8(line).map(str::parse::<i32>) {
        Ok(Ok(number @ 1..)) if number % 2 == 1 => "Odd\n",
        Ok(Ok(1..)) => "Even\n",
        _ => "Invalid\n",
    }
}
