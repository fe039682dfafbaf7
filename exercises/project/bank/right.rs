//! What the bank's wrong servers are not wrong about: a thread a client, with a deadline for each request.
#![allow(dead_code, reason = "each server takes what it is not wrong about")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use crate::frame::Session;
use crate::mine;

/// Serves at the address of the command line, each client in a thread of its own.
pub fn run(converse: impl Fn(&TcpStream) -> io::Result<()> + Copy + Send + 'static) -> ExitCode {
    run_on(|client| drop(thread::Builder::new().spawn(move || converse(&client))))
}

/// The same for a server that has another idea of who serves whom.
pub fn run_on(mut serve: impl FnMut(TcpStream)) -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let Ok(listener) = TcpListener::bind(&address) else {
        eprintln!("bind({address}) failed");
        return ExitCode::FAILURE;
    };
    let Ok(address) = listener.local_addr() else { return ExitCode::FAILURE };
    println!("listening on {address}");
    loop {
        match listener.accept() {
            Ok((client, _)) => serve(client),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// When a client that begins now has had its time.
pub fn deadline() -> Instant {
    Instant::now() + Duration::from_millis(mine::patience_ms())
}

/// The right conversation.
pub fn converse(client: &TcpStream) -> io::Result<()> {
    let mut session = Session::default();
    let mut bytes = [0; 4096];
    let mut deadline = deadline();
    while !session.is_over() {
        let length = read_before(deadline, client, &mut bytes)?;
        session.feed(&bytes[..length]);
        if send(client, &mut session)? {
            deadline = self::deadline();
        }
    }
    hang_up(client)
}

/// Sends what is to be sent: whether there was something.
pub fn send(mut client: &TcpStream, session: &mut Session) -> io::Result<bool> {
    let length = session.unsent().len();
    client.write_all(session.unsent())?;
    session.sent(length);
    Ok(length > 0)
}

/// One read that waits no longer than until `deadline`.
pub fn read_before(
    deadline: Instant,
    mut client: &TcpStream,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    client.set_read_timeout(Some(left))?;
    client.read(bytes)
}

/// Says that no more will come, and takes what has come.
pub fn hang_up(mut client: &TcpStream) -> io::Result<()> {
    client.shutdown(Shutdown::Write)?;
    client.set_nonblocking(true)?;
    let mut bytes = [0; 4096];
    (0..16).all(|_| matches!(client.read(&mut bytes), Ok(1..)));
    Ok(())
}
