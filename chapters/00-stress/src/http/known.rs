//! An HTTP server whose behaviour is known, inside of this process: the ruler by which the client is checked.
//!
//! A thread for each connection, and no parsing: a request is what ends with an empty line.

use crate::clock::now_ns;
use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// What the server does to each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers right, this long after it has turned to the request.
    Answer(Duration),
    /// Answers its first connection this long after each request, and everybody else at once.
    StarveOne(Duration),
    /// Answers at once, and once, this long after its first request, nobody is answered for a second.
    FreezeAfter(Duration),
    /// Answers with this status.
    Status(u16),
    /// Says with each answer that it will close, and does.
    CloseEach,
    /// Closes after so many answers, and does not say so before.
    CloseAfter(u64),
    /// Answers in two chunks.
    Chunked,
    /// Answers right, byte by byte.
    Bytewise,
    /// Says that the body has one byte more than it has.
    TooLong,
    /// Says that the body has one byte less than it has.
    TooShort,
    /// Answers with a line that is no HTTP.
    NoHttp,
    /// Closes without an answer.
    Close,
    /// Resets without an answer.
    Reset,
    /// Never answers.
    Never,
}

/// One request as the server saw it, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Which connection, in the order of their coming.
    pub connection: usize,
    /// When its answer was about to be sent: nobody can have it earlier.
    pub answered_ns: u64,
    /// How many whole requests of this connection were there by then and not answered, itself included.
    pub waiting: usize,
}

/// A server in threads of its own. It stops to listen when it is dropped; a connection ends when the client
/// closes it.
pub struct KnownServer {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    behaviour: Behaviour,
    log: Mutex<Vec<Served>>,
    stop: AtomicBool,
    frozen: AtomicBool,
    /// Who answers reads it; who freezes writes.
    freezer: RwLock<()>,
}

impl KnownServer {
    /// Starts to listen on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If a system call fails, such as for want of descriptors.
    pub fn start(behaviour: Behaviour) -> Result<KnownServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind to 127.0.0.1")?;
        let address = listener.local_addr().context("getsockname")?;
        let shared = Arc::new(Shared {
            behaviour,
            log: Mutex::default(),
            stop: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            freezer: RwLock::new(()),
        });
        let own = shared.clone();
        let builder = thread::Builder::new().name("known-http".into());
        let thread = builder.spawn(move || own.accept(&listener)).context("clone: no thread")?;
        Ok(KnownServer { address, shared, thread: Some(thread) })
    }

    /// Every request that has been answered so far.
    pub fn log(&self) -> Vec<Served> {
        self.shared.log.lock().map(|log| log.clone()).unwrap_or_default()
    }
}

impl Drop for KnownServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Ends the wait in accept.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for (connection, stream) in listener.incoming().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let own = self.clone();
            let serve = move || own.serve(stream, connection);
            // A client whose thread cannot be made sees its connection closed.
            let _ = thread::Builder::new().stack_size(1 << 16).spawn(serve);
        }
    }

    /// Whatever ends the connection ends the thread.
    fn serve(&self, mut stream: TcpStream, connection: usize) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut requests = Vec::new();
        let mut answered = 0;
        loop {
            while end_of_request(&requests).is_none() {
                if read_some(&mut stream, &mut requests)? == 0 {
                    return Ok(());
                }
            }
            self.delay(connection);
            read_what_is_there(&mut stream, &mut requests)?;
            let waiting = requests.windows(4).filter(|window| window == b"\r\n\r\n").count();
            let served = Served { connection, answered_ns: now_ns(), waiting };
            if let Ok(mut log) = self.log.lock() {
                log.push(served);
            }
            let end = end_of_request(&requests).unwrap_or(requests.len());
            requests.drain(..end);
            answered += 1;
            if !self.answer(&mut stream, answered)? {
                stream.shutdown(Shutdown::Write)?;
                // Reads on to the client's end: input that nobody reads would reset the connection.
                while read_some(&mut stream, &mut requests)? > 0 {}
                return Ok(());
            }
        }
    }

    fn delay(&self, connection: usize) {
        match self.behaviour {
            Behaviour::Answer(delay) => thread::sleep(delay),
            Behaviour::StarveOne(delay) if connection == 0 => thread::sleep(delay),
            Behaviour::FreezeAfter(after) => {
                let first = self.log.lock().ok().and_then(|log| log.first().copied());
                let begin = first.map(|served| served.answered_ns + after.as_nanos() as u64);
                let due = begin.is_some_and(|at_ns| at_ns <= now_ns());
                if due && !self.frozen.swap(true, Ordering::Relaxed) {
                    let _everybody = self.freezer.write();
                    thread::sleep(Duration::from_secs(1));
                }
                drop(self.freezer.read());
            }
            _ => {}
        }
    }

    /// True if the connection goes on.
    fn answer(&self, stream: &mut TcpStream, answered: u64) -> io::Result<bool> {
        let plain = |status: u16, length: usize| {
            format!("HTTP/1.1 {status} Whatever\r\nContent-Length: {length}\r\n\r\nEven\n")
        };
        match self.behaviour {
            Behaviour::Status(status) => stream.write_all(plain(status, 5).as_bytes())?,
            Behaviour::TooLong => stream.write_all(plain(200, 6).as_bytes())?,
            Behaviour::TooShort => stream.write_all(plain(200, 4).as_bytes())?,
            Behaviour::NoHttp => stream.write_all(b"Even\n")?,
            Behaviour::Chunked => stream.write_all(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  3;x=y\r\nEve\r\n2\r\nn\n\r\n0\r\nTrailer: 1\r\n\r\n",
            )?,
            Behaviour::Bytewise => {
                for byte in plain(200, 5).as_bytes() {
                    stream.write_all(&[*byte])?;
                }
            }
            Behaviour::CloseEach => {
                let head =
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nEven\n";
                stream.write_all(head.as_bytes())?;
                return Ok(false);
            }
            Behaviour::CloseAfter(most) => {
                stream.write_all(plain(200, 5).as_bytes())?;
                return Ok(answered < most);
            }
            Behaviour::Close => return Ok(false),
            Behaviour::Reset => {
                let linger = libc::linger { l_onoff: 1, l_linger: 0 };
                setsockopt(stream, sockopt::Linger, &linger)?;
                return Err(ErrorKind::ConnectionReset.into()); // Ends the thread, and so the connection.
            }
            Behaviour::Never => {}
            Behaviour::Answer(_) | Behaviour::StarveOne(_) | Behaviour::FreezeAfter(_) => {
                stream.write_all(plain(200, 5).as_bytes())?;
            }
        }
        Ok(true)
    }
}

fn end_of_request(requests: &[u8]) -> Option<usize> {
    let start = requests.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(start + 4)
}

fn read_some(stream: &mut TcpStream, requests: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(count) => {
                requests.extend_from_slice(&buffer[..count]);
                return Ok(count);
            }
        }
    }
}

fn read_what_is_there(stream: &mut TcpStream, requests: &mut Vec<u8>) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let read = loop {
        match read_some(stream, requests) {
            Ok(0) => break Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    stream.set_nonblocking(false)?;
    read
}
