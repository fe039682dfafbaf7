//! One connection: opened, asked over, read from, opened again; never waited for.

use super::{
    answer::{Answer, Malformed, Reader},
    desk::{Asked, Desk},
};
use crate::{
    clock::now_ns,
    connection::{new_socket, outcome_of},
    record::{Outcome, Phase},
};
use nix::{
    errno::Errno,
    sys::{
        epoll::{EpollEvent, EpollFlags},
        socket::{MsgFlags, connect, getsockopt, recv, send, setsockopt, sockopt},
    },
};
use std::{
    collections::VecDeque,
    os::fd::{AsRawFd, OwnedFd},
};

/// Between a connection that could not be used and the next attempt.
const RETRY_NS: u64 = 100_000_000;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The server closed.
    Closed,
    /// A system call failed.
    Failed(Errno),
    /// What came was no answer.
    Malformed,
    /// Something came that was not asked for.
    Unasked,
    /// Patience ended.
    TimedOut,
    /// The run did.
    Interrupted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down {
        retry_ns: u64,
    },
    Connecting {
        since_ns: u64,
    },
    Up,
    /// An answer said that the server will close: nothing more is asked, and its end is awaited.
    Leaving {
        since_ns: u64,
    },
}

/// A connection, what is under way on it, and what is due.
pub(crate) struct Line {
    /// Which of this thread's.
    index: u32,
    /// Which of the plan's.
    number: u32,
    socket: Option<OwnedFd>,
    state: State,
    /// Which of its sockets: an event of an earlier one means nothing.
    generation: u32,
    reader: Reader,
    in_flight: VecDeque<Asked>,
    /// Scheduled moments of requests that could not be sent yet.
    due: VecDeque<u64>,
    /// Bytes of requests that the kernel has not taken yet.
    unsent: usize,
    /// Answers of this socket.
    answered_here: u64,
    has_been_up: bool,
    /// Answers that count, until the end of the schedule.
    pub answers: u64,
    /// The longest that a request of this connection took.
    pub longest_ns: u64,
}

impl Line {
    pub fn new(index: usize, number: usize, pipeline: usize) -> Line {
        Line {
            index: index as u32,
            number: number as u32,
            socket: None,
            state: State::Down { retry_ns: 0 },
            generation: 0,
            reader: Reader::default(),
            in_flight: VecDeque::with_capacity(pipeline),
            due: VecDeque::new(),
            unsent: 0,
            answered_here: 0,
            has_been_up: false,
            answers: 0,
            longest_ns: 0,
        }
    }

    /// How many requests are due on it and not sent.
    pub fn backlog(&self) -> usize {
        self.due.len()
    }

    /// Whether an event of this generation is its own.
    pub fn is(&self, generation: u32) -> bool {
        self.generation == generation
    }

    /// Begins to connect.
    pub fn open(&mut self, desk: &mut Desk, now_ns: u64) {
        self.generation = self.generation.wrapping_add(1);
        match self.try_open(desk) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.state = State::Connecting { since_ns: now_ns };
                desk.connecting += 1;
            }
            Err(error) => {
                desk.tally.row((outcome_of(error, Phase::Open), Phase::Open, error));
                self.state = State::Down { retry_ns: now_ns + RETRY_NS };
            }
        }
    }

    fn try_open(&self, desk: &Desk) -> Result<OwnedFd, Errno> {
        let socket = new_socket(desk.target, None)?;
        setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
        match connect(socket.as_raw_fd(), &desk.address) {
            Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        // Edge-triggered, and everything at once: no `epoll_ctl` ever follows.
        let flags = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        let data = u64::from(self.generation) << 32 | u64::from(self.index);
        desk.epoll.add(&socket, EpollEvent::new(flags, data))?;
        Ok(socket)
    }

    /// Does what an event of the kernel's makes possible.
    pub fn on_event(
        &mut self,
        desk: &mut Desk,
        buffer: &mut [u8],
        flags: EpollFlags,
    ) -> Result<(), End> {
        let ended =
            flags.intersects(EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        if let State::Connecting { .. } = self.state {
            self.connected(desk)?;
        }
        if ended || flags.contains(EpollFlags::EPOLLIN) {
            self.receive(desk, buffer, ended)?;
        }
        if self.unsent > 0 { self.flush(desk) } else { Ok(()) }
    }

    fn connected(&mut self, desk: &mut Desk) -> Result<(), End> {
        let Some(socket) = &self.socket else { return Ok(()) };
        match getsockopt(socket, sockopt::SocketError) {
            Ok(0) => {}
            Ok(number) => return Err(End::Failed(Errno::from_raw(number))),
            Err(error) => return Err(End::Failed(error)),
        }
        desk.connecting -= 1;
        desk.tally.connects += 1;
        desk.tally.reconnects += u64::from(self.has_been_up);
        self.has_been_up = true;
        self.state = State::Up;
        self.refill(desk, now_ns())
    }

    /// Reads what has come, and asks again.
    fn receive(&mut self, desk: &mut Desk, buffer: &mut [u8], ended: bool) -> Result<(), End> {
        loop {
            let Some(socket) = &self.socket else { return Ok(()) };
            let received = match recv(socket.as_raw_fd(), buffer, MsgFlags::empty()) {
                Ok(0) => return self.stream_ended(desk),
                Ok(received) => received,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(End::Failed(error)),
            };
            // One look at the clock for an answer: after it was read, before the next request is sent.
            let now_ns = now_ns();
            self.read(desk, &buffer[..received], now_ns)?;
            self.refill(desk, now_ns)?;
            // A short read has emptied the socket, and what comes later is an event of its own. Only the
            // end of the stream may have been told of already.
            let all = received < buffer.len() && !ended;
            if all && !matches!(self.state, State::Leaving { .. }) {
                return Ok(());
            }
        }
    }

    fn read(&mut self, desk: &mut Desk, bytes: &[u8], now_ns: u64) -> Result<(), End> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.in_flight.is_empty() {
                return Err(End::Unasked);
            }
            let (used, answer) = match self.reader.feed(&mut desk.template, rest) {
                Ok(fed) => fed,
                Err(Malformed) => return Err(End::Malformed),
            };
            rest = &rest[used..];
            if let Some(answer) = answer {
                self.answered(desk, answer, now_ns);
            }
        }
        Ok(())
    }

    /// The stream's end may be that of an answer.
    fn stream_ended(&mut self, desk: &mut Desk) -> Result<(), End> {
        if let Some(answer) = self.reader.end() {
            self.answered(desk, answer, now_ns());
        }
        Err(End::Closed)
    }

    /// An answer has ended. It is that of the request that was sent first.
    fn answered(&mut self, desk: &mut Desk, answer: Answer, now_ns: u64) {
        let Some(asked) = self.in_flight.pop_front() else { return };
        desk.in_flight -= 1;
        self.answered_here += 1;
        self.longest_ns = self.longest_ns.max(now_ns.saturating_sub(asked.scheduled_ns));
        let counts = desk.answered(self.number, asked, answer, now_ns);
        self.answers += u64::from(counts && now_ns < desk.end_ns);
        if answer.close {
            self.state = State::Leaving { since_ns: now_ns };
        }
    }

    /// A request of its schedule is due.
    pub fn due(&mut self, desk: &mut Desk, at_ns: u64, now_ns: u64) -> Result<(), End> {
        desk.due += 1;
        self.due.push_back(at_ns);
        self.refill(desk, now_ns)
    }

    /// Sends as many requests as may be under way: in a closed loop all of them, in an open loop those that
    /// are due.
    pub fn refill(&mut self, desk: &mut Desk, now_ns: u64) -> Result<(), End> {
        if self.state != State::Up || !desk.running {
            return Ok(());
        }
        let room = desk.pipeline - self.in_flight.len();
        let count = if desk.saturate { room } else { room.min(self.due.len()) };
        for _ in 0..count {
            let scheduled_ns = match desk.saturate {
                true => now_ns,
                false => self.due.pop_front().unwrap_or(now_ns),
            };
            self.in_flight.push_back(Asked { scheduled_ns, sent_ns: now_ns });
        }
        desk.in_flight += count;
        if !desk.saturate {
            desk.due -= count;
        }
        self.unsent += count * desk.request_length;
        self.flush(desk)
    }

    fn flush(&mut self, desk: &Desk) -> Result<(), End> {
        let length = desk.request_length;
        while self.unsent > 0 {
            let Some(socket) = &self.socket else { return Ok(()) };
            // The requests are equal: what is left begins within the first of them.
            let from = (length - self.unsent % length) % length;
            let bytes = &desk.requests[from..from + self.unsent];
            match send(socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
                Ok(sent) => self.unsent -= sent,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(End::Failed(error)),
            }
        }
        Ok(())
    }

    /// Ends it, counts what was under way, and opens it again: at once if it was of use.
    pub fn close(&mut self, desk: &mut Desk, end: End, now_ns: u64) {
        let connecting = matches!(self.state, State::Connecting { .. });
        if connecting {
            desk.connecting -= 1;
            let (outcome, errno) = match end {
                End::Failed(errno) => (outcome_of(errno, Phase::Connect), errno),
                _ => (Outcome::TimedOutConnecting, Errno::UnknownErrno),
            };
            desk.tally.row((outcome, Phase::Connect, errno));
        }
        if end == End::Unasked {
            desk.tally.wrong.unasked += 1;
        }
        if matches!(end, End::Unasked | End::Malformed | End::TimedOut) {
            desk.tally.closed_first += 1;
        }
        self.lose(desk, end, now_ns);
        self.socket = None;
        self.reader = Reader::default();
        self.unsent = 0;
        let of_use = std::mem::take(&mut self.answered_here) > 0;
        match end {
            End::Interrupted => self.state = State::Down { retry_ns: u64::MAX },
            _ if of_use => self.open(desk, now_ns),
            _ => self.state = State::Down { retry_ns: now_ns + RETRY_NS },
        }
    }

    /// Counts what was under way on a connection that is over.
    fn lose(&mut self, desk: &mut Desk, end: End, now_ns: u64) {
        desk.in_flight -= self.in_flight.len();
        let within = self.reader.is_within();
        // A server may close whenever it has answered. A GET that it has not begun to answer is sent again,
        // as browsers do, and keeps its scheduled moment.
        if end == End::Closed && !within && self.answered_here > 0 {
            desk.tally.resent += self.in_flight.len() as u64;
            while let Some(asked) = self.in_flight.pop_back() {
                if !desk.saturate {
                    self.due.push_front(asked.scheduled_ns);
                    desk.due += 1;
                }
            }
            return;
        }
        let mut phase = if within { Phase::End } else { Phase::FirstByte };
        for asked in self.in_flight.drain(..) {
            self.longest_ns = self.longest_ns.max(now_ns.saturating_sub(asked.scheduled_ns));
            let (outcome, errno) = match end {
                End::Closed | End::Unasked => (Outcome::ClosedEarly, Errno::UnknownErrno),
                End::Failed(errno) => (outcome_of(errno, phase), errno),
                End::Malformed => (Outcome::Wrong, Errno::UnknownErrno),
                End::TimedOut => (Outcome::TimedOutWaiting, Errno::UnknownErrno),
                End::Interrupted => (Outcome::Interrupted, Errno::UnknownErrno),
            };
            desk.lost(asked, (outcome, phase, errno), now_ns);
            phase = Phase::FirstByte;
        }
    }

    /// What time alone makes of it: patience that ends, or another attempt to connect.
    pub fn look(&mut self, desk: &mut Desk, now_ns: u64) -> Result<(), End> {
        let out_of_patience = |since_ns: u64| since_ns.saturating_add(desk.timeout_ns) <= now_ns;
        match (self.state, self.in_flight.front()) {
            (State::Down { retry_ns }, _) if retry_ns <= now_ns => {
                self.open(desk, now_ns);
                Ok(())
            }
            (State::Connecting { since_ns }, _) if out_of_patience(since_ns) => Err(End::TimedOut),
            (State::Leaving { since_ns }, _) if out_of_patience(since_ns) => Err(End::TimedOut),
            (State::Up, Some(asked)) if out_of_patience(asked.sent_ns) => Err(End::TimedOut),
            _ => Ok(()),
        }
    }

    /// At the end of the run: how long those have waited who are under way or due, and how many they are.
    pub fn left(&mut self, now_ns: u64) -> usize {
        let first = self.in_flight.front().map(|asked| asked.scheduled_ns);
        let since = first.or(self.due.front().copied());
        let age_ns = since.map_or(0, |at_ns| now_ns.saturating_sub(at_ns));
        self.longest_ns = self.longest_ns.max(age_ns);
        self.in_flight.len()
    }

    /// How many of the requests due and not sent belong to the part that counts.
    pub fn never_sent(&self, window_ns: u64) -> u64 {
        self.due.iter().filter(|at_ns| **at_ns >= window_ns).count() as u64
    }
}
