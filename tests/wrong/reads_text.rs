//! Misconception: what comes over the network is text.
//!
//! `read_line` fills a `String`, so that a byte that is not UTF-8 is an error of reading. The
//! client that sent it gets no answer at all, where it should get `Invalid`.
//!
//! Killed by: answers_odd_even_invalid (does not answer)

mod common;

use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Instant;

use oddeven::{LINE_BYTES_MAX, Session};

/// A client, and until when it is read from.
struct Request<'c>(&'c TcpStream, Instant);

impl Read for Request<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        common::read_before(self.1, self.0, bytes)
    }
}

fn main() -> ExitCode {
    common::run(|listener| common::thread_each(&listener, converse))
}

fn converse(client: &TcpStream) -> io::Result<()> {
    let request = Request(client, Instant::now() + common::PATIENCE);
    let mut line = String::new();
    BufReader::new(request.take(LINE_BYTES_MAX as u64 + 1)).read_line(&mut line)?;
    let mut session = Session::new();
    session.feed(line.as_bytes());
    session.feed(&[]); // The end of the line, where the line has none.
    common::answer(client, session.unsent())
}
