//! What a wrong server is not wrong about, so that its own file shows little beside its misconception.
//!
//! Two right halves to put a wrong one beside: [`thread_each`] and [`converse`] for a thread a client,
//! [`Client`] and [`wait`] for one thread and epoll. Sockets are `std::net`'s here: these servers need
//! not show a system call, only what a program thinks of it.
#![allow(dead_code, reason = "each server takes what it is not wrong about")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{self, SockFlag, SockType, SockaddrLike, SockaddrStorage, sockopt};
use oddeven::{LINE_BYTES_MAX, Session};

/// How long a client may take for its whole request and answer.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How many clients wait to be accepted, where that is not the misconception.
pub const BACKLOG: i32 = 4096;

/// How long nobody is accepted when there is no descriptor.
///
/// Simplified: it is slept, so that a server with one thread keeps everybody waiting for as long.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves at the address of the command line, as every chapter's program does.
pub fn run(serve: impl FnOnce(TcpListener) -> anyhow::Result<()>) -> ExitCode {
    run_on(|address| listen(address, BACKLOG, true), serve)
}

/// The same for a server whose misconception is about listening.
pub fn run_on(
    listen: impl FnOnce(SocketAddr) -> anyhow::Result<TcpListener>,
    serve: impl FnOnce(TcpListener) -> anyhow::Result<()>,
) -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let Ok(address) = argument.parse() else {
        eprintln!("{argument:?} is not an IP address and a port");
        return ExitCode::from(2);
    };
    let served = listen(address).and_then(|listener| {
        println!("listening on {}", listener.local_addr().context("getsockname")?);
        serve(listener)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A socket at `address` to which clients can connect, beside those of other processes.
pub fn listen_shared(address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen_with(address, BACKLOG, true, true)
}

/// A socket at `address` to which clients can connect.
pub fn listen(address: SocketAddr, backlog: i32, reuse: bool) -> anyhow::Result<TcpListener> {
    listen_with(address, backlog, reuse, false)
}

fn listen_with(
    address: SocketAddr,
    backlog: i32,
    reuse: bool,
    share: bool,
) -> anyhow::Result<TcpListener> {
    let name = SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    let listener =
        socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).context("socket")?;
    socket::setsockopt(&listener, sockopt::ReuseAddr, &reuse).context("setsockopt")?;
    socket::setsockopt(&listener, sockopt::ReusePort, &share).context("setsockopt")?;
    socket::bind(listener.as_raw_fd(), &name).with_context(|| format!("bind({address})"))?;
    socket::listen(&listener, socket::Backlog::new(backlog)?).context("listen")?;
    Ok(listener.into())
}

/// Gives every client a thread of its own, for ever.
pub fn thread_each(
    listener: &TcpListener,
    converse: impl Fn(&TcpStream) -> io::Result<()> + Copy + Send + 'static,
) -> anyhow::Result<()> {
    loop {
        match listener.accept() {
            // Where no thread can be had, the client is dropped with what was to run there.
            Ok((client, _)) => drop(thread::Builder::new().spawn(move || converse(&client))),
            Err(error) => survive(error)?,
        }
    }
}

/// Serves one client after the other, in one thread.
pub fn one_by_one(
    listener: &TcpListener,
    converse: impl Fn(&TcpStream) -> io::Result<()>,
) -> anyhow::Result<()> {
    loop {
        match listener.accept() {
            // A client that fails has failed alone.
            Ok((client, _)) => drop(converse(&client)),
            Err(error) => survive(error)?,
        }
    }
}

/// What to do about an `accept` that failed: nothing, or wait a little, or give up.
pub fn survive(error: io::Error) -> anyhow::Result<()> {
    match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
        Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK => {
            return Err(error).context("accept4");
        }
        Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM => thread::sleep(PAUSE),
        _ => {}
    }
    Ok(())
}

/// Reads until the request is complete, and answers it: the right way, in a thread of its own.
pub fn converse(client: &TcpStream) -> io::Result<()> {
    converse_until(client, Instant::now() + PATIENCE)
}

/// The same with another idea of when the client has had its time.
pub fn converse_until(client: &TcpStream, deadline: Instant) -> io::Result<()> {
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() && !session.is_done() {
        let length = read_before(deadline, client, &mut bytes)?;
        session.feed(&bytes[..length]);
    }
    answer(client, session.unsent())
}

/// Reads until the request is complete, for as long as that takes.
pub fn request(mut client: &TcpStream) -> io::Result<Session> {
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() && !session.is_done() {
        let length = client.read(&mut bytes)?;
        session.feed(&bytes[..length]);
    }
    Ok(session)
}

/// One `recv` that waits no longer than until `deadline`, whatever interrupts it.
pub fn read_before(
    deadline: Instant,
    mut client: &TcpStream,
    bytes: &mut [u8],
) -> io::Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => return result,
        }
    }
}

/// Sends all of `answer`, and hangs up.
pub fn answer(mut client: &TcpStream, answer: &[u8]) -> io::Result<()> {
    client.write_all(answer)?;
    hang_up(client)
}

/// Says that no more will come, and takes what has come: a close with unread bytes is a reset.
pub fn hang_up(mut client: &TcpStream) -> io::Result<()> {
    client.shutdown(Shutdown::Write)?;
    client.set_nonblocking(true)?;
    let mut bytes = [0; 4096];
    (0..16).all(|_| matches!(client.read(&mut bytes), Ok(1..)));
    Ok(())
}

/// A client of a server with one thread: its descriptor does not block.
pub struct Client {
    pub socket: TcpStream,
    pub session: Session,
    pub deadline: Instant,
}

/// Level-triggered interest in bytes to read.
pub fn readable(token: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, token)
}

impl Client {
    /// The next client, or `None` when nobody is there or nobody can be let in.
    pub fn accept(listener: &TcpListener) -> anyhow::Result<Option<Client>> {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(true).context("ioctl(FIONBIO)")?;
                let (session, deadline) = (Session::new(), Instant::now() + PATIENCE);
                Ok(Some(Client { socket, session, deadline }))
            }
            Err(error) => survive(error).map(|()| None),
        }
    }

    /// Reads and answers as far as that goes without waiting: whether it has to go on later.
    pub fn advance(&mut self) -> bool {
        advance(&self.socket, &mut self.session)
    }

    /// The same, and `epoll` is asked to say when an answer can go on.
    pub fn serve(&mut self, epoll: &Epoll, token: u64) -> bool {
        serve(epoll, token, &self.socket, &mut self.session)
    }
}

/// [`Client::serve`] for a server that keeps the state of its clients elsewhere.
pub fn serve(epoll: &Epoll, token: u64, socket: &TcpStream, session: &mut Session) -> bool {
    let goes_on = advance(socket, session);
    if goes_on && !session.unsent().is_empty() {
        let mut writable = EpollEvent::new(EpollFlags::EPOLLOUT, token);
        return epoll.modify(socket, &mut writable).is_ok();
    }
    goes_on
}

fn advance(mut socket: &TcpStream, session: &mut Session) -> bool {
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while !session.is_done() {
        let result = if session.unsent().is_empty() {
            socket.read(&mut bytes).map(|length| session.feed(&bytes[..length]))
        } else {
            socket.write(session.unsent()).map(|length| session.sent(length))
        };
        match result {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    // Whatever goes wrong here, the client has had its answer.
    let _ = hang_up(socket);
    false
}

/// Sleeps until some descriptor is ready or `deadline` has come: how many events there are.
pub fn wait(
    epoll: &Epoll,
    events: &mut [EpollEvent],
    deadline: Option<Instant>,
) -> anyhow::Result<usize> {
    match epoll.wait(events, timeout(deadline)) {
        Err(Errno::EINTR) => Ok(0),
        ready => ready.context("epoll_wait"),
    }
}

/// The time until `deadline` in milliseconds, rounded up so that it has come.
pub fn timeout(deadline: Option<Instant>) -> EpollTimeout {
    let Some(deadline) = deadline else { return EpollTimeout::NONE };
    let left = deadline.saturating_duration_since(Instant::now());
    EpollTimeout::from(u16::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u16::MAX))
}
