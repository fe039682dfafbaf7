//! One conversation on a blocking socket, to its end: what five of the eleven have in common.
//!
//! In the steady state an answer is two calls: `recv` sleeps until the request has come, `send` sends.
//!
//! The deadline is kept by the socket: SO_RCVTIMEO ends a single wait. That alone would let a client live
//! for ever that sends a byte before each wait ends, so that the time limit of the wait is what is left for
//! the whole request.
//!
//! A `send` does not sleep: one that did would return only when all has gone or its time is over, and could
//! not tell a client that reads slowly from one that reads nothing. Where the client has no room, poll(2)
//! sleeps until there is some.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::Context;
use http::{Connection, Core, OddEven, Wants};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, MsgFlags, Shutdown, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::clock::{self, Clock};
use crate::model::Config;
use crate::{interrupt, net};

/// How much is read from a client with one call, where few are talked with at once.
pub const READ_BYTES: usize = 16 * 1024;

/// Longer than every deadline.
const UNSET: u64 = u64::MAX;

/// What somebody needs who talks with one client after the other.
pub struct Desk {
    pub core: Core<OddEven>,
    buffer: Vec<u8>,
    clock: Clock,
    drain_ms: u64,
    /// Set when the server stops: when it is too late for every answer.
    ends_at_ms: Option<u64>,
}

impl Desk {
    /// One that reads at most `read_bytes` with one call.
    pub fn new(config: &Config, app: OddEven, read_bytes: usize) -> Desk {
        Desk {
            core: Core::new(config.limits, app),
            buffer: vec![0; read_bytes],
            clock: Clock::new(),
            drain_ms: config.drain_ms,
            ends_at_ms: None,
        }
    }

    /// Answers a request that nobody sends, before a fork: what a process finds out once, as which
    /// instructions its processor has, is then found out once and not by each child.
    pub fn rehearse(&mut self) {
        let now_ms = self.now_ms();
        let mut connection = Connection::new(&self.core, now_ms);
        connection.feed(&mut self.core, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", now_ms);
        connection.sent(&mut self.core, connection.unsent().len(), now_ms);
        connection.release(&mut self.core);
    }

    /// What time it is, here and in the answers.
    fn now_ms(&mut self) -> u64 {
        self.core.clock(clock::unix_seconds());
        self.clock.now_ms()
    }
}

// ANCHOR: converse
/// Talks with `client` until that is over. `at_stop` is called if the server is asked to stop meanwhile.
pub fn converse(client: &OwnedFd, desk: &mut Desk, at_stop: impl FnOnce()) {
    let mut now_ms = desk.now_ms();
    let mut talk = Talk::new(client.as_fd(), desk, now_ms);
    let mut at_stop = Some(at_stop);
    while desk.ends_at_ms.is_none_or(|it| now_ms < it) {
        if interrupt::is_stopping()
            && let Some(at_stop) = at_stop.take()
        {
            at_stop();
            talk.drain(desk, now_ms);
        }
        if talk.connection.deadline_ms() <= now_ms {
            talk.connection.expire(&mut desk.core, now_ms);
        }
        let done = match talk.connection.wants() {
            Wants::Read => talk.read(desk, now_ms),
            Wants::Write => talk.write(desk, now_ms),
            Wants::Wait => talk.wait(desk),
            Wants::Linger => match talk.discard(desk, now_ms) {
                Ok(0) => break,
                discarded => discarded.map(drop),
            },
            Wants::Close => break,
        };
        match done {
            // EAGAIN: it was time to look at the clock. EINTR: perhaps the server stops.
            Ok(()) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => break, // Reset, or worse: this client's error, and nobody else's.
        }
        now_ms = desk.now_ms();
    }
    talk.connection.release(&mut desk.core);
}
// ANCHOR_END: converse

/// A client that is talked with.
struct Talk<'a> {
    connection: Connection,
    socket: BorrowedFd<'a>,
    /// How long the socket waits for something to come. [`UNSET`]: that has to be said anew.
    receive_ms: u64,
    is_shut: bool,
}

impl Talk<'_> {
    fn new<'a>(socket: BorrowedFd<'a>, desk: &Desk, now_ms: u64) -> Talk<'a> {
        let connection = Connection::new(&desk.core, now_ms);
        Talk { connection, socket, receive_ms: UNSET, is_shut: false }
    }

    // ANCHOR: deadline
    /// Sleeps until something has come, at most until the deadline.
    fn receive(&mut self, desk: &mut Desk, now_ms: u64) -> nix::Result<usize> {
        let left_ms = self.connection.deadline_ms().saturating_sub(now_ms).max(1);
        if is_too_long(self.receive_ms, left_ms) {
            self.receive_ms = left_ms;
            let limit = TimeVal::milliseconds(i64::try_from(left_ms).unwrap_or(i64::MAX / 1000));
            socket::setsockopt(&self.socket, sockopt::ReceiveTimeout, &limit)?;
        }
        let received = socket::recv(self.socket.as_raw_fd(), &mut desk.buffer, MsgFlags::empty());
        if received == Err(Errno::EAGAIN) {
            self.receive_ms = UNSET; // If that was too early, the next wait is as long as it should be.
        }
        received
    }

    fn read(&mut self, desk: &mut Desk, now_ms: u64) -> nix::Result<()> {
        let length = self.receive(desk, now_ms)?;
        if interrupt::is_stopping() {
            desk.core.stop(); // What has come is in flight, and its answer is the last.
        }
        let now_ms = desk.now_ms();
        self.connection.feed(&mut desk.core, &desk.buffer[..length], now_ms);
        Ok(())
    }

    /// Sends what the client has room for; when it has none, sleeps until it has, at most until the
    /// deadline. That moves with each byte that goes: a client may read slowly, but it has to read.
    fn write(&mut self, desk: &mut Desk, now_ms: u64) -> nix::Result<()> {
        let (socket, mut now_ms) = (self.socket.as_raw_fd(), now_ms);
        let mut sent = net::send(socket, &self.connection.unsent());
        if sent == Err(Errno::EAGAIN) {
            self.sleep(desk, PollFlags::POLLOUT)?;
            now_ms = desk.now_ms();
            // Also when the time is over: poll tells of room when a third of the socket's buffer is free,
            // and a client that reads slowly may have made less than that.
            sent = net::send(socket, &self.connection.unsent());
        }
        self.connection.sent(&mut desk.core, sent?, now_ms);
        Ok(())
    }
    // ANCHOR_END: deadline

    /// Sleeps until the answer is due, or until the client has gone: without any event to wait for, poll(2)
    /// still tells of a reset.
    fn wait(&mut self, desk: &Desk) -> nix::Result<()> {
        match self.sleep(desk, PollFlags::empty())? {
            0 => Ok(()),
            _ => Err(Errno::ECONNRESET),
        }
    }

    fn sleep(&self, desk: &Desk, events: PollFlags) -> nix::Result<i32> {
        let deadline_ms = Some(self.connection.deadline_ms());
        poll(&mut [PollFd::new(self.socket, events)], timeout(&desk.clock, deadline_ms))
    }

    /// Everything has been said. What the client still sends is read and dropped until it closes: to close
    /// first would answer it with a reset, which can overtake the answer.
    fn discard(&mut self, desk: &mut Desk, now_ms: u64) -> nix::Result<usize> {
        if !self.is_shut {
            self.is_shut = true;
            socket::shutdown(self.socket.as_raw_fd(), Shutdown::Write)?;
        }
        self.receive(desk, now_ms)
    }

    /// The server stops: what is in flight is answered, and nothing else. A request that has arrived and
    /// was not read yet is in flight, so that this is what is looked for first.
    fn drain(&mut self, desk: &mut Desk, now_ms: u64) {
        desk.ends_at_ms.get_or_insert(now_ms + desk.drain_ms);
        desk.core.stop();
        if self.connection.wants() == Wants::Read {
            let flags = MsgFlags::MSG_DONTWAIT;
            if let Ok(length) = socket::recv(self.socket.as_raw_fd(), &mut desk.buffer, flags) {
                self.connection.feed(&mut desk.core, &desk.buffer[..length], now_ms);
            }
        }
        self.connection.drain(&mut desk.core, now_ms);
    }
}

// ANCHOR: lazily
/// Whether the socket would sleep past the deadline, by more than an eighth. A wait that is too short
/// costs one look at the clock; only one that is too long breaks a promise. So the limit is set when a
/// request comes in pieces, and not with each request.
const fn is_too_long(wait_ms: u64, left_ms: u64) -> bool {
    wait_ms > left_ms + left_ms / 8
}
// ANCHOR_END: lazily

/// Sleeps until one of those that are `watched` is readable, or until `wake_at_ms`, and says which are.
/// Only for what is not a client.
///
/// # Errors
///
/// When the kernel has no memory for it.
pub fn ready<const N: usize>(
    watched: [(BorrowedFd<'_>, bool); N],
    clock: &Clock,
    wake_at_ms: Option<u64>,
) -> anyhow::Result<[bool; N]> {
    let mut polled = watched.map(|(descriptor, is_watched)| {
        let events = if is_watched { PollFlags::POLLIN } else { PollFlags::empty() };
        PollFd::new(descriptor, events)
    });
    match poll(&mut polled, timeout(clock, wake_at_ms)) {
        Ok(_) => Ok(polled.map(|it| it.any().unwrap_or(false))),
        Err(Errno::EINTR) => Ok([false; N]),
        Err(errno) => Err(errno).context("poll"),
    }
}

/// How long poll(2) may sleep: until `wake_at_ms`, rounded up so that it has come.
fn timeout(clock: &Clock, wake_at_ms: Option<u64>) -> PollTimeout {
    let Some(wake_at_ms) = wake_at_ms else { return PollTimeout::NONE };
    let left_us = clock.until(wake_at_ms).as_micros();
    PollTimeout::from(u16::try_from(left_us.div_ceil(1000)).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_set_again_only_when_the_socket_would_sleep_too_long() {
        assert!(is_too_long(UNSET, 3_600_000));
        assert!(!is_too_long(15_000, 15_000)); // The next request of an idle client.
        assert!(is_too_long(15_000, 6_000)); // Half a head has come.
        assert!(!is_too_long(6_000, 15_000)); // And then an answer has gone: it wakes early once.
        assert!(is_too_long(2, 1));
    }
}
