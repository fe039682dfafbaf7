//! Misconception: first the client drips for long enough, then one looks whether it is let go.
//!
//! By then it drips no more. A server that counts from the last byte lets it go two seconds later, and
//! the test takes that for what it had asked for.
//!
//! Killed by: wrong-renews-its-patience (passes)
//! Breaks too: ch02 (passes)
//! Hint: You listen when the last byte has been sent. What is such a client in the eyes of the server: one that drips, or one that is silent?

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
    for _ in 0..8 {
        let _ = client.write_all(b"1");
        std::thread::sleep(PAUSE);
    }
    match is_let_go(&mut client, LET_GO)? {
        true => Ok(()),
        false => Err("a client that had dripped was still held".into()),
    }
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
