//! What became of one request, or of one stalled client.

use serde::Serialize;

/// Stands for a moment that never came.
pub(crate) const NEVER: u64 = u64::MAX;

/// One request that was due. Times are nanoseconds from the start of the run; [`Record::connected_ns`] and
/// the others are `u64::MAX` if that moment never came.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// From 1.
    pub id: u32,
    /// Index of its step.
    pub step: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// How far it had come when it failed; `Done` for an answer that ended.
    pub phase: Phase,
    /// The error number of the system call that failed, 0 if none did.
    pub errno: i32,
    /// The moment for which it was planned: latencies count from here.
    pub scheduled_ns: u64,
    /// The moment at which the generator found it due: later than planned by the generator's own fault.
    pub noticed_ns: u64,
    /// The moment of `socket`.
    pub started_ns: u64,
    /// The moment at which the connection stood.
    pub connected_ns: u64,
    /// The moment of the first byte of the answer.
    pub first_byte_ns: u64,
    /// The moment at which it was over, well or not.
    pub closed_ns: u64,
    /// Bytes of answer received.
    pub bytes: u32,
    /// Whether this side closed before the other had.
    pub closed_first: bool,
}

/// How a request ended. Each is a row of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The right bytes, then the end of the stream.
    Correct,
    /// Other bytes than the protocol demands.
    Wrong,
    /// The right bytes, then a reset instead of the end: the server closed with input unread.
    AnsweredThenReset,
    /// Nobody listens (`ECONNREFUSED`).
    Refused,
    /// The connection did not stand when patience ended.
    TimedOutConnecting,
    /// The connection stood, and the answer was not complete when patience ended.
    TimedOutWaiting,
    /// The connection was reset before the answer was complete.
    Reset,
    /// The server closed before the answer was complete.
    ClosedEarly,
    /// This process had no descriptor left. Not the server's fault.
    OutOfDescriptors,
    /// This machine had no port left. Not the server's fault.
    OutOfPorts,
    /// The generator was so late that it left the request out. Not the server's fault.
    NotSent,
    /// The run was ended while it was under way.
    Interrupted,
    /// Any other error; see its number.
    Other,
}

/// How far a request had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before there was a socket.
    Open,
    /// From `connect` to the connection.
    Connect,
    /// From the connection to the last byte of the request.
    Send,
    /// From the last byte of the request to the first of the answer.
    FirstByte,
    /// From the first byte of the answer to the end of the stream.
    End,
    /// It ended with an answer.
    Done,
}

/// What became of one stalled client. Times as in [`Record`].
#[derive(Clone, Copy, Debug)]
pub struct StallRecord {
    /// Index into the stalls of the plan.
    pub stall: usize,
    /// Index of the step in which it came.
    pub step: u16,
    /// When it was opened.
    pub started_ns: u64,
    /// When its connection stood.
    pub connected_ns: u64,
    /// When it was over.
    pub ended_ns: u64,
    /// How.
    pub end: StallEnd,
    /// Bytes that the server sent to it (and that it read).
    pub bytes: u32,
}

/// How a stalled client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StallEnd {
    /// No connection: refused, or no descriptor, or no port.
    NotConnected,
    /// The server closed.
    Closed,
    /// The server reset the connection.
    Reset,
    /// It hung up by itself, after its hold time.
    HungUp,
    /// It was still held when the run ended.
    Held,
    /// It was still waiting for its connection when it gave up or the run ended.
    NeverAccepted,
}

impl Outcome {
    /// All of them, in the order of the report.
    pub const ALL: [Outcome; 13] = [
        Outcome::Correct,
        Outcome::Wrong,
        Outcome::AnsweredThenReset,
        Outcome::Refused,
        Outcome::TimedOutConnecting,
        Outcome::TimedOutWaiting,
        Outcome::Reset,
        Outcome::ClosedEarly,
        Outcome::OutOfDescriptors,
        Outcome::OutOfPorts,
        Outcome::NotSent,
        Outcome::Interrupted,
        Outcome::Other,
    ];

    /// In words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Outcome::Correct => "correct",
            Outcome::Wrong => "wrong answer",
            Outcome::AnsweredThenReset => "answered, then reset",
            Outcome::Refused => "refused",
            Outcome::TimedOutConnecting => "timed out connecting",
            Outcome::TimedOutWaiting => "timed out waiting",
            Outcome::Reset => "reset",
            Outcome::ClosedEarly => "closed early",
            Outcome::OutOfDescriptors => "out of descriptors (the generator's)",
            Outcome::OutOfPorts => "out of ports (the generator's)",
            Outcome::NotSent => "not sent: the generator was late",
            Outcome::Interrupted => "interrupted",
            Outcome::Other => "other",
        }
    }

    /// Whether the generator failed and not the server.
    pub fn is_the_generators(self) -> bool {
        matches!(self, Outcome::OutOfDescriptors | Outcome::OutOfPorts | Outcome::NotSent)
    }
}

impl Phase {
    /// In words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Phase::Open => "opening a socket",
            Phase::Connect => "connecting",
            Phase::Send => "sending",
            Phase::FirstByte => "waiting for the first byte",
            Phase::End => "waiting for the end",
            Phase::Done => "at the end",
        }
    }
}
