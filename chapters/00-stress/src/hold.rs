//! The stalled client by hand: one connection, held until somebody lets go.

use crate::{engine::DRIP_NS, plan::StallKind};
use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, connect, getsockname,
        getsockopt, recv, send, setsockopt, socket, sockopt,
    },
};
use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Between two looks at whether it is to stop.
const LOOK_MS: u16 = 20;

/// What became of a stalled client.
#[derive(Clone, Debug)]
pub struct Held {
    /// How long its connection was held, from the moment it stood.
    pub held: Duration,
    /// Who ended it.
    pub release: Release,
    /// What the server sent meanwhile. A deaf client has not read it, and this is empty.
    pub received: Vec<u8>,
}

/// Who ended a connection that was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The server closed.
    ServerClosed,
    /// The server reset the connection.
    ServerReset,
    /// This side, because it was told to stop.
    Stopped,
}

/// Connects to `target`, does what a stalled client of this `kind` does, and holds the connection until the server
/// lets go or `stop` is set. `opened` is called with the own address and the time that connecting took.
///
/// # Errors
/// If there is no connection: it is refused, or `stop` is set first, or a system call fails.
pub fn hold(
    kind: StallKind,
    target: SocketAddr,
    stop: &AtomicBool,
    opened: &mut dyn FnMut(SocketAddr, Duration),
) -> Result<Held> {
    let start = Instant::now();
    let socket = open(kind, target)?;
    while !wait(&socket, PollFlags::POLLOUT)?.intersects(PollFlags::all()) {
        anyhow::ensure!(
            !stop.load(Ordering::Relaxed),
            "connect: {target} did not accept within {:.1} s: its accept queue is full (ss -lnt)",
            start.elapsed().as_secs_f64()
        );
    }
    match getsockopt(&socket, sockopt::SocketError).context("getsockopt(SO_ERROR)")? {
        0 => {}
        number => {
            let error = Errno::from_raw(number);
            return Err(error).context(format!("connect to {target}: is the server running?"));
        }
    }
    let local: SockaddrStorage = getsockname(socket.as_raw_fd()).context("getsockname")?;
    opened(to_std(&local), start.elapsed());
    stay(kind, &socket, stop)
}

fn open(kind: StallKind, target: SocketAddr) -> Result<OwnedFd> {
    let family = if target.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None).context("socket")?;
    if kind == StallKind::Deaf {
        // The smallest window that the kernel allows: what is not read fills it soon.
        setsockopt(&socket, sockopt::RcvBuf, &1).context("setsockopt(SO_RCVBUF)")?;
    }
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(target)) {
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(socket),
        Err(error) => Err(error).context(format!("connect to {target}: is the server running?")),
    }
}

fn stay(kind: StallKind, socket: &OwnedFd, stop: &AtomicBool) -> Result<Held> {
    let start = Instant::now();
    let mut received = Vec::new();
    let mut drips = 0;
    let done = |release, received| Ok(Held { held: start.elapsed(), release, received });
    let say = |bytes: &[u8]| send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL);
    let said = match kind {
        StallKind::HalfLine => say(b"100"),
        StallKind::Deaf => say(b"100\n"),
        StallKind::Silent | StallKind::Drip => Ok(0),
    };
    if said.is_err() {
        return done(Release::ServerReset, received);
    }
    while !stop.load(Ordering::Relaxed) {
        if kind == StallKind::Drip && start.elapsed().as_nanos() as u64 >= drips * DRIP_NS {
            drips += 1;
            if matches!(say(b"1"), Err(Errno::EPIPE | Errno::ECONNRESET)) {
                return done(Release::ServerReset, received);
            }
        }
        // A deaf client does not read: it is told of the end, which comes after the unread answer.
        let deaf = kind == StallKind::Deaf;
        let interest = if deaf { closed_flag() } else { PollFlags::POLLIN };
        let ready = wait(socket, interest)?;
        if ready.is_empty() {
            continue;
        }
        if deaf {
            let number =
                getsockopt(socket, sockopt::SocketError).context("getsockopt(SO_ERROR)")?;
            let release = if number == 0 { Release::ServerClosed } else { Release::ServerReset };
            return done(release, received);
        }
        let mut buffer = [0; 256];
        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(0) => return done(Release::ServerClosed, received),
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => return done(Release::ServerReset, received),
        }
    }
    done(Release::Stopped, received)
}

/// What of `interest` is ready within a moment; errors and hang-ups always are of interest.
fn wait(socket: &OwnedFd, interest: PollFlags) -> Result<PollFlags> {
    let mut watched = [PollFd::new(socket.as_fd(), interest)];
    match poll(&mut watched, PollTimeout::from(LOOK_MS)) {
        // Bits that nix has no name for make it say nothing at all: that can only be the one asked for.
        Ok(_) => Ok(watched[0].revents().unwrap_or_else(closed_flag)),
        Err(Errno::EINTR) => Ok(PollFlags::empty()),
        Err(error) => Err(error).context("poll"),
    }
}

/// nix has no name for POLLRDHUP.
fn closed_flag() -> PollFlags {
    PollFlags::from_bits_retain(libc::POLLRDHUP)
}

fn to_std(address: &SockaddrStorage) -> SocketAddr {
    if let Some(v4) = address.as_sockaddr_in() {
        return SocketAddr::from((v4.ip(), v4.port()));
    }
    match address.as_sockaddr_in6() {
        Some(v6) => SocketAddr::from((v6.ip(), v6.port())),
        None => SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}
