//! Exercise 05: a server in which every client has a thread of its own, and somebody waits all the same.
//!
//! It is chapter 03 with another handler. The loop asks epoll who is ready, and reads from nobody; a
//! thread reads from the client that is ready, and from no other.

mod command_line;

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{self, MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};
use nix::sys::time::TimeVal;
use oddeven::{LINE_BYTES_MAX, Session};

/// How many clients the kernel completes the handshake of before we accept them, less one.
/// It takes less where net.core.somaxconn is less.
const BACKLOG: i32 = 4096;

/// How long one `recv` waits for a client. The next `recv` waits as long again.
const PATIENCE: TimeVal = TimeVal::new(2, 0);

/// How much unread input is taken from a client before its connection is closed: 16 × 4 KiB.
const DISCARDS_MAX: usize = 16;

/// How many ready descriptors one wait reports at most; the next wait reports the others.
const EVENTS_MAX: usize = 256;

/// The token of the listener. A client's token is its number in the order of accept, never used
/// twice: a descriptor's number is, as soon as it is free.
const LISTENER: u64 = 0;

/// The clients that nobody is serving, by their tokens. The loop puts them in, the threads take them out.
type Clients = Mutex<HashMap<u64, OwnedFd>>;

fn main() -> ExitCode {
    command_line::run([], |address, []| {
        let listener = listen(address)?;
        command_line::announce(&listener)?;
        serve(&listener)
    })
}

/// A socket at `address` to which clients can connect.
fn listen(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let refused = |call, errno| command_line::refused(call, address, errno);
    let name = socket::SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    // Non-blocking: a client that epoll saw can be gone before we accept it.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket::socket(family, SockType::Stream, flags, None)
        .map_err(|errno| refused("socket", errno))?;
    // Without it, the connections that the last run closed (they stay in TIME_WAIT for a minute)
    // would keep this one from the same port.
    socket::setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt(SO_REUSEADDR)")?;
    if address.is_ipv6() {
        // [::] serves IPv4 clients too, whatever net.ipv6.bindv6only says.
        socket::setsockopt(&listener, sockopt::Ipv6V6Only, &false)
            .context("setsockopt(IPV6_V6ONLY)")?;
    }
    socket::bind(listener.as_raw_fd(), &name).map_err(|errno| refused("bind", errno))?;
    let backlog = socket::Backlog::new(BACKLOG).context("a backlog beyond SOMAXCONN")?;
    socket::listen(&listener, backlog).map_err(|errno| refused("listen", errno))?;
    let somaxconn = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or("?".into());
    let most = somaxconn.trim_end();
    command_line::say(format_args!(
        "listen: asked for {BACKLOG}, net.core.somaxconn allows {most}"
    ));
    Ok(listener)
}

fn serve(listener: &OwnedFd) -> anyhow::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
    let readable = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
    epoll.add(listener, readable).context("epoll_ctl(ADD, listener)")?;
    let clients = Arc::new(Clients::default());
    let mut token_last = LISTENER;
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    loop {
        for event in wait(&epoll, &mut events)? {
            let token = event.data();
            if token == LISTENER {
                let Some(client) = accept(listener)? else { continue };
                token_last += 1;
                // Once: from its first byte on, it is its thread's.
                let once = EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT;
                if epoll.add(&client, EpollEvent::new(once, token_last)).is_ok() {
                    lock(&clients).insert(token_last, client);
                }
            } else {
                let its_clients = Arc::clone(&clients);
                let thread = thread::Builder::new().name(format!("client {token}"));
                if thread.spawn(move || handle(&its_clients, token)).is_err() {
                    lock(&clients).remove(&token); // No thread can be had: it is let go.
                }
            }
        }
    }
}

/// Serves the client called `token`. A thread of its own does it, so that nobody else has to wait.
fn handle(clients: &Clients, token: u64) {
    // The lock is needed for as long as it takes to look the client up.
    if let Some(client) = lock(clients).remove(&token) {
        // A client that fails has failed alone: there is nobody to tell.
        let _ = converse(&client);
    }
}

/// A thread that panicked has left no half-done change behind: one call changes the map.
fn lock(clients: &Clients) -> MutexGuard<'_, HashMap<u64, OwnedFd>> {
    clients.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The descriptors that are ready, as soon as there is one.
fn wait<'e>(epoll: &Epoll, events: &'e mut [EpollEvent]) -> anyhow::Result<&'e [EpollEvent]> {
    let ready = uninterrupted(|| epoll.wait(events, EpollTimeout::NONE)).context("epoll_wait")?;
    Ok(&events[..ready])
}

/// The next client, or `None` when it went away or there was no descriptor for it.
///
/// Simplified: when the process has no descriptor left, `accept` fails, the listener stays ready,
/// and this server turns round and round at full speed until a client leaves. Chapter 04 mends it.
fn accept(listener: &OwnedFd) -> anyhow::Result<Option<OwnedFd>> {
    // The client does not inherit the listener's O_NONBLOCK: it blocks.
    match socket::accept4(listener, SockFlag::SOCK_CLOEXEC) {
        Ok(client) => Ok(Some(client)),
        // These say that the listener itself is not one: accepting again cannot help.
        Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
            Err(errno).context("accept4")
        }
        // All others concern one client, or pass: EAGAIN, EINTR, ECONNABORTED, EPROTO, EMFILE, …
        Err(_) => Ok(None),
    }
}

/// Reads until the request is complete, and answers it. A client that is silent for longer than
/// [`PATIENCE`] ends it: `recv` then fails with EAGAIN.
fn converse(client: &OwnedFd) -> nix::Result<()> {
    socket::setsockopt(client, sockopt::ReceiveTimeout, &PATIENCE)?;
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while !session.is_done() {
        if session.unsent().is_empty() {
            // The client decides how long this takes, byte by byte. It is only this thread's time.
            let length =
                uninterrupted(|| socket::recv(client.as_raw_fd(), &mut bytes, MsgFlags::empty()))?;
            session.feed(&bytes[..length]); // No byte at all is the client's half-close.
        } else {
            let length = uninterrupted(|| {
                socket::send(client.as_raw_fd(), session.unsent(), MsgFlags::MSG_NOSIGNAL)
            })?;
            session.sent(length); // Perhaps not all of it: the next turn sends the rest.
        }
    }
    hang_up(client);
    Ok(())
}

/// Says that no more will come, and takes what has come, without waiting for any of it: to close a
/// socket with unread input resets the connection, and a reset can overtake the answer.
///
/// It never waits for the client's own end: that would be one more way to be held up. The descriptor
/// is closed when its owner drops it.
fn hang_up(client: &OwnedFd) {
    // Whatever goes wrong here, the client has had its answer or will not get one.
    let _ = socket::shutdown(client.as_raw_fd(), Shutdown::Write);
    let mut bytes = [0; 4096];
    for _ in 0..DISCARDS_MAX {
        let Ok(1..) = socket::recv(client.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) else {
            return;
        };
    }
}

/// Makes a call again for as long as a signal interrupts it.
fn uninterrupted<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => continue,
            result => return result,
        }
    }
}
