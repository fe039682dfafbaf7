//! Misconception: all that the client sends has to be read before the connection is closed.
//!
//! All that has come. What is still to come may never do so: the client has its answer and is in no
//! hurry, and everybody else waits for it.
//!
//! Killed by: answers_odd_even_invalid (does not answer)
//! In other rows, timing decides whether it is seen.
//! Hint: You read until recv returns 0. Who decides when that is, and who waits until then?

mod common;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let session = common::request(client)?;
    client.write_all(session.unsent())?;
    client.shutdown(Shutdown::Write)?;
    while let 1.. = client.read(&mut [0; 4096])? {}
    Ok(())
}
