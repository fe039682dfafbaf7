//! Exercise 14, solved: the half-close is the end of the line, and the answer comes after it.
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

/// What a client says before it half-closes, and what it has to hear. None of them says a newline: who takes
/// the half-close for a farewell has nothing to answer.
const CASES: [(&[u8], &[u8]); 3] = [
    (b"7", b"Odd\n"),
    (b"100", b"Even\n"),
    (b"", b""), // Nothing was asked: the end, and no answer.
];

/// A client that has said all that it will say is answered.
fn test(server: SocketAddr) -> Result<(), String> {
    for (said, expected) in CASES {
        let words = said.escape_ascii();
        match converse(server, said) {
            Ok(heard) if heard == expected => {}
            Ok(heard) => {
                let heard = heard.escape_ascii();
                return Err(format!("a client said \"{words}\", half-closed, heard \"{heard}\""));
            }
            Err(error) => {
                return Err(format!("a client said \"{words}\" and half-closed: {error}"));
            }
        }
    }
    Ok(())
}

/// Says something, half-closes, and listens to the end.
fn converse(server: SocketAddr, said: &[u8]) -> io::Result<Vec<u8>> {
    let mut client = connect(server)?;
    client.write_all(said)?;
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
