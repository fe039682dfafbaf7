//! The odd/even protocol of chapters 01–06: bytes in, bytes out, no I/O.
//!
//! A client sends one decimal number as a line and reads one answer; then the server closes.
//!
//! ```text
//! client: 7 \n                 server: Odd \n       FIN
//! client: 1 0 0 \r \n          server: Even \n      FIN
//! client: 3 FIN                server: Odd \n       FIN      a half-close ends a request too
//! client: 7 a b c \n           server: Invalid \n   FIN
//! client: FIN                  server: FIN                   nothing asked, nothing answered
//! ```
//!
//! A request is whatever number of pieces the network makes of it, so that [`Session`] keeps what has
//! come so far. It never waits and never reads or writes: the chapters differ in how they do that, and
//! share this.
//!
//! ```
//! let mut session = oddeven::Session::new();
//! session.feed(b"1");
//! assert_eq!(session.unsent(), b""); // Half a line: the server has to wait, and so has this.
//! session.feed(b"00\n");
//! assert_eq!(session.unsent(), b"Even\n");
//! session.sent(5);
//! assert!(session.is_done());
//! ```
#![forbid(unsafe_code)]
#![no_std]

// Every package that can only be built on Linux asks for this feature, so that this is the one sentence that
// another system's compiler says. There is nothing about Linux in the protocol itself.
#[cfg(all(feature = "needs-linux", not(target_os = "linux")))]
compile_error!(
    "This package of The Stalled Client needs Linux: its system calls, or its tests, which look into \
     /proc. On macOS or Windows open this folder in its dev container (.devcontainer/), in Lima's virtual \
     machine or in WSL2. Chapters 01 and 02, and ch04-mio and ch04-polling, are written to run elsewhere \
     too: cargo run -p ch01"
);

/// The longest line in bytes, its end included. One byte more without an end is `Invalid` at once.
pub const LINE_BYTES_MAX: usize = 64;

// ANCHOR: session
/// One client's request and answer, as far as they have come.
#[derive(Clone, Debug)]
pub struct Session {
    line: [u8; LINE_BYTES_MAX],
    line_length: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The line has not ended yet.
    Reading,
    /// The answer is known, and `sent` bytes of it have gone.
    Answering { answer: Answer, sent: usize },
    /// Everything that was to be said has been sent, or there was nothing to say.
    Done,
}
// ANCHOR_END: session

/// What the server may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The last digit is 1, 3, 5, 7 or 9.
    Odd,
    /// The last digit is 2, 4, 6 or 8, or it is 0 and the number is not zero.
    Even,
    /// Not a positive decimal number, or longer than a line may be.
    Invalid,
}

impl Default for Session {
    fn default() -> Self {
        Session::new()
    }
}

impl Session {
    /// A session that has seen nothing yet.
    pub const fn new() -> Session {
        Session { line: [0; LINE_BYTES_MAX], line_length: 0, phase: Phase::Reading }
    }

    /// Takes the next bytes from the client. An empty slice is its half-close, as `recv` returns it.
    ///
    /// What follows the end of the line is dropped: a client gets one answer.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.phase != Phase::Reading {
            return;
        }
        if bytes.is_empty() {
            self.phase = match self.line_length {
                0 => Phase::Done, // Nothing was asked.
                _ => self.answer(),
            };
            return;
        }
        for &byte in bytes {
            if self.line_length == LINE_BYTES_MAX {
                // Byte 65, were it the end itself: too long, and no need to see how long.
                self.phase = Phase::Answering { answer: Answer::Invalid, sent: 0 };
                return;
            }
            if byte == b'\n' {
                self.phase = self.answer();
                return;
            }
            self.line[self.line_length] = byte;
            self.line_length += 1;
        }
    }

    /// What is to be sent next. Empty: either more is to be read, or [`Session::is_done`].
    pub fn unsent(&self) -> &'static [u8] {
        match self.phase {
            Phase::Answering { answer, sent } => &answer.bytes()[sent..],
            Phase::Reading | Phase::Done => b"",
        }
    }

    /// Notes that the first `length` bytes of [`Session::unsent`] have gone.
    ///
    /// # Panics
    ///
    /// When more went than there was.
    pub fn sent(&mut self, length: usize) {
        assert!(length <= self.unsent().len(), "{length} bytes sent of {}", self.unsent().len());
        if let Phase::Answering { answer, sent } = self.phase {
            self.phase = match sent + length {
                all if all == answer.bytes().len() => Phase::Done,
                sent => Phase::Answering { answer, sent },
            };
        }
    }

    /// Whether nothing is left to read or to send: the connection can be closed.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    fn answer(&self) -> Phase {
        Phase::Answering { answer: parity(&self.line[..self.line_length]), sent: 0 }
    }
}

impl Answer {
    /// The answer as it goes over the wire.
    pub const fn bytes(self) -> &'static [u8] {
        match self {
            Answer::Odd => b"Odd\n",
            Answer::Even => b"Even\n",
            Answer::Invalid => b"Invalid\n",
        }
    }
}

// ANCHOR: parity
/// Answers one line without its `\n`; one `\r` at its end is dropped.
///
/// The parity of a number is that of its last digit, so that no number is too big: there is no
/// overflow to get wrong. Zero is neither asked for nor answered: the protocol says `Invalid`.
pub fn parity(line: &[u8]) -> Answer {
    let digits = line.strip_suffix(b"\r").unwrap_or(line);
    if !digits.iter().all(u8::is_ascii_digit) || digits.iter().all(|&digit| digit == b'0') {
        return Answer::Invalid;
    }
    match digits.last() {
        Some(b'1' | b'3' | b'5' | b'7' | b'9') => Answer::Odd,
        Some(_) => Answer::Even,
        None => Answer::Invalid,
    }
}
// ANCHOR_END: parity
