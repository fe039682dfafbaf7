//! Exercise 15: a test that is content with a server that forgets clients.
//!
//! `ex15 ADDRESS` is a client of the server at ADDRESS: status 0 if it keeps its promise, and a sentence on
//! stderr and status 1 if it does not. It ends within 10 s.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

/// How many clients there are: a crowd.
const CLIENTS: usize = 300;

/// How long an answer may take, on a busy machine too.
const ANSWER: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    let address = std::env::args().nth(1).and_then(|it| it.parse().ok());
    let Some(address) = address else {
        eprintln!("usage: ex15 ADDRESS");
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

/// A crowd comes, and everybody is answered.
fn test(server: SocketAddr) -> Result<(), String> {
    for number in 1..=CLIENTS {
        let heard = connect(server).and_then(|mut client| {
            client.write_all(b"7\n")?;
            hear(&mut client)
        });
        expect(number, heard)?;
    }
    Ok(())
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&server, ANSWER)
}

/// All that the server says, to the end of the stream.
fn hear(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    client.set_read_timeout(Some(ANSWER))?;
    client.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn expect(number: usize, heard: io::Result<Vec<u8>>) -> Result<(), String> {
    match heard {
        Ok(bytes) if bytes == b"Odd\n" => Ok(()),
        Ok(bytes) => {
            let said = bytes.escape_ascii();
            Err(format!("client {number} of {CLIENTS} asked 7 and heard \"{said}\""))
        }
        Err(error) => Err(format!("client {number} of {CLIENTS} was not answered: {error}")),
    }
}
