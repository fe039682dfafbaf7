//! Misconception: a line each half second is a drip, too.
//!
//! The first line is a whole request: it is answered, and the connection ends. A client drips when it
//! never says all.
//!
//! Killed by: wrong-renews-its-patience (passes)
//! Breaks too: ch02 (passes)
//! Breaks too: ch01 (passes)
//! Hint: Every server seems to let your client go. Has it been let go, or has it been answered, and what with?

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

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
    let start = Instant::now();
    let connected = TcpStream::connect_timeout(&server, LET_GO);
    let mut client = connected.map_err(|error| format!("it did not get in: {error}"))?;
    let listens = client.set_read_timeout(Some(PAUSE));
    listens.map_err(|error| format!("it could not listen: {error}"))?;
    while start.elapsed() < LET_GO {
        if client.write_all(b"1\n").is_err() || matches!(client.read(&mut [0; 64]), Ok(0)) {
            return Ok(());
        }
    }
    Err("a client that dripped was still held".into())
}
