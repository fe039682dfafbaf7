//! Chapter 05: one reactor per core.
//!
//! Chapter 04's loop, once for each core, each with its own listener on the same address, epoll and
//! clients: nothing is shared. A stop takes in whoever waits and finishes what is begun.

mod command_line;
mod cores;
mod group;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{self, MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};
use oddeven::{LINE_BYTES_MAX, Session};

// ANCHOR: constants
const BACKLOG: i32 = 4096;
const DISCARDS_MAX: usize = 16;
const EVENTS_MAX: usize = 256;
const LISTENER: u64 = 0;
const STOP: u64 = 1;

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

// ANCHOR: main
fn main() -> ExitCode {
    command_line::run(["--reactors"], |address, [reactors]| {
        let cores = cores::allowed()?;
        let reactors = reactors.unwrap_or(cores.len());
        let elders = group::Elders::on(address);
        elders.sentence().into_iter().for_each(command_line::say);
        let first = listen(address)?;
        let address = command_line::bound(&first)?; // After port 0, the others need to know.
        let mut listeners = vec![first.try_clone().context("dup")?];
        (1..reactors).try_for_each(|_| listen(address).map(|it| listeners.push(it)))?;
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        signals.thread_block().context("sigprocmask")?; // For the reactors too, which inherit it.
        let stop = &EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("eventfd")?;
        let ready = &Barrier::new(2);
        thread::scope(|scope| {
            for (listener, core) in listeners.into_iter().zip(cores.into_iter().cycle()) {
                scope.spawn(move || run(listener, core, stop, ready));
                ready.wait(); // What it says of itself is true: all of it is there.
            }
            command_line::announce(&first)?;
            signals.wait().context("sigwait")?;
            signals.thread_unblock().context("sigprocmask")?; // A second signal ends us at once.
            group::leave(&first, reactors, &elders)?;
            drop(first); // Only the reactor's own descriptor of it is left, to be closed by it.
            stop.write(1).context("write(eventfd)").map(drop)
        })
    })
}

/// One reactor, to its end. If it cannot go on, the others must not go on without it.
fn run(listener: OwnedFd, core: usize, stop: &EventFd, ready: &Barrier) {
    cores::pin(core);
    if let Err(error) = serve(listener, stop, ready) {
        command_line::say(format_args!("a reactor: {error:#}"));
        std::process::exit(1);
    }
}
// ANCHOR_END: main

fn listen(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let refused = |call, errno| command_line::refused(call, address, errno);
    let name = socket::SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket::socket(family, SockType::Stream, flags, None)
        .map_err(|errno| refused("socket", errno))?;
    socket::setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt(SO_REUSEADDR)")?;
    // Each listener of the address has to ask for it, and all have to be of one user.
    socket::setsockopt(&listener, sockopt::ReusePort, &true).context("setsockopt(SO_REUSEPORT)")?;
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
fn serve(listener: OwnedFd, stop: &EventFd, ready: &Barrier) -> anyhow::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
    epoll.add(&listener, readable(LISTENER)).context("epoll_ctl(ADD, listener)")?;
    epoll.add(stop, readable(STOP)).context("epoll_ctl(ADD, stop)")?;
    ready.wait();
    // None when this reactor takes in nobody any more; then it ends with its last client.
    let (mut open, mut nobody_left, mut in_vain) = (Some(listener), 0, 0);
    let (mut clients, mut token_last) = (HashMap::new(), STOP);
    // Every client has the same patience, so that the queue is in order without being sorted.
    let mut deadlines: VecDeque<(Instant, u64)> = VecDeque::new();
    let mut pause: Option<Pause> = None;
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    while open.is_some() || !clients.is_empty() {
        let deadline = deadlines.front().map(|&(deadline, _)| deadline);
        let wake_at = deadline.into_iter().chain(pause.as_ref().map(|it| it.until)).min();
        let ready = match epoll.wait(&mut events, timeout(wake_at)) {
            Err(Errno::EINTR) => continue,
            ready => ready.context("epoll_wait")?,
        };
        for event in &events[..ready] {
            let token = event.data();
            if let Some(listener) = &open
                && (token == LISTENER || token == STOP)
            {
                let (sockets, more) = accept(listener)?;
                // Nobody reads the stop: each wait tells of it, until the queue was empty twice (the second
                // look finds who was in a handshake), or others kept all descriptors for a patience.
                let (is_stop, is_full) = (token == STOP, more == More::NoDescriptor);
                nobody_left += usize::from(is_stop && !is_full && sockets.is_empty());
                for socket in sockets {
                    token_last += 1;
                    if epoll.add(&socket, readable(token_last)).is_ok() {
                        clients.insert(token_last, Client { socket, session: Session::new() });
                        deadlines.push_back((Instant::now() + PATIENCE, token_last));
                    }
                }
                in_vain = u32::from(is_full && clients.is_empty()) * (in_vain + u32::from(is_stop));
                if nobody_left == 2 || PAUSE * in_vain > PATIENCE {
                    epoll.delete(stop).context("epoll_ctl(DEL, stop)")?;
                    open = None;
                } else if is_full {
                    pause = Some(Pause { until: Instant::now() + PAUSE, clients: clients.len() });
                    watch(&epoll, listener, stop, EpollFlags::empty()).context("epoll_ctl(MOD)")?;
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
        if let Some(listener) = &open
            && pause.take_if(|it| it.until <= now || it.clients > clients.len()).is_some()
        {
            watch(&epoll, listener, stop, EpollFlags::EPOLLIN).context("epoll_ctl(MOD)")?;
        }
    }
    Ok(())
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

fn watch(epoll: &Epoll, listener: &OwnedFd, stop: &EventFd, what: EpollFlags) -> nix::Result<()> {
    epoll.modify(listener, &mut EpollEvent::new(what, LISTENER))?;
    epoll.modify(stop, &mut EpollEvent::new(what, STOP))
}

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
