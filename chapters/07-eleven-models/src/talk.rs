//! A client's turn, for the models that never block on one: read, answer, send, as far as that goes
//! without waiting, and not for longer than is fair to the others.

use std::os::fd::{AsRawFd, OwnedFd};

use http::{Connection, Core, OddEven, Wants};
use nix::errno::Errno;
use nix::sys::socket::{self, MsgFlags, Shutdown};

use crate::net;

/// How much is read from a client with one call. A loop has one such buffer, whoever's turn it is.
pub const READ_BYTES: usize = 16 * 1024;

/// How many calls a client's turn may take before the others have theirs. One that is never done is asked
/// for again by the next wait, or keeps its place in the queue of those who are ready.
const CALLS_MAX: usize = 16;

/// A client: its socket, and how far its requests and answers have come.
pub struct Client {
    pub socket: OwnedFd,
    pub connection: Connection,
    /// What the loop has noted that it waits for. (It stands here, and not beside the client, since here
    /// is a byte to spare: ten thousand idle clients are weighed.)
    pub waits_for: Turn,
    /// The end of what it sends has been seen by a loop that is told only once.
    pub has_ended: bool,
    is_shut: bool,
}

const _: () = assert!(size_of::<Client>() <= 32, "a socket, a connection and three flags");

/// What a loop has one of, whatever the number of its clients.
pub struct Desk {
    pub core: Core<OddEven>,
    buffer: Box<[u8; READ_BYTES]>,
}

/// How a client's turn ended: what it waits for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// That it is readable.
    Readable,
    /// That it is writable, and nothing else: who does not read is not read from.
    Writable,
    /// Its deadline alone.
    Deadline,
    /// The others: its turn was long, and it may be ready still.
    Others,
    /// Nothing: it is over, and the socket can be closed.
    Over,
}

impl Desk {
    pub fn new(core: Core<OddEven>) -> Desk {
        Desk { core, buffer: Box::new([0; READ_BYTES]) }
    }
}

impl Client {
    /// Somebody who was just accepted.
    pub fn new(socket: OwnedFd, desk: &Desk, now_ms: u64) -> Client {
        let connection = Connection::new(&desk.core, now_ms);
        let waits_for = Turn::Readable;
        Client { socket, connection, waits_for, has_ended: false, is_shut: false }
    }

    // ANCHOR: turn
    /// Talks with the client until it has to wait. A read that does not fill the buffer has emptied the
    /// socket: to ask again only to hear EAGAIN would be a third call for each answer. What comes after
    /// that is a new event, for an edge-triggered loop too, see epoll(7).
    pub fn turn(&mut self, desk: &mut Desk, now_ms: u64) -> Turn {
        let socket = self.socket.as_raw_fd();
        let mut is_drained = false;
        for _ in 0..CALLS_MAX {
            let done = match self.connection.wants() {
                Wants::Read if is_drained => return Turn::Readable,
                Wants::Read => {
                    socket::recv(socket, &mut desk.buffer[..], MsgFlags::empty()).map(|length| {
                        is_drained = (1..READ_BYTES).contains(&length);
                        self.connection.feed(&mut desk.core, &desk.buffer[..length], now_ms);
                    })
                }
                Wants::Write => net::send(socket, &self.connection.unsent())
                    .map(|length| self.connection.sent(&mut desk.core, length, now_ms)),
                Wants::Wait => return Turn::Deadline,
                Wants::Linger => match self.discard(desk) {
                    Ok(0) => return Turn::Over,
                    discarded => discarded.map(drop),
                },
                Wants::Close => return Turn::Over,
            };
            match done {
                Ok(()) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if self.connection.wants() == Wants::Write => {
                    return Turn::Writable;
                }
                Err(Errno::EAGAIN) => return Turn::Readable,
                Err(_) => return Turn::Over, // Reset, or worse: this client's error, and nobody else's.
            }
        }
        Turn::Others
    }
    // ANCHOR_END: turn

    /// Its deadline may have come, and with it something to be said.
    ///
    /// A socket becomes writable when a third of its buffer is free. A client that reads slowly may have
    /// made less room than that since the last send: so one more is tried before it is let go, and when
    /// something goes the deadline moves.
    pub fn expire(&mut self, desk: &mut Desk, now_ms: u64) -> Turn {
        if self.connection.wants() == Wants::Write && self.turn(desk, now_ms) == Turn::Over {
            return Turn::Over;
        }
        self.connection.expire(&mut desk.core, now_ms);
        self.turn(desk, now_ms)
    }

    /// The server stops: what is in flight is answered, and nothing else. A request that has arrived and
    /// was not read yet is in flight, so that this is what is looked for first.
    pub fn drain(&mut self, desk: &mut Desk, now_ms: u64) -> Turn {
        match self.turn(desk, now_ms) {
            Turn::Over => Turn::Over,
            _ => {
                self.connection.drain(&mut desk.core, now_ms);
                self.turn(desk, now_ms)
            }
        }
    }

    /// Closes the socket, and keeps the buffers for the next client.
    pub fn leave(self, desk: &mut Desk) {
        self.connection.release(&mut desk.core);
    }

    /// Everything has been said. What the client still sends is read and dropped until it closes: to close
    /// first would answer it with a reset, which can overtake the answer.
    fn discard(&mut self, desk: &mut Desk) -> nix::Result<usize> {
        if !self.is_shut {
            self.is_shut = true;
            socket::shutdown(self.socket.as_raw_fd(), Shutdown::Write)?;
        }
        socket::recv(self.socket.as_raw_fd(), &mut desk.buffer[..], MsgFlags::empty())
    }
}
