//! Misconception: fifty clients at once are a burst.
//!
//! The server takes in up to eighty at a time. Nobody is left over, and it seems to forget nobody.
//!
//! Killed by: wrong-accepts-some-an-edge (passes)
//! Hint: Your burst is smaller than what the wrong server takes in at a time, or it has time to keep up. How many have to be in its queue at once for one to be left over?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(4);
const CLIENTS: usize = 50;

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
    burst.iter_mut().try_for_each(hear)
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
