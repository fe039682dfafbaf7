//! Misconception: the client drips until it is let go, and then the test is over.
//!
//! With a server that never lets it go the test is never over. What does not end has found nothing.
//!
//! Killed by: wrong-renews-its-patience (hangs)
//! Breaks too: ch02 (hangs)
//! Breaks too: ch01 (hangs)
//! Hint: Your test does not end where it should say no. After how long do you know enough?

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

const LET_GO: Duration = Duration::from_secs(4);
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
    let connected = TcpStream::connect_timeout(&server, LET_GO);
    let mut client = connected.map_err(|error| format!("it did not get in: {error}"))?;
    while !is_let_go(&mut client, PAUSE)? {
        let _ = client.write_all(b"1");
    }
    Ok(())
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
