//! Clients that cost and do not ask: idle ones, and such as drip.

use anyhow::Result;
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// How long a connection may take to come in, or to be answered, before it counts as one that did not.
const PATIENCE: Duration = Duration::from_millis(250);

/// After so many that did not, the others need not try: the queue or the pool is full.
const VAIN_MAX: usize = 4;

/// A byte each half second: each comes before any patience with silence has run out.
const DRIP: Duration = Duration::from_millis(500);

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: arena\r\n\r\n";

/// Connections that have been answered once, if the server did, and say nothing since.
#[derive(Debug, Default)]
pub struct Idle {
    connections: Vec<TcpStream>,
    /// How many have been answered.
    pub answered: usize,
}

impl Idle {
    /// Opens `count` of them, as far as the server takes them in.
    pub fn open(server: SocketAddr, count: usize) -> Idle {
        let mut idle = Idle::default();
        let (mut unanswered, mut refused) = (0, 0);
        while idle.connections.len() < count && refused < VAIN_MAX {
            let Ok(mut connection) = TcpStream::connect_timeout(&server, PATIENCE) else {
                refused += 1;
                continue;
            };
            if unanswered < VAIN_MAX {
                match ask(&mut connection) {
                    Ok(()) => idle.answered += 1,
                    Err(_) => unanswered += 1,
                }
            }
            idle.connections.push(connection);
        }
        idle
    }

    /// How many there are, answered or not.
    pub fn len(&self) -> usize {
        self.connections.len()
    }
}

fn ask(connection: &mut TcpStream) -> std::io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(REQUEST)?;
    let mut answer = [0; 1024];
    match connection.read(&mut answer)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(()), // These answers are short: they come in one piece on loopback.
    }
}

/// Clients that send one byte of a head after the other, and come again when they are let go.
#[derive(Debug)]
pub struct Drip {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drip {
    /// `count` of them, until this is dropped.
    ///
    /// # Errors
    /// If there is no thread for them.
    pub fn start(server: SocketAddr, count: usize) -> Result<Drip> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("drip".into()).spawn({
            let stop = Arc::clone(&stop);
            move || drip(server, count, &stop)
        })?;
        Ok(Drip { stop, thread: Some(thread) })
    }
}

impl Drop for Drip {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn drip(server: SocketAddr, count: usize, stop: &AtomicBool) {
    let mut clients: Vec<Option<(TcpStream, usize)>> = (0..count).map(|_| None).collect();
    while !stop.load(Ordering::Relaxed) {
        for client in &mut clients {
            let (connection, sent) = match client {
                Some(client) => client,
                // Whoever does not get in now tries again with the next drop.
                None => match TcpStream::connect_timeout(&server, PATIENCE) {
                    Ok(connection) => client.insert((connection, 0)),
                    Err(_) => continue,
                },
            };
            // Never the last byte: the request does not end.
            let at = (*sent).min(REQUEST.len() - 3);
            *sent += 1;
            let byte = if at == REQUEST.len() - 3 { b"x" } else { &REQUEST[at..=at] };
            let is_open = connection.write_all(byte).is_ok() && is_open(connection);
            if !is_open {
                *client = None;
            }
        }
        thread::park_timeout(DRIP);
    }
}

/// Whether the server has not let go of it: nothing has come, neither an answer nor the end.
fn is_open(connection: &TcpStream) -> bool {
    let _ = connection.set_nonblocking(true);
    let nothing = connection.peek(&mut [0]).map_err(|it| it.kind());
    let _ = connection.set_nonblocking(false);
    nothing == Err(ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_is_answered_is_counted_and_all_are_held() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let mut held = Vec::new();
            for _ in 0..3 {
                let (mut client, _) = listener.accept().unwrap();
                let mut bytes = [0; 256];
                let length = client.read(&mut bytes).unwrap();
                assert_eq!(&bytes[..length], REQUEST);
                if held.len() < 2 {
                    client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                }
                held.push(client);
            }
            held
        });
        let idle = Idle::open(address, 3);
        assert_eq!((idle.len(), idle.answered), (3, 2));
        server.join().unwrap();
    }

    #[test]
    fn a_client_that_drips_comes_again_when_it_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let drip = Drip::start(listener.local_addr().unwrap(), 1).unwrap();
        for _ in 0..2 {
            let (mut client, _) = listener.accept().unwrap();
            let mut bytes = [0; 1];
            assert_eq!(client.read(&mut bytes).unwrap(), 1);
            assert_eq!(&bytes, b"G");
        }
        drop(drip);
    }
}
