//! Exercise 15, solved: a burst comes, and nobody after it.
//!
//! `ex15 ADDRESS` is a client of the server at ADDRESS: status 0 if it keeps its promise, and a sentence on
//! stderr and status 1 if it does not. It ends within 10 s.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// How many threads the clients come from. The machine deals its cores out by threads: to four of ours it
/// gives more turns than to a server with one, also while others want the cores.
const THREADS: usize = 4;

/// How many clients come from each: together several times as many as any server takes in at a time.
const CLIENTS_EACH: usize = 60;

/// How many clients come at once.
const CLIENTS: usize = THREADS * CLIENTS_EACH;

/// How many bursts there are. How far a server is behind when the last of a burst has come is a matter of
/// luck, and a server that forgets nobody is through with all of them in a moment.
const BURSTS: usize = 6;

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

/// A burst comes, then nobody until everybody has been answered, then the next burst.
fn test(server: SocketAddr) -> Result<(), String> {
    (1..=BURSTS).try_for_each(|number| {
        burst(server).map_err(|sentence| format!("in burst {number}, {sentence}"))
    })
}

fn burst(server: SocketAddr) -> Result<(), String> {
    let start = Barrier::new(THREADS);
    let crowd = || {
        start.wait();
        (0..CLIENTS_EACH).map(|_| ask(server)).collect::<io::Result<Vec<_>>>()
    };
    let crowds: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(crowd)).collect();
        threads.into_iter().map(|it| it.join()).collect()
    });
    // From here on nobody comes: whoever has been forgotten stays so.
    let mut number = 0;
    for clients in crowds {
        let clients = clients.map_err(|_| "a thread of the test has ended".to_owned())?;
        for mut client in clients.map_err(|error| format!("a client did not get in: {error}"))? {
            number += 1;
            expect(number, hear(&mut client))?;
        }
    }
    Ok(())
}

/// A client that has asked, and has not heard yet.
fn ask(server: SocketAddr) -> io::Result<TcpStream> {
    let mut client = connect(server)?;
    client.write_all(b"7\n")?;
    Ok(client)
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
