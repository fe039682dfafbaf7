//! What a reactor decides: completions go in, operations come out, and nobody waits here.
//!
//! Of each client one operation is under way at any time, or one chain, so that whatever completes says
//! what to ask for next. Since this part waits for nothing and reads no clock, it is tested with
//! completions that no client can provoke.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::socket::{self, Shutdown};
use oddeven::Session;

use crate::clients::Clients;
use crate::ring::{Completion, Operation};

// ANCHOR: tokens
// By what a completion is known: a client's token, with CLOSED or without, or one of these.
/// The accept that goes on.
pub const LISTENER: u64 = u64::MAX;
/// An accept of whoever is in the queue already.
pub const QUEUE: u64 = u64::MAX - 1;
/// The process is to end.
pub const STOP: u64 = u64::MAX - 2;
/// What may fail, and whose failure means nothing.
pub const NOBODY: u64 = u64::MAX - 3;
/// With a client's token: its socket is closed.
pub const CLOSED: u64 = 1 << 63;
// ANCHOR_END: tokens

/// How long a client may take for its whole request and answer, from its accept.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How long nobody is accepted at most when there is no descriptor for another client: the descriptors
/// may be somebody else's, who will not tell us when they are free.
pub const PAUSE: Duration = Duration::from_millis(250);

/// How many accepts may fail one after the other before each is followed by a pause, and how many before
/// it is clear that this will not end.
pub const FAILURES_PROMPT: u32 = 16;
/// See [`FAILURES_PROMPT`].
pub const FAILURES_MAX: u32 = 1000;
/// The pause after each of them.
pub const FAILURES_PAUSE: Duration = Duration::from_millis(10);

/// How often the queue has to be empty before the listener is closed: who was in a handshake at the first
/// look is there at the second.
const NOBODY_LEFT: u32 = 2;

/// A client, and how far its request and answer have come. One operation of it is under way at any time.
struct Client {
    socket: RawFd,
    is_late: bool,
    /// Whether more than a line has come, or a part of one: then more may come.
    is_speaking: bool,
    session: Session,
}

/// What a reactor knows between two waits.
pub struct Reactor {
    listener: RawFd,
    clients: Clients<Client>,
    // Every client has the same patience, so that the queue is in order without being sorted.
    deadlines: VecDeque<(Instant, u64)>,
    pause: Option<Pause>,
    /// How many accepts have failed since one succeeded.
    failures: u32,
    is_stopping: bool,
    /// How often, since then, nobody was in the queue.
    nobody_left: u32,
    /// How often since then, one time after the other, there was no descriptor though nobody is served
    /// here who might have one.
    in_vain: u32,
    /// What is to be handed in with the next wait.
    pub asked: Vec<Operation>,
}

/// The time during which nobody is accepted: until then, or until one of so many clients leaves.
struct Pause {
    until: Instant,
    clients: usize,
}

impl Reactor {
    /// One that has asked to accept from `listener`, which is its caller's to close.
    pub fn new(listener: RawFd) -> Reactor {
        Reactor {
            listener,
            clients: Clients::new(),
            deadlines: VecDeque::new(),
            pause: None,
            failures: 0,
            is_stopping: false,
            nobody_left: 0,
            in_vain: 0,
            asked: vec![Operation::accept(listener, LISTENER)],
        }
    }

    /// Whether it takes in nobody any more: nothing of it is under way on the listener.
    pub fn is_closed(&self) -> bool {
        // Or nobody can be taken in: those who have the descriptors did not free one in all their patience.
        self.nobody_left == NOBODY_LEFT || PAUSE * self.in_vain > PATIENCE
    }

    /// How many are served.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// How long a wait that begins `now` may be.
    pub fn timeout(&self, now: Instant) -> Option<Duration> {
        let deadline = self.deadlines.front().map(|&(deadline, _)| deadline);
        let wake_at = deadline.into_iter().chain(self.pause.as_ref().map(|it| it.until)).min();
        wake_at.map(|it| it.saturating_duration_since(now))
    }

    // ANCHOR: accept
    /// A client has come, or the one accept that brings them all has a problem, or is over.
    ///
    /// # Errors
    ///
    /// When accepting can never succeed again, or has failed too often in a row.
    pub fn accept(&mut self, done: &Completion, now: Instant) -> anyhow::Result<()> {
        let mut pause = None;
        match done.result {
            Ok(socket) => {
                (self.failures, self.in_vain) = (0, 0);
                let socket = RawFd::try_from(socket)?;
                let session = Session::new();
                let client = Client { socket, session, is_speaking: false, is_late: false };
                let token = self.clients.insert(client);
                self.deadlines.push_back((now + PATIENCE, token));
                self.asked.push(Operation::receive(socket, token));
            }
            Err(Errno::ECANCELED) if done.token == QUEUE => {
                self.nobody_left += 1;
                self.in_vain = 0;
            }
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                pause = Some(PAUSE);
                let is_in_vain = self.is_stopping && self.clients.len() == 0;
                self.in_vain = if is_in_vain { self.in_vain + 1 } else { 0 };
            }
            Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
                return Err(errno).context("accept");
            }
            // One client went away, a signal came, or it was cancelled: the next one may be there.
            Err(errno) => {
                self.failures += 1;
                if self.failures == FAILURES_MAX {
                    return Err(errno)
                        .with_context(|| format!("accept, {FAILURES_MAX} times in a row"));
                }
                pause = (self.failures > FAILURES_PROMPT).then_some(FAILURES_PAUSE);
            }
        }
        if !done.more {
            match pause {
                Some(time) => {
                    self.pause = Some(Pause { until: now + time, clients: self.clients.len() })
                }
                None => self.accept_again(),
            }
        }
        Ok(())
    }

    fn accept_again(&mut self) {
        self.pause = None;
        if !self.is_stopping {
            self.asked.push(Operation::accept(self.listener, LISTENER));
        } else if !self.is_closed() {
            self.asked.push(Operation::accept_one(self.listener, QUEUE).then());
            self.asked.push(Operation::at_once(NOBODY));
        }
    }
    // ANCHOR_END: accept

    /// From here on nobody is waited for: who is in the queue is taken in, one after the other.
    pub fn stop(&mut self) {
        self.is_stopping = true;
        self.asked.push(Operation::cancel(LISTENER, NOBODY).silent());
    }

    // ANCHOR: converse
    /// Something was received or sent, or the socket is closed: asks for what comes next.
    pub fn converse(&mut self, done: &Completion) {
        if done.token & CLOSED != 0 {
            // Cancelled: the send before it has failed, and tells so itself.
            if done.result != Err(Errno::ECANCELED) {
                self.clients.remove(done.token & !CLOSED);
            }
            return;
        }
        // Without a client it would be of one who has gone.
        let Some(client) = self.clients.get_mut(done.token) else { return };
        let is_lost = match done.result {
            Ok(_) if client.session.unsent().is_empty() => {
                client.session.feed(done.bytes);
                client.is_speaking = done.has_unread || !matches!(done.bytes, [] | [.., b'\n']);
                client.is_late
            }
            Ok(length) => {
                client.session.sent(length);
                client.is_late
            }
            // No buffer was free: by now those who had them have given them back.
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => client.is_late,
            Err(_) => true,
        };
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
    // ANCHOR_END: converse

    // ANCHOR: let_go
    /// Ends what is under way of those who are late, and tries to accept again when it is time.
    pub fn let_go(&mut self, now: Instant) {
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
        if self.pause.as_ref().is_some_and(|it| it.until <= now || it.clients > self.clients.len())
        {
            self.accept_again();
        }
    }
    // ANCHOR_END: let_go
}

// ANCHOR: hang_up
/// Closes, as a chain that nobody waits for. What comes between the discard and the close turns the close
/// into a reset, so that whoever is still speaking gets the end of the stream first.
///
/// That is the one call that a reactor makes by itself: a ring would give it to a thread of the kernel's
/// own, in case it has to wait, which a socket's shutdown never does.
fn hang_up(client: &Client, token: u64, asked: &mut Vec<Operation>) {
    if client.is_speaking {
        let _ = socket::shutdown(client.socket, Shutdown::Write);
    }
    asked.push(Operation::discard(client.socket, NOBODY).silent().in_any_case_then());
    asked.push(Operation::close(client.socket, token | CLOSED));
}
// ANCHOR_END: hang_up
