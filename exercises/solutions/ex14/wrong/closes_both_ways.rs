//! Misconception: `shutdown` ends the sending; how much it ends besides makes no difference.
//!
//! With `Shutdown::Both` the client has stopped listening as well: it hears the end at once, whatever the server
//! says. That is no half-close.
//!
//! Killed by: ch04 (fails)
//! Breaks too: ch01 (fails)
//! Breaks too: ch05 (fails)
//! Breaks too: wrong-renews-its-patience (fails)
//! Hint: Your test refuses every server. Which half does your client close, and can it still hear an answer then?

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

/// Half a line, the half-close, and the answer.
fn converse(server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut client = connect(server)?;
    client.write_all(b"7")?;
    client.shutdown(Shutdown::Both)?;
    let mut heard = Vec::new();
    client.read_to_end(&mut heard)?;
    Ok(heard)
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let client = TcpStream::connect_timeout(&server, ANSWER)?;
    client.set_read_timeout(Some(ANSWER))?;
    Ok(client)
}
