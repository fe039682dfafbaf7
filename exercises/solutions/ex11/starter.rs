//! Exercise 11: a server that asks for its clients once.
//!
//! It is chapter 06 on the io-uring crate, with one small ring and few descriptors (`tight.rs`). One
//! operation brings all clients: a multishot accept.
//!
//! Simplified: it ends at once when it is told to.

#[allow(dead_code, reason = "chapter 06 uses all of it")]
mod clients;
mod command_line;
#[allow(dead_code, reason = "chapter 06 uses all of it")]
#[expect(unsafe_code, reason = "a buffer that is lent to the kernel is the kernel's to write to")]
mod crate_ring;
mod tight;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::socket::{self, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};
use oddeven::Session;

use clients::Clients;
use crate_ring::{Completion, Operation, Ring};

const BACKLOG: i32 = 4096;
const COMPLETIONS_MAX: usize = 256;

// By what a completion is known: a client's token, with CLOSED or without, or one of these.
/// The accept that goes on.
const LISTENER: u64 = u64::MAX;
/// What may fail, and whose failure means nothing.
const NOBODY: u64 = u64::MAX - 3;
/// With a client's token: its socket is closed.
const CLOSED: u64 = 1 << 63;

/// How long a client may take for its whole request and answer, from its accept.
const PATIENCE: Duration = Duration::from_secs(2);

/// A client, and how far its request and answer have come. One operation of it is under way at any time.
struct Client {
    socket: RawFd,
    is_late: bool,
    /// Whether more than a line has come, or a part of one: then more may come.
    is_speaking: bool,
    session: Session,
}

/// What a reactor knows between two waits.
struct Reactor {
    clients: Clients<Client>,
    // Every client has the same patience, so that the queue is in order without being sorted.
    deadlines: VecDeque<(Instant, u64)>,
    /// What is to be handed in with the next wait.
    asked: Vec<Operation>,
}

fn main() -> ExitCode {
    command_line::run([], |address, []| {
        tight::few_descriptors()?;
        let ring = Ring::new(tight::ENTRIES, tight::BUFFERS)?;
        let listener = listen(address)?;
        command_line::announce(&listener)?;
        serve(&listener, ring)
    })
}

fn listen(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let refused = |call, errno| command_line::refused(call, address, errno);
    let name = socket::SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    let listener = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
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

fn serve(listener: &OwnedFd, mut ring: Ring) -> anyhow::Result<()> {
    let mut reactor = Reactor::new(listener.as_raw_fd());
    loop {
        let timeout = reactor.timeout(Instant::now());
        ring.enter(&mut reactor.asked, timeout)?;
        let now = Instant::now();
        for _ in 0..COMPLETIONS_MAX {
            let Some(done) = ring.completed() else { break };
            match done.token {
                LISTENER => reactor.accept(&done, now)?,
                NOBODY => {}
                _ => reactor.converse(&done),
            }
        }
        reactor.let_go(now);
    }
}

impl Reactor {
    /// One that has asked to accept from `listener`.
    fn new(listener: RawFd) -> Reactor {
        Reactor {
            clients: Clients::new(),
            deadlines: VecDeque::new(),
            asked: vec![Operation::accept(listener, LISTENER)],
        }
    }

    /// How long a wait that begins `now` may be.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        let deadline = self.deadlines.front().map(|&(deadline, _)| deadline);
        deadline.map(|it| it.saturating_duration_since(now))
    }

    /// A client has come, or one has not. The accept that brings them was asked for once and for all, when
    /// the reactor was made: there is nothing to ask for here.
    ///
    /// # Errors
    ///
    /// When accepting can never succeed again.
    fn accept(&mut self, done: &Completion, now: Instant) -> anyhow::Result<()> {
        match done.result {
            Ok(socket) => {
                let socket = RawFd::try_from(socket)?;
                let session = Session::new();
                let client = Client { socket, session, is_speaking: false, is_late: false };
                let token = self.clients.insert(client);
                self.deadlines.push_back((now + PATIENCE, token));
                self.asked.push(Operation::receive(socket, token));
            }
            Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
                return Err(errno).context("accept");
            }
            // One client went away, or there is no descriptor for it: the next one may be luckier.
            Err(_) => {}
        }
        Ok(())
    }

    /// Something was received or sent, or the socket is closed: asks for what comes next.
    fn converse(&mut self, done: &Completion) {
        if done.token & CLOSED != 0 {
            // Cancelled: the send before it has failed, and tells so itself.
            if done.result != Err(Errno::ECANCELED) {
                self.clients.remove(done.token & !CLOSED);
            }
            return;
        }
        // Without a client it would be of one who has gone.
        let Some(client) = self.clients.get_mut(done.token) else { return };
        let is_lost = client.take(done);
        if is_lost || client.session.is_done() {
            hang_up(client, done.token, &mut self.asked);
        } else if client.session.unsent().is_empty() {
            self.asked.push(Operation::receive(client.socket, done.token));
        } else {
            let send = Operation::send(client.socket, client.session.unsent(), done.token);
            if client.is_speaking {
                self.asked.push(send);
            } else {
                self.asked.push(send.silent().then());
                hang_up(client, done.token, &mut self.asked);
            }
        }
    }

    /// Ends what is under way of those who are late.
    fn let_go(&mut self, now: Instant) {
        while let Some(&(deadline, token)) = self.deadlines.front() {
            let client = self.clients.get_mut(token);
            if deadline > now && client.is_some() {
                break;
            }
            self.deadlines.pop_front();
            if let Some(client) = client {
                // A close would wait for what is under way. It will complete, and then we hang up.
                client.is_late = true;
                self.asked.push(Operation::cancel(token, NOBODY).silent());
            }
        }
    }
}

impl Client {
    /// What became of the operation that was under way. Whether the client is lost.
    fn take(&mut self, done: &Completion) -> bool {
        match done.result {
            Ok(_) if self.session.unsent().is_empty() => {
                self.session.feed(done.bytes);
                self.is_speaking = done.has_unread || !matches!(done.bytes, [] | [.., b'\n']);
                self.is_late
            }
            Ok(length) => {
                self.session.sent(length);
                self.is_late
            }
            // No buffer was free: by now those who had them have given them back.
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => self.is_late,
            Err(_) => true,
        }
    }
}

/// Closes, as a chain that nobody waits for. What comes between the discard and the close turns the close
/// into a reset, so that whoever is still speaking gets the end of the stream first.
fn hang_up(client: &Client, token: u64, asked: &mut Vec<Operation>) {
    if client.is_speaking {
        let _ = socket::shutdown(client.socket, Shutdown::Write);
    }
    asked.push(Operation::discard(client.socket, NOBODY).silent().in_any_case_then());
    asked.push(Operation::close(client.socket, token | CLOSED));
}
