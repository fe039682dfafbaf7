//! Misconception: whether the server is alive has to be asked now and then, while the others wait.
//!
//! Each of these questions is a client that connects, and each connect makes the listener speak up.
//! Under its watch nobody stays forgotten.
//!
//! Killed by: wrong-accepts-some-an-edge (passes)
//! Hint: Somebody connects while you wait for the burst to be answered. What would happen to the forgotten ones if nobody did?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(4);
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
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(TcpStream::connect_timeout(&server, ANSWER)); // It listens still.
                thread::sleep(Duration::from_millis(50));
            }
        });
        let heard = burst.iter_mut().try_for_each(hear);
        is_over.store(true, Ordering::Relaxed);
        heard
    })
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
