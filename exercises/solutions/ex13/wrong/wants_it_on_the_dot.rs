//! Misconception: the patience is two seconds, so that after two seconds the client must be gone.
//!
//! The server begins to count when it accepts, which is later than the connect; it is woken up a little
//! later still, and the end has to arrive. A good server is always late by something.
//!
//! Killed by: ch04 (fails)
//! Breaks too: wrong-times-from-the-first-byte (fails)
//! Hint: Your test fails with a good server. From when on does the server count its two seconds, and from when on do you?

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(500);

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
    let connected = TcpStream::connect_timeout(&server, PATIENCE);
    let mut client = connected.map_err(|error| format!("it did not get in: {error}"))?;
    while start.elapsed() <= PATIENCE {
        let _ = client.write_all(b"1");
        if is_let_go(&mut client, PAUSE)? && start.elapsed() <= PATIENCE {
            return Ok(());
        }
    }
    Err("a client that dripped was still held after its two seconds".into())
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
