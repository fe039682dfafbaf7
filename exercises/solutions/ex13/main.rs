//! Exercise 13, solved: a client that goes on dripping while it looks whether it is let go.
//!
//! `ex13 ADDRESS` is a client of the server at ADDRESS: status 0 if it keeps its promise, and a sentence on
//! stderr and status 1 if it does not. It ends within 10 s.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Within this time a client must be let go whose patience, two seconds, has run out. It is long enough for
/// a busy machine.
const LET_GO: Duration = Duration::from_secs(4);

/// Between two bytes: much less than the patience, so that a server which counts from the last byte never
/// comes to its end.
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

/// A client that sends a byte now and then, and never all of its line, is let go.
fn test(server: SocketAddr) -> Result<(), String> {
    let start = Instant::now();
    let connected = TcpStream::connect_timeout(&server, LET_GO);
    let mut client = connected.map_err(|error| format!("it did not get in: {error}"))?;
    while start.elapsed() < LET_GO {
        // A server that has closed meanwhile lets a byte or two more be sent, or none: listening tells.
        let _ = client.write_all(b"1");
        if is_let_go(&mut client, PAUSE)? {
            return Ok(());
        }
    }
    // Not a moment longer: whoever is silent now is let go for that.
    Err(format!("a client that sent a byte each {PAUSE:?} was still held after {LET_GO:?}"))
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
