//! Chapter 04 on polling: the same server, where the crate that smol stands on makes the epoll calls.
//!
//! polling reports an event once and then forgets the interest, unless it is asked for levels; this
//! server asks for levels, which on Linux is epoll as `main.rs` uses it.

#[path = "../command_line.rs"]
mod command_line;
#[path = "../socket.rs"]
mod socket;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use oddeven::{LINE_BYTES_MAX, Session};
use polling::{Event, Events, PollMode, Poller};
use socket::{MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};

const BACKLOG: i32 = 4096;
const DISCARDS_MAX: usize = 16;
const EVENTS_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
const LISTENER: usize = 0;

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
    let poller = Poller::new().context("polling::Poller::new")?;
    watch(&poller, listener, LISTENER).context("polling: add the listener")?;
    let mut clients: HashMap<usize, Client> = HashMap::new();
    let mut key_last = LISTENER;
    // Every client has the same patience, so that the queue is in order without being sorted.
    let mut deadlines: VecDeque<(Instant, usize)> = VecDeque::new();
    let mut pause: Option<Pause> = None;
    let mut events = Events::with_capacity(EVENTS_MAX);
    loop {
        let deadline = deadlines.front().map(|&(deadline, _)| deadline);
        let wake_at = deadline.into_iter().chain(pause.as_ref().map(|it| it.until)).min();
        let timeout = wake_at.map(|at| at.saturating_duration_since(Instant::now()));
        events.clear();
        match poller.wait(&mut events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            waited => waited.context("polling::Poller::wait")?,
        };
        for event in events.iter() {
            let key = event.key;
            if key == LISTENER {
                let (sockets, more) = accept(listener)?;
                for socket in sockets {
                    key_last += 1;
                    if watch(&poller, &socket, key_last).is_ok() {
                        clients.insert(key_last, Client { socket, session: Session::new() });
                        deadlines.push_back((Instant::now() + PATIENCE, key_last));
                    }
                }
                if more == More::NoDescriptor {
                    pause = Some(Pause { until: Instant::now() + PAUSE, clients: clients.len() });
                    rewatch(&poller, listener, Event::none(LISTENER))?;
                }
            // An event without a client is one of this batch for a client that is already gone.
            } else if let Some(client) = clients.get_mut(&key) {
                if !matches!(converse(client), Err(Errno::EAGAIN | Errno::EINTR)) {
                    forget(&poller, clients.remove(&key));
                } else if !client.session.unsent().is_empty() {
                    rewatch(&poller, &client.socket, Event::writable(key))?;
                }
            }
        }
        let now = Instant::now();
        while let Some(&(deadline, key)) = deadlines.front()
            && (deadline <= now || !clients.contains_key(&key))
        {
            deadlines.pop_front();
            forget(&poller, clients.remove(&key));
        }
        if pause.take_if(|it| it.until <= now || it.clients > clients.len()).is_some() {
            rewatch(&poller, listener, Event::readable(LISTENER))?;
        }
    }
}

#[expect(unsafe_code, reason = "polling keeps the descriptor, not the socket")]
fn watch(poller: &Poller, socket: &OwnedFd, key: usize) -> io::Result<()> {
    // SAFETY: the poller must not outlive its interest in a closed descriptor. A client is dropped by
    // `forget` alone, which deletes it first; the listener outlives the poller, a local of `serve`.
    unsafe { poller.add_with_mode(socket, Event::readable(key), PollMode::Level) }
}

fn rewatch(poller: &Poller, socket: &OwnedFd, event: Event) -> anyhow::Result<()> {
    poller.modify_with_mode(socket, event, PollMode::Level).context("polling::Poller::modify")
}

fn forget(poller: &Poller, client: Option<Client>) {
    if let Some(client) = client {
        let _ = poller.delete(&client.socket);
    }
}

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

fn hang_up(client: &OwnedFd) {
    let _ = socket::shutdown(client.as_raw_fd(), Shutdown::Write);
    let mut bytes = [0; 4096];
    let mut discard = || socket::recv(client.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT);
    (0..DISCARDS_MAX).all(|_| matches!(discard(), Ok(1..)));
}
