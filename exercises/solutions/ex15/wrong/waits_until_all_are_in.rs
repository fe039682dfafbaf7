//! Misconception: a burst has to be taken in first, so one waits a while before it asks.
//!
//! Who says nothing for longer than the server's patience is let go, and rightly. This test calls every
//! good server wrong.
//!
//! Killed by: ch04 (fails)
//! Breaks too: ch02 (fails)
//! Breaks too: ch05 (fails)
//! Hint: Your clients connect and are silent for some seconds. What does a good server do with such a client?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(4);
const CLIENTS: usize = 300;

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1).and_then(|it| it.parse().ok()) else {
        eprintln!("usage: ex15 ADDRESS");
        return ExitCode::from(2);
    };
    match test(address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn test(server: SocketAddr) -> io::Result<()> {
    let burst = (0..CLIENTS).map(|_| TcpStream::connect_timeout(&server, ANSWER));
    let mut burst: Vec<TcpStream> = burst.collect::<io::Result<_>>()?;
    thread::sleep(Duration::from_secs(3));
    burst.iter_mut().try_for_each(|client| {
        client.write_all(b"7\n")?;
        hear(client)
    })
}

fn hear(client: &mut TcpStream) -> io::Result<()> {
    let mut bytes = Vec::new();
    client.set_read_timeout(Some(ANSWER))?;
    client.read_to_end(&mut bytes)?;
    if bytes == b"Odd\n" { Ok(()) } else { Err(io::Error::other("a wrong answer")) }
}
