//! One client's connection: opened, sent on, read from, never waited for.

use crate::{
    plan::{StallKind, answer_to},
    record::{NEVER, Outcome, Phase},
};
use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, bind, connect, getsockopt,
        recv, send, setsockopt, socket, sockopt,
    },
};
use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

/// What an event of the kernel's says about a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub readable: bool,
    pub writable: bool,
    /// The server has said all that it will say.
    pub closed: bool,
    pub error: bool,
}

/// How far a connection has come in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The kernel has to say more first.
    Pending,
    /// It is over.
    Ended(Outcome, Errno),
}

/// A non-blocking TCP connection and what has gone over it.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    line: Line,
    sent: usize,
    expected: &'static [u8],
    matched: usize,
    wrong: bool,
    pub phase: Phase,
    pub connected_ns: u64,
    pub first_byte_ns: u64,
    pub bytes: u32,
}

impl Connection {
    /// Starts to connect `socket` to `target`. Nothing is sent, and nothing waited for.
    pub fn open(socket: OwnedFd, target: &SockaddrStorage, number: u64) -> Result<Self, Errno> {
        match connect(socket.as_raw_fd(), target) {
            // After EINTR the kernel goes on connecting by itself, as after EINPROGRESS.
            Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        Ok(Connection {
            socket,
            line: Line::new(number),
            sent: 0,
            expected: answer_to(number),
            matched: 0,
            wrong: false,
            phase: Phase::Connect,
            connected_ns: NEVER,
            first_byte_ns: NEVER,
            bytes: 0,
        })
    }

    /// The descriptor, to register it.
    pub fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether the connection stands now, for those who do not find out by sending.
    pub fn finish_connect(&mut self, now_ns: u64) -> Step {
        match getsockopt(&self.socket, sockopt::SocketError) {
            Ok(0) => {
                self.connected_ns = now_ns;
                self.phase = Phase::Send;
                Step::Pending
            }
            Ok(number) => self.failed(Errno::from_raw(number)),
            Err(error) => self.failed(error),
        }
    }

    /// Sends what is left of the request, as much as the kernel takes. A connection that stands already
    /// (as it often does on loopback) is found out by this, without a call of its own.
    pub fn send_request(&mut self, clock: impl Fn() -> u64) -> Step {
        while self.sent < self.line.length {
            match self.send_some(self.line.length - self.sent) {
                Ok(sent) => self.sent += sent,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Step::Pending,
                Err(error) => return self.failed(error),
            }
            if self.connected_ns == NEVER {
                self.connected_ns = clock();
            }
            self.phase = Phase::Send;
        }
        if self.phase < Phase::FirstByte {
            self.phase = Phase::FirstByte;
        }
        Step::Pending
    }

    /// Reads what has come and says whether that was the end of it.
    pub fn receive(&mut self, ready: Ready, clock: impl Fn() -> u64) -> Step {
        let mut buffer = [0; 256];
        loop {
            let received = match recv(self.raw(), &mut buffer, MsgFlags::empty()) {
                Ok(received) => received,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Step::Pending,
                Err(error) => return self.failed(error),
            };
            if received == 0 {
                return Step::Ended(self.verdict(), Errno::UnknownErrno);
            }
            if self.first_byte_ns == NEVER {
                self.first_byte_ns = clock();
            }
            self.phase = Phase::End;
            self.compare(&buffer[..received]);
            if received == buffer.len() || ready.error {
                continue; // There may be more, or an error to be fetched.
            }
            // A short read has emptied the buffer. If the end had come by then, this was the end;
            // if not, it will be an event of its own.
            return match ready.closed {
                true => Step::Ended(self.verdict(), Errno::UnknownErrno),
                false => Step::Pending,
            };
        }
    }

    /// Does what a stalled client does first, once its connection stands.
    pub fn stall(&mut self, kind: StallKind) -> Result<(), Errno> {
        let count = match kind {
            StallKind::Silent => return Ok(()),
            StallKind::HalfLine => self.line.length - 1,
            StallKind::Drip => 1,
            StallKind::Deaf => self.line.length,
        };
        // A few bytes always fit into the empty buffer of a new connection.
        self.send_some(count).map(drop)
    }

    /// The server's end of a stalled client, if it has come.
    pub fn stall_ended(&mut self, kind: StallKind, ready: Ready) -> Option<Errno> {
        if kind == StallKind::Deaf {
            // Not even the end is read: the kernel has told of it.
            return match getsockopt(&self.socket, sockopt::SocketError) {
                Ok(0) => ready.closed.then_some(Errno::UnknownErrno),
                Ok(number) => Some(Errno::from_raw(number)),
                Err(error) => Some(error),
            };
        }
        let mut buffer = [0; 256];
        loop {
            match recv(self.raw(), &mut buffer, MsgFlags::empty()) {
                Ok(0) => return Some(Errno::UnknownErrno),
                Ok(received) => self.bytes += received as u32,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return None,
                Err(error) => return Some(error),
            }
        }
    }

    fn send_some(&self, count: usize) -> Result<usize, Errno> {
        // Drips go round: the first digit again and again.
        let from = if self.sent < self.line.length { self.sent } else { 0 };
        let bytes = &self.line.bytes[from..(from + count).min(self.line.length)];
        send(self.raw(), bytes, MsgFlags::MSG_NOSIGNAL)
    }

    fn compare(&mut self, received: &[u8]) {
        self.bytes += received.len() as u32;
        let rest = &self.expected[self.matched..];
        if rest.starts_with(received) {
            self.matched += received.len();
        } else {
            self.wrong = true;
        }
    }

    /// What the bytes so far amount to if the stream ends here.
    fn verdict(&self) -> Outcome {
        match (self.wrong, self.matched == self.expected.len()) {
            (true, _) => Outcome::Wrong,
            (false, true) => Outcome::Correct,
            (false, false) => Outcome::ClosedEarly,
        }
    }

    fn failed(&self, error: Errno) -> Step {
        let outcome = match outcome_of(error, self.phase) {
            Outcome::Reset if self.wrong => Outcome::Wrong,
            Outcome::Reset if self.matched == self.expected.len() => Outcome::AnsweredThenReset,
            other => other,
        };
        Step::Ended(outcome, error)
    }
}

/// A new non-blocking socket, bound to `source` if there is one, without taking a port yet: the kernel
/// chooses that at connect, when it knows that only the pair of addresses has to be free.
pub(crate) fn new_socket(target: SocketAddr, source: Option<Ipv4Addr>) -> Result<OwnedFd, Errno> {
    let family = match target.ip() {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None)?;
    if let Some(source) = source {
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::from((source, 0))))?;
    }
    Ok(socket)
}

/// Makes the window of a client that will not read as small as the kernel allows.
pub(crate) fn shrink_window(socket: &OwnedFd) -> Result<(), Errno> {
    setsockopt(socket, sockopt::RcvBuf, &1)
}

/// Which row of the report an error number belongs to.
pub(crate) fn outcome_of(error: Errno, phase: Phase) -> Outcome {
    match error {
        Errno::ECONNREFUSED => Outcome::Refused,
        Errno::EMFILE | Errno::ENFILE => Outcome::OutOfDescriptors,
        Errno::EADDRNOTAVAIL => Outcome::OutOfPorts,
        Errno::ETIMEDOUT if phase <= Phase::Connect => Outcome::TimedOutConnecting,
        Errno::ETIMEDOUT => Outcome::TimedOutWaiting,
        Errno::ECONNRESET | Errno::EPIPE => Outcome::Reset,
        _ => Outcome::Other,
    }
}

/// A number and its newline, without a heap.
#[derive(Debug)]
struct Line {
    bytes: [u8; 24],
    length: usize,
}

impl Line {
    fn new(number: u64) -> Line {
        let mut bytes = [0; 24];
        let mut rest = &mut bytes[..];
        // 20 digits are the most that a u64 has: they fit.
        let _ = writeln!(rest, "{number}");
        let length = 24 - rest.len();
        Line { bytes, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_number_fits_its_line() {
        let line = Line::new(u64::MAX);
        assert_eq!(&line.bytes[..line.length], b"18446744073709551615\n");
        assert_eq!(&Line::new(7).bytes[..2], b"7\n");
    }

    #[test]
    fn every_error_has_its_row() {
        let row = |error| outcome_of(error, Phase::Connect);
        assert_eq!(row(Errno::ECONNREFUSED), Outcome::Refused);
        assert_eq!(row(Errno::EMFILE), Outcome::OutOfDescriptors);
        assert_eq!(row(Errno::EADDRNOTAVAIL), Outcome::OutOfPorts);
        assert_eq!(row(Errno::ETIMEDOUT), Outcome::TimedOutConnecting);
        assert_eq!(outcome_of(Errno::ETIMEDOUT, Phase::Send), Outcome::TimedOutWaiting);
        assert_eq!(row(Errno::EHOSTUNREACH), Outcome::Other);
    }
}
