//! Chapter 04 on mio: the same server, where mio makes the epoll calls.
//!
//! mio is edge-triggered: it tells once that something has become ready. What this server leaves
//! undone, it has to remember: a listener that was not drained gets no second event.
//!
//! The sockets stay our own (`SourceFd`), so that the waiting is all that differs.

#[path = "../command_line.rs"]
mod command_line;
#[path = "../socket.rs"]
mod socket;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::errno::Errno;
use oddeven::{LINE_BYTES_MAX, Session};
use socket::{MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};

const BACKLOG: i32 = 4096;
const DISCARDS_MAX: usize = 16;
const EVENTS_MAX: usize = 256;
const LISTENER: Token = Token(0);

/// How long a client may take for its whole request and answer, from its accept.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long nobody is accepted at most for want of a descriptor: it may be somebody else's to free.
const PAUSE: Duration = Duration::from_millis(250);

/// How many clients are taken in before those who are already in have their turn again.
const ACCEPTS_MAX: usize = 1024;

/// A client, and how far its request and answer have come.
struct Client {
    socket: OwnedFd,
    session: Session,
}

fn main() -> ExitCode {
    command_line::run([], |address, []| {
        let listener = listen(address)?;
        command_line::announce(&listener)?;
        serve(&listener)
    })
}

fn listen(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let refused = |call, errno| command_line::refused(call, address, errno);
    let name = socket::SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket::socket(family, SockType::Stream, flags, None)
        .map_err(|errno| refused("socket", errno))?;
    socket::setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt(SO_REUSEADDR)")?;
    if address.is_ipv6() {
        socket::setsockopt(&listener, sockopt::Ipv6V6Only, &false)
            .context("setsockopt(IPV6_V6ONLY)")?;
    }
    socket::bind(listener.as_raw_fd(), &name).map_err(|errno| refused("bind", errno))?;
    let backlog = socket::Backlog::new(BACKLOG).context("a backlog beyond SOMAXCONN")?;
    socket::listen(&listener, backlog).map_err(|errno| refused("listen", errno))?;
    Ok(listener)
}

fn serve(listener: &OwnedFd) -> anyhow::Result<()> {
    let mut poll = Poll::new().context("mio::Poll::new")?;
    watch(&poll, listener, LISTENER).context("mio: register the listener")?;
    let mut clients = HashMap::new();
    let mut token_last = LISTENER;
    // Every client has the same patience, so that the queue is in order without being sorted.
    let mut deadlines: VecDeque<(Instant, Token)> = VecDeque::new();
    let mut pause: Option<Pause> = None;
    let mut events = Events::with_capacity(EVENTS_MAX);
    loop {
        let deadline = deadlines.front().map(|&(deadline, _)| deadline);
        let wake_at = deadline.into_iter().chain(pause.as_ref().map(|it| it.until)).min();
        let timeout = wake_at.map(|at| at.saturating_duration_since(Instant::now()));
        match poll.poll(&mut events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            polled => polled.context("mio::Poll::poll")?,
        }
        let mut acceptable = false;
        for event in &events {
            let token = event.token();
            if token == LISTENER {
                acceptable = true;
            // An event without a client is one of this batch for a client that is already gone.
            } else if let Some(client) = clients.get_mut(&token)
                && converse(client) != Err(Errno::EAGAIN)
            {
                clients.remove(&token);
            }
        }
        let now = Instant::now();
        while let Some(&(deadline, token)) = deadlines.front()
            && (deadline <= now || !clients.contains_key(&token))
        {
            deadlines.pop_front();
            clients.remove(&token);
        }
        // No event will say that there is a descriptor again, or that the queue was left half full.
        if pause.take_if(|it| it.until <= now || it.clients > clients.len()).is_some() {
            acceptable = true;
        }
        if acceptable {
            let (sockets, more) = accept(listener)?;
            for socket in sockets {
                token_last.0 += 1;
                if watch(&poll, &socket, token_last).is_ok() {
                    clients.insert(token_last, Client { socket, session: Session::new() });
                    deadlines.push_back((Instant::now() + PATIENCE, token_last));
                }
            }
            pause = match more {
                More::Later => None,
                More::AtOnce => Some(Pause { until: now, clients: clients.len() }),
                More::NoDescriptor => Some(Pause { until: now + PAUSE, clients: clients.len() }),
            };
        }
    }
}

/// Registered once for both directions: with edges there is nothing to switch on and off.
fn watch(poll: &Poll, socket: &OwnedFd, token: Token) -> io::Result<()> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), token, interest)
}

/// Why no more clients were accepted.
#[derive(PartialEq, Eq)]
enum More {
    /// Nobody is left in the queue: the listener says when there are more.
    Later,
    /// Enough were taken, and nothing will say that there are more.
    AtOnce,
    /// `accept` says so before it looks at the queue, so that a server at its limit never sees EAGAIN.
    NoDescriptor,
}

/// The time during which nobody is accepted: until then, or until one of them leaves.
struct Pause {
    until: Instant,
    clients: usize,
}

/// Everybody who waits to be accepted, up to [`ACCEPTS_MAX`].
fn accept(listener: &OwnedFd) -> anyhow::Result<(Vec<OwnedFd>, More)> {
    let mut sockets = Vec::new();
    for _ in 0..ACCEPTS_MAX {
        match socket::accept4(listener, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
            Ok(client) => sockets.push(client),
            Err(Errno::EAGAIN) => return Ok((sockets, More::Later)),
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                return Ok((sockets, More::NoDescriptor));
            }
            Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
                return Err(errno).context("accept4");
            }
            // One client went away, or a signal came: the next one may be there.
            Err(_) => continue,
        }
    }
    Ok((sockets, More::AtOnce))
}

/// Reads and answers as far as that goes without waiting: EAGAIN means "not yet".
fn converse(Client { socket, session }: &mut Client) -> nix::Result<()> {
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while !session.is_done() {
        if session.unsent().is_empty() {
            let length =
                uninterrupted(|| socket::recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty()))?;
            session.feed(&bytes[..length]);
        } else {
            let length = uninterrupted(|| {
                socket::send(socket.as_raw_fd(), session.unsent(), MsgFlags::MSG_NOSIGNAL)
            })?;
            session.sent(length);
        }
    }
    hang_up(socket);
    Ok(())
}

fn hang_up(client: &OwnedFd) {
    let _ = socket::shutdown(client.as_raw_fd(), Shutdown::Write);
    let mut bytes = [0; 4096];
    let mut discard = || socket::recv(client.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT);
    (0..DISCARDS_MAX).all(|_| matches!(discard(), Ok(1..)));
}

/// Makes a call again for as long as a signal interrupts it: the edge
/// has been told, and will not be told again.
fn uninterrupted<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => continue,
            result => return result,
        }
    }
}
