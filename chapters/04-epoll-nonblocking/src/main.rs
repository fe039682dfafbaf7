//! Chapter 04: nobody waits for anybody.
//!
//! Every descriptor is non-blocking, so that the only place where this server sleeps is `epoll_wait`.
//! A client that is slow costs its own state and nobody's time; a client that is too slow is let go;
//! a server without descriptors stops listening until it has one.

mod command_line;

#[cfg(not(target_os = "linux"))]
compile_error!("epoll is Linux's: use the dev container (.devcontainer/), or run --bin ch04-mio");

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{self, MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};
use oddeven::{LINE_BYTES_MAX, Session};

// ANCHOR: constants
const BACKLOG: i32 = 4096;
const DISCARDS_MAX: usize = 16;
const EVENTS_MAX: usize = 256;
const LISTENER: u64 = 0;

/// How long a client may take for its whole request and answer, from its accept.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long nobody is accepted at most for want of a descriptor: it may be somebody else's to free.
const PAUSE: Duration = Duration::from_millis(250);

/// How many clients are taken in before those who are already in have their turn again.
const ACCEPTS_MAX: usize = 1024;
// ANCHOR_END: constants

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

// ANCHOR: serve
fn serve(listener: &OwnedFd) -> anyhow::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
    epoll.add(listener, readable(LISTENER)).context("epoll_ctl(ADD, listener)")?;
    let mut clients = HashMap::new();
    let mut token_last = LISTENER;
    // Every client has the same patience, so that the queue is in order without being sorted.
    let mut deadlines: VecDeque<(Instant, u64)> = VecDeque::new();
    let mut pause: Option<Pause> = None;
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    loop {
        let deadline = deadlines.front().map(|&(deadline, _)| deadline);
        let wake_at = deadline.into_iter().chain(pause.as_ref().map(|it| it.until)).min();
        let ready = match epoll.wait(&mut events, timeout(wake_at)) {
            Err(Errno::EINTR) => continue,
            ready => ready.context("epoll_wait")?,
        };
        for event in &events[..ready] {
            let token = event.data();
            if token == LISTENER {
                let (sockets, more) = accept(listener)?;
                for socket in sockets {
                    token_last += 1;
                    if epoll.add(&socket, readable(token_last)).is_ok() {
                        clients.insert(token_last, Client { socket, session: Session::new() });
                        deadlines.push_back((Instant::now() + PATIENCE, token_last));
                    }
                }
                if more == More::NoDescriptor {
                    pause = Some(Pause { until: Instant::now() + PAUSE, clients: clients.len() });
                    let mut nothing = EpollEvent::new(EpollFlags::empty(), LISTENER);
                    epoll.modify(listener, &mut nothing).context("epoll_ctl(MOD, listener)")?;
                }
            // An event without a client is one of this batch for a client that is already gone.
            } else if let Some(client) = clients.get_mut(&token) {
                // Whatever it says (IN, OUT, RDHUP, HUP, ERR), the calls say it better.
                if !matches!(converse(client), Err(Errno::EAGAIN | Errno::EINTR)) {
                    clients.remove(&token);
                } else if !client.session.unsent().is_empty() {
                    let mut writable = EpollEvent::new(EpollFlags::EPOLLOUT, token);
                    epoll.modify(&client.socket, &mut writable).context("epoll_ctl(MOD)")?;
                }
            }
        }
        let now = Instant::now();
        while let Some(&(deadline, token)) = deadlines.front()
            && (deadline <= now || !clients.contains_key(&token))
        {
            deadlines.pop_front();
            clients.remove(&token);
        }
        if pause.as_ref().is_some_and(|it| it.until <= now || it.clients > clients.len()) {
            pause = None;
            epoll.modify(listener, &mut readable(LISTENER)).context("epoll_ctl(MOD, listener)")?;
        }
    }
}
// ANCHOR_END: serve

// ANCHOR: timeout
/// How long `epoll_wait` may sleep: until `wake_at`, in milliseconds, rounded up so that it has come.
fn timeout(wake_at: Option<Instant>) -> EpollTimeout {
    let Some(wake_at) = wake_at else { return EpollTimeout::NONE };
    let left = wake_at.saturating_duration_since(Instant::now());
    EpollTimeout::from(u16::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u16::MAX))
}
// ANCHOR_END: timeout

// ANCHOR: accept
/// Why no more clients were accepted.
#[derive(PartialEq, Eq)]
enum More {
    /// Nobody is left in the queue, or enough were taken: the listener says when there are more.
    Later,
    /// `accept` says so before it looks at the queue, so that a server at its limit never sees EAGAIN,
    /// and the listener stays ready: to watch it now would be to spin.
    NoDescriptor,
}

/// The time during which the listener is not watched: until then, or until one of them leaves.
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
            Err(Errno::EAGAIN) => break,
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
    Ok((sockets, More::Later))
}
// ANCHOR_END: accept

fn readable(token: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, token)
}

// ANCHOR: converse
/// Reads and answers as far as that goes without waiting: EAGAIN means "not yet".
fn converse(Client { socket, session }: &mut Client) -> nix::Result<()> {
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while !session.is_done() {
        if session.unsent().is_empty() {
            let length = socket::recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
            session.feed(&bytes[..length]);
        } else {
            let length =
                socket::send(socket.as_raw_fd(), session.unsent(), MsgFlags::MSG_NOSIGNAL)?;
            session.sent(length);
        }
    }
    hang_up(socket);
    Ok(())
}
// ANCHOR_END: converse

fn hang_up(client: &OwnedFd) {
    let _ = socket::shutdown(client.as_raw_fd(), Shutdown::Write);
    let mut bytes = [0; 4096];
    let mut discard = || socket::recv(client.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT);
    (0..DISCARDS_MAX).all(|_| matches!(discard(), Ok(1..)));
}
