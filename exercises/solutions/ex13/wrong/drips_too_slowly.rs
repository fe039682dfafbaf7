//! Misconception: the slower a client drips, the harder it is for the server.
//!
//! A client that waits for longer than the patience between two bytes is silent for too long, and is let
//! go for that by every server that has any patience at all.
//!
//! Killed by: wrong-renews-its-patience (passes)
//! Breaks too: ch02 (passes)
//! Hint: Compare the time between two of your bytes with the patience of the server. Which of the two has to be shorter, for a renewal to be seen?

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const LET_GO: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(2500);

fn main() -> ExitCode {
    let address = std::env::args().nth(1).and_then(|it| it.parse().ok());
    let Some(address) = address else {
        eprintln!("usage: ex13 ADDRESS");
        return ExitCode::from(2);
    };
    match test(address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

fn test(server: SocketAddr) -> Result<(), String> {
    let start = Instant::now();
    let connected = TcpStream::connect_timeout(&server, LET_GO);
    let mut client = connected.map_err(|error| format!("it did not get in: {error}"))?;
    while start.elapsed() < LET_GO {
        let _ = client.write_all(b"1");
        if is_let_go(&mut client, PAUSE)? {
            return Ok(());
        }
    }
    Err("a client that dripped was still held".into())
}

/// Whether the server lets `client` go within `time`. It may do so by an end or by a reset.
fn is_let_go(client: &mut TcpStream, time: Duration) -> Result<bool, String> {
    let listens = client.set_read_timeout(Some(time));
    listens.map_err(|error| format!("it could not listen for {time:?}: {error}"))?;
    match client.read(&mut [0; 64]) {
        Ok(0) => Ok(true),
        Ok(_) => Err("it was answered, and had not asked anything yet".into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(_) => Ok(true),
    }
}
