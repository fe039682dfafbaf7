//! Misconception: the answer goes out first, and then the end of the client is waited for.
//!
//! This client is answered in time. The next one is not: the server still listens to the first, who
//! has nothing more to say and is in no hurry to close.
//!
//! Killed by: answers_odd_even_invalid (does not answer)
//! In other rows, timing decides whether it is seen.
//! Hint: Your first client is answered, the second is not. What do you still wait for after the answer?

mod common;

use std::io::{self, Read};
use std::net::TcpStream;
use std::process::ExitCode;

fn main() -> ExitCode {
    common::run(|listener| common::one_by_one(&listener, converse))
}

fn converse(mut client: &TcpStream) -> io::Result<()> {
    let session = common::request(client)?;
    common::answer(client, session.unsent())?;
    client.set_nonblocking(false)?;
    while let Ok(1..) = client.read(&mut [0; 4096]) {} // Until its end.
    Ok(())
}
