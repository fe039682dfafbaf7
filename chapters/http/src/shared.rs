//! What the connections of one thread share: the limits, the application, the date, and buffers.

use crate::answer::Reply;
use crate::busy::Busy;
use crate::date;
use crate::request::Request;

/// How long a connection may take, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A request, from its first byte to its last, or from `100 Continue` to its last. Then: 408.
    pub head_patience_ms: u32,
    /// A connection without a request, or a client that reads nothing of its answer. Then: closed.
    pub idle_patience_ms: u32,
    /// How long, after a refusal, what still comes is read and dropped.
    pub linger_ms: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { head_patience_ms: 6_000, idle_patience_ms: 15_000, linger_ms: 1_000 }
    }
}

/// What a server does, apart from speaking HTTP.
pub trait App {
    /// Answers one whole request.
    fn answer<'a>(&'a self, request: &Request<'a>) -> Reply<'a>;
}

/// What the connections of one thread share.
#[derive(Debug)]
pub struct Core<A: App> {
    pub(crate) limits: Limits,
    pub(crate) app: A,
    pub(crate) is_stopping: bool,
    pub(crate) date_line: DateLine,
    unix_seconds: u64,
    /// Buffers of connections that have become idle, for the next one that is not: no request allocates.
    #[expect(
        clippy::vec_box,
        reason = "a connection owns its buffers by a pointer of 8 bytes, which moves in and out"
    )]
    spares: Vec<Box<Busy>>,
}

/// `Date: Sun, 06 Nov 1994 08:49:37 GMT` and the end of the line.
pub(crate) type DateLine = [u8; 6 + date::DATE_BYTES + 2];

/// More buffers than these are not kept.
const SPARES_MAX: usize = 1024;

impl<A: App> Core<A> {
    /// A core whose answers say the year 1970 until the first call of [`Core::clock`].
    pub fn new(limits: Limits, app: A) -> Core<A> {
        Core {
            limits,
            app,
            is_stopping: false,
            date_line: date_line(0),
            unix_seconds: 0,
            spares: Vec::new(),
        }
    }

    /// Says what time it is: once per turn of a loop is enough. Costs nothing while the second is the same.
    pub fn clock(&mut self, unix_seconds: u64) {
        if unix_seconds != self.unix_seconds {
            self.unix_seconds = unix_seconds;
            self.date_line = date_line(unix_seconds);
        }
    }

    /// From now on every answer says `Connection: close`: the server is stopping.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Whether [`Core::stop`] has been called.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    pub(crate) fn spare(&mut self) -> Box<Busy> {
        self.spares.pop().unwrap_or_default()
    }

    pub(crate) fn recycle(&mut self, mut busy: Box<Busy>) {
        if self.spares.len() < SPARES_MAX {
            busy.clear();
            self.spares.push(busy);
        }
    }
}

fn date_line(unix_seconds: u64) -> DateLine {
    let mut line = *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    line[6..6 + date::DATE_BYTES].copy_from_slice(&date::format(unix_seconds));
    line
}
