//! Misconception: a client says its line, and then half-closes; that is what the test has to do.
//!
//! A line that ends with its newline is answered by a server that has never heard of half-closes. The
//! half-close comes too late to matter: it has to be the end of the line.
//!
//! Killed by: wrong-takes-half-close-for-gone (passes)
//! In other rows, timing decides whether it is seen.
//! Hint: Your client says a newline and then half-closes. Which of the two is it that the server answers?

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

/// A line, the half-close, and the answer.
fn converse(server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut client = connect(server)?;
    client.write_all(b"7\n")?;
    client.shutdown(Shutdown::Write)?;
    let mut heard = Vec::new();
    client.read_to_end(&mut heard)?;
    Ok(heard)
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let client = TcpStream::connect_timeout(&server, ANSWER)?;
    client.set_read_timeout(Some(ANSWER))?;
    Ok(client)
}
