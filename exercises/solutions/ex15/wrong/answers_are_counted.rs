//! Misconception: nearly all is good enough: a burst may cost one or two.
//!
//! A promise about everybody is broken by one. And how many are forgotten depends on how far the server is
//! behind when the last one comes, which is not the test's to choose.
//!
//! Killed by: wrong-accepts-some-an-edge (passes)
//! Hint: You count the answers and are content with a part of them. Whose answer may be missing?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(1);
const CLIENTS: usize = 85;
const ENOUGH: usize = 80;

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1).and_then(|it| it.parse().ok()) else {
        eprintln!("usage: ex15 ADDRESS");
        return ExitCode::from(2);
    };
    match test(address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn test(server: SocketAddr) -> io::Result<()> {
    let burst = (0..CLIENTS).map(|_| connect_and_ask(server));
    let mut burst: Vec<TcpStream> = burst.collect::<io::Result<_>>()?;
    let answered = burst.iter_mut().filter_map(|it| hear(it).ok()).count();
    if answered >= ENOUGH { Ok(()) } else { Err(io::Error::other("too few answers")) }
}

fn connect_and_ask(server: SocketAddr) -> io::Result<TcpStream> {
    let mut client = TcpStream::connect_timeout(&server, ANSWER)?;
    client.write_all(b"7\n")?;
    Ok(client)
}

fn hear(client: &mut TcpStream) -> io::Result<()> {
    let mut bytes = Vec::new();
    client.set_read_timeout(Some(ANSWER))?;
    client.read_to_end(&mut bytes)?;
    if bytes == b"Odd\n" { Ok(()) } else { Err(io::Error::other("a wrong answer")) }
}
