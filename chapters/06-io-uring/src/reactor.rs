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
const CLOSED: u64 = 1 << 63;
// ANCHOR_END: tokens

/// How long a client may take for its whole request and answer, from its accept.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long nobody is accepted at most when there is no descriptor for another client: the descriptors
/// may be somebody else's, who will not tell us when they are free.
const PAUSE: Duration = Duration::from_millis(250);

/// How many accepts may fail one after the other before each is followed by a pause, and how many before
/// it is clear that this will not end.
const FAILURES_PROMPT: u32 = 16;
const FAILURES_MAX: u32 = 1000;
const FAILURES_PAUSE: Duration = Duration::from_millis(10);

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
            asked: vec![Operation::accept(listener, LISTENER)],
        }
    }

    /// Whether it takes in nobody any more: nothing of it is under way on the listener.
    pub fn is_closed(&self) -> bool {
        self.nobody_left == NOBODY_LEFT
    }

    /// Whether nobody is served.
    pub fn is_idle(&self) -> bool {
        self.clients.len() == 0
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
                self.failures = 0;
                let socket = RawFd::try_from(socket)?;
                let session = Session::new();
                let client = Client { socket, session, is_speaking: false, is_late: false };
                let token = self.clients.insert(client);
                self.deadlines.push_back((now + PATIENCE, token));
                self.asked.push(Operation::receive(socket, token));
            }
            Err(Errno::ECANCELED) if done.token == QUEUE => self.nobody_left += 1,
            Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                pause = Some(PAUSE);
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
        } else if self.nobody_left < NOBODY_LEFT {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// No descriptor of this process has such a number, so that no call of a test hits one.
    const SOCKET: RawFd = 1_000_000;
    const LISTENING: RawFd = 999_999;

    fn done(token: u64, result: nix::Result<usize>) -> Completion<'static> {
        Completion { token, result, more: false, has_unread: false, bytes: &[] }
    }

    fn received(token: u64, bytes: &[u8]) -> Completion<'_> {
        Completion { bytes, ..done(token, Ok(bytes.len())) }
    }

    /// What was asked for since the last look.
    fn asked(reactor: &mut Reactor) -> Vec<Operation> {
        std::mem::take(&mut reactor.asked)
    }

    fn accept() -> Operation {
        Operation::accept(LISTENING, LISTENER)
    }

    /// The end of every conversation.
    fn closing(socket: RawFd, token: u64) -> [Operation; 2] {
        let discard = Operation::discard(socket, NOBODY).silent().in_any_case_then();
        [discard, Operation::close(socket, token | CLOSED)]
    }

    /// A reactor with a client at `SOCKET` that was accepted now, and its token.
    fn with_client() -> (Reactor, Instant, u64) {
        let (mut reactor, now) = (Reactor::new(LISTENING), Instant::now());
        assert_eq!(asked(&mut reactor), [accept()]);
        let came = Completion { more: true, ..done(LISTENER, Ok(SOCKET as usize)) };
        reactor.accept(&came, now).unwrap();
        let token = 0;
        assert_eq!(asked(&mut reactor), [Operation::receive(SOCKET, token)]);
        (reactor, now, token)
    }

    #[test]
    fn an_accept_that_ends_is_asked_for_again_once() {
        let ends = [
            Ok(SOCKET as usize),
            Err(Errno::ECANCELED),
            Err(Errno::ECONNABORTED),
            Err(Errno::EMFILE),
            Err(Errno::ENOBUFS),
        ];
        for end in ends {
            let (mut reactor, now) = (Reactor::new(LISTENING), Instant::now());
            assert_eq!(asked(&mut reactor), [accept()]);
            reactor.accept(&done(LISTENER, end), now).unwrap();
            reactor.let_go(now);
            let at_once = asked(&mut reactor).iter().filter(|it| **it == accept()).count();
            let has_to_pause = matches!(end, Err(Errno::EMFILE | Errno::ENOBUFS));
            assert_eq!(at_once, usize::from(!has_to_pause), "{end:?}");
            assert_eq!(reactor.timeout(now).is_some(), has_to_pause || end.is_ok(), "{end:?}");
            reactor.let_go(now + PAUSE);
            reactor.let_go(now + PAUSE);
            let later = asked(&mut reactor).iter().filter(|it| **it == accept()).count();
            assert_eq!(at_once + later, 1, "{end:?}");
        }
    }

    #[test]
    fn an_accept_that_goes_on_is_not_asked_for_again() {
        let (mut reactor, now, _) = with_client();
        let came = Completion { more: true, ..done(LISTENER, Ok(SOCKET as usize + 1)) };
        reactor.accept(&came, now).unwrap();
        assert_eq!(asked(&mut reactor), [Operation::receive(SOCKET + 1, 1)]);
    }

    #[test]
    fn who_leaves_ends_the_pause_for_want_of_a_descriptor() {
        let (mut reactor, now, token) = with_client();
        reactor.accept(&done(LISTENER, Err(Errno::EMFILE)), now).unwrap();
        reactor.let_go(now);
        assert_eq!(asked(&mut reactor), []);
        reactor.converse(&done(token | CLOSED, Ok(0)));
        reactor.let_go(now);
        assert_eq!(asked(&mut reactor), [accept()]);
    }

    #[test]
    fn a_descriptor_that_is_no_socket_ends_that_client_alone() {
        for errno in [Errno::EBADF, Errno::ENOTSOCK] {
            let (mut reactor, now, token) = with_client();
            let came = Completion { more: true, ..done(LISTENER, Ok(SOCKET as usize + 1)) };
            reactor.accept(&came, now).unwrap();
            asked(&mut reactor);
            reactor.converse(&done(token, Err(errno)));
            assert_eq!(asked(&mut reactor), closing(SOCKET, token));
            reactor.converse(&done(token | CLOSED, Err(errno)));
            assert_eq!(asked(&mut reactor), []);
            assert_eq!(reactor.clients.len(), 1);
        }
    }

    #[test]
    fn accepts_that_fail_for_ever_slow_down_and_give_up() {
        let (mut reactor, mut now) = (Reactor::new(LISTENING), Instant::now());
        let start = now;
        for failures in 1..FAILURES_MAX {
            assert_eq!(asked(&mut reactor), [accept()], "after {failures} failures");
            reactor.accept(&done(LISTENER, Err(Errno::ECONNABORTED)), now).unwrap();
            now += reactor.timeout(now).unwrap_or_default();
            reactor.let_go(now);
        }
        assert_eq!(now - start, FAILURES_PAUSE * (FAILURES_MAX - 1 - FAILURES_PROMPT));
        let error = reactor.accept(&done(LISTENER, Err(Errno::ECONNABORTED)), now).unwrap_err();
        assert!(format!("{error:#}").contains("1000 times in a row: ECONNABORTED"), "{error:#}");
    }

    #[test]
    fn one_success_forgives_all_failures() {
        let (mut reactor, mut now) = (Reactor::new(LISTENING), Instant::now());
        for round in 0..3 {
            for _ in 1..FAILURES_MAX {
                reactor.accept(&done(LISTENER, Err(Errno::ECONNABORTED)), now).unwrap();
                now += reactor.timeout(now).unwrap_or_default();
                reactor.let_go(now);
            }
            reactor.accept(&done(LISTENER, Ok(SOCKET as usize + round)), now).unwrap();
        }
    }

    #[test]
    fn a_send_of_a_byte_at_a_time_is_finished() {
        let (mut reactor, _, token) = with_client();
        reactor.converse(&received(token, b"7\n"));
        let all: &'static [u8] = b"Odd\n";
        for sent in 0..all.len() {
            let unsent = &all[sent..];
            assert_eq!(reactor.clients.get_mut(token).unwrap().session.unsent(), unsent);
            let send = Operation::send(SOCKET, unsent, token).silent().then();
            let [first, rest @ ..] = &asked(&mut reactor)[..] else { panic!("nothing was asked") };
            assert!(first.is_like(&send), "{first:?}");
            assert_eq!(rest, closing(SOCKET, token));
            // The chain was cut, and its close with it, whether that is told or not.
            reactor.converse(&done(token | CLOSED, Err(Errno::ECANCELED)));
            reactor.converse(&done(token, Ok(1)));
        }
        assert_eq!(asked(&mut reactor), closing(SOCKET, token));
        reactor.converse(&done(token | CLOSED, Ok(0)));
        assert!(reactor.is_idle());
    }

    #[test]
    fn want_of_a_buffer_is_no_fault_of_the_clients() {
        let (mut reactor, _, token) = with_client();
        for _ in 0..300 {
            reactor.converse(&done(token, Err(Errno::ENOBUFS)));
            assert_eq!(asked(&mut reactor), [Operation::receive(SOCKET, token)]);
        }
    }

    #[test]
    fn who_is_late_is_cancelled_first_and_closed_then() {
        for last in [Err(Errno::ECANCELED), Ok(2), Err(Errno::ENOBUFS)] {
            let (mut reactor, now, token) = with_client();
            assert_eq!(reactor.timeout(now), Some(PATIENCE));
            reactor.let_go(now + PATIENCE - Duration::from_nanos(1));
            assert_eq!(asked(&mut reactor), []);
            reactor.let_go(now + PATIENCE);
            reactor.let_go(now + PATIENCE);
            assert_eq!(asked(&mut reactor), [Operation::cancel(token, NOBODY).silent()]);
            reactor.converse(&Completion { result: last, ..received(token, b"7\n") });
            assert_eq!(asked(&mut reactor), closing(SOCKET, token));
            assert_eq!(reactor.timeout(now), None);
        }
    }

    #[test]
    fn a_completion_for_who_has_gone_is_nobodys() {
        let (mut reactor, now, token) = with_client();
        reactor.converse(&done(token | CLOSED, Ok(0)));
        reactor
            .accept(&Completion { more: true, ..done(LISTENER, Ok(SOCKET as usize)) }, now)
            .unwrap();
        let [receive] = asked(&mut reactor)[..] else { panic!("one receive") };
        assert_ne!(receive, Operation::receive(SOCKET, token), "the same place, another token");
        reactor.converse(&received(token, b"7\n"));
        reactor.converse(&done(token | CLOSED, Ok(0)));
        assert_eq!(asked(&mut reactor), []);
        assert_eq!(reactor.clients.len(), 1);
    }

    #[test]
    fn a_stop_takes_in_who_waits_until_nobody_does_twice() {
        let (mut reactor, now, _) = with_client();
        let one = [Operation::accept_one(LISTENING, QUEUE).then(), Operation::at_once(NOBODY)];
        reactor.stop();
        assert_eq!(asked(&mut reactor), [Operation::cancel(LISTENER, NOBODY).silent()]);
        // Who was accepted before the cancellation came is served like everybody.
        reactor.accept(&done(LISTENER, Ok(SOCKET as usize + 1)), now).unwrap();
        assert_eq!(asked(&mut reactor)[1..], one);
        reactor.accept(&done(QUEUE, Err(Errno::ECANCELED)), now).unwrap();
        assert_eq!(asked(&mut reactor), one);
        reactor.accept(&done(QUEUE, Ok(SOCKET as usize + 2)), now).unwrap();
        assert_eq!(asked(&mut reactor)[1..], one);
        assert!(!reactor.is_closed());
        reactor.accept(&done(QUEUE, Err(Errno::ECANCELED)), now).unwrap();
        assert!(reactor.is_closed());
        assert_eq!(asked(&mut reactor), []);
        assert_eq!(reactor.clients.len(), 3);
    }
}
