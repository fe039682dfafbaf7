//! Misconception: a client that is not answered tries again, as clients do.
//!
//! It does so by a new connection, which is the event that the server lacked: the second attempt, or the
//! third, saves those who came before it, and the test hides what it is to find.
//!
//! Killed by: wrong-accepts-some-an-edge (passes)
//! Hint: You connect again when an answer does not come. What does the listener report then, and who is served by it?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 8;
const CLIENTS: usize = 300;

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
    for client in &mut burst {
        let mut heard = hear(client);
        for _ in 1..ATTEMPTS {
            if heard.is_err() {
                heard = connect_and_ask(server).and_then(|mut again| hear(&mut again));
            }
        }
        heard?;
    }
    Ok(())
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
