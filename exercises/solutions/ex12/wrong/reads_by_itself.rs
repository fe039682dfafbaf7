//! Misconception: when the ring has no buffer, the program has one.
//!
//! Everybody is answered, and each for whom there was no buffer costs a system call of its own: when many
//! come at once, which is when the ring is to save them.
//!
//! Killed by: few_system_calls_per_answer (several system calls per answer)
//! Hint: You make the call yourself when the ring could not. How many calls is that, when most of those who come at once find no buffer?

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
use nix::sys::socket::{self, MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};
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

/// How long nobody is accepted when there is no descriptor for another client.
const PAUSE: Duration = Duration::from_millis(250);

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
    listener: RawFd,
    clients: Clients<Client>,
    // Every client has the same patience, so that the queue is in order without being sorted.
    deadlines: VecDeque<(Instant, u64)>,
    /// When to ask for the accept again, if none is under way.
    accept_at: Option<Instant>,
    /// What is to be handed in with the next wait.
    asked: Vec<Operation>,
}

fn main() -> ExitCode {
    command_line::run([], |address, []| {
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
            listener,
            clients: Clients::new(),
            deadlines: VecDeque::new(),
            accept_at: None,
            asked: vec![Operation::accept(listener, LISTENER)],
        }
    }

    /// How long a wait that begins `now` may be.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        let deadline = self.deadlines.front().map(|&(deadline, _)| deadline);
        let wake_at = deadline.into_iter().chain(self.accept_at).min();
        wake_at.map(|it| it.saturating_duration_since(now))
    }

    /// A client has come, or the one accept that brings them all has a problem, or is over.
    ///
    /// # Errors
    ///
    /// When accepting can never succeed again.
    fn accept(&mut self, done: &Completion, now: Instant) -> anyhow::Result<()> {
        let mut wait_until = now;
        match done.result {
            Ok(socket) => {
                let socket = RawFd::try_from(socket)?;
                let session = Session::new();
                let client = Client { socket, session, is_speaking: false, is_late: false };
                let token = self.clients.insert(client);
                self.deadlines.push_back((now + PATIENCE, token));
                self.asked.push(Operation::receive(socket, token));
            }
            // Who waits stays in the queue, and a descriptor may be somebody else's to free.
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                wait_until = now + PAUSE;
            }
            Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
                return Err(errno).context("accept");
            }
            // One client went away: the next one may be there.
            Err(_) => {}
        }
        // Whatever it brought, a completion without MORE is the last of this accept.
        if !done.more {
            self.accept_at = Some(wait_until);
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

    /// Ends what is under way of those who are late, and asks to accept again when it is time.
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
        if self.accept_at.take_if(|it| *it <= now).is_some() {
            self.asked.push(Operation::accept(self.listener, LISTENER));
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
            // No buffer was free: here is one. The bytes have come, or the kernel would have waited.
            Err(Errno::ENOBUFS) => {
                let mut bytes = [0; oddeven::LINE_BYTES_MAX + 1];
                match socket::recv(self.socket, &mut bytes, MsgFlags::MSG_DONTWAIT) {
                    Ok(length) => {
                        self.session.feed(&bytes[..length]);
                        self.is_speaking = !matches!(bytes[..length], [] | [.., b'\n']);
                        self.is_late
                    }
                    Err(errno) => errno != Errno::EAGAIN || self.is_late,
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR) => self.is_late,
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
