//! Misconception: a server that closes in good order has answered.
//!
//! A server that takes the client for gone closes, too, and in the same order. Only the bytes before the end tell
//! the two apart.
//!
//! Killed by: wrong-takes-half-close-for-gone (passes)
//! In other rows, timing decides whether it is seen.
//! Hint: You wait for the end of the stream and are content. What came before it, and what has to?

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
    converse(server).map_err(|error| format!("a client was not answered: {error}"))?;
    Ok(())
}

/// Half a line, the half-close, and the end.
fn converse(server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut client = connect(server)?;
    client.write_all(b"7")?;
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
