//! Exercise 14: a test of the half-close that every server passes.
//!
//! `ex14 ADDRESS` is a client of the server at ADDRESS: status 0 if it keeps its promise, and a sentence on
//! stderr and status 1 if it does not. It ends within 10 s.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

/// How long an answer may take, on a busy machine too.
const ANSWER: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    let address = std::env::args().nth(1).and_then(|it| it.parse().ok());
    let Some(address) = address else {
        eprintln!("usage: ex14 ADDRESS");
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

/// A client that half-closes is answered.
fn test(server: SocketAddr) -> Result<(), String> {
    let heard = converse(server).map_err(|error| format!("a client was not answered: {error}"))?;
    if heard == b"Odd\n" {
        return Ok(());
    }
    Err(format!("a client asked 7, half-closed, and heard \"{}\"", heard.escape_ascii()))
}

/// A whole conversation: a question, its answer, the half-close, and the end.
fn converse(server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut client = connect(server)?;
    client.write_all(b"7\n")?;
    let mut heard = vec![0; b"Odd\n".len()];
    client.read_exact(&mut heard)?;
    client.shutdown(Shutdown::Write)?; // That was all.
    client.read_to_end(&mut heard)?;
    Ok(heard)
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let client = TcpStream::connect_timeout(&server, ANSWER)?;
    client.set_read_timeout(Some(ANSWER))?;
    Ok(client)
}
