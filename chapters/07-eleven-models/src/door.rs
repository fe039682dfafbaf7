//! When the listener is looked at and when it is not: while the house is full, or no descriptor is left,
//! it stays ready, and a loop that waits for it would spin.

use std::os::fd::OwnedFd;

use nix::sys::socket::SockFlag;

use crate::net::{self, Accepted, FAILURES_MAX};

/// How long nobody is accepted at most for want of a descriptor: it may be somebody else's to free.
const PAUSE_MS: u64 = 250;

/// How many are taken in before those who are in already have their turn again.
const ACCEPTS_MAX: usize = 64;

/// A listener, until the server stops.
pub struct Door {
    listener: Option<OwnedFd>,
    connections_max: usize,
    /// Set after an accept that failed for want of a descriptor: until when, and with how many inside.
    pause: Option<(u64, usize)>,
    /// How many accepts have failed in a row for another reason.
    failures: u32,
    /// Whether the last look at the queue ended before the queue did.
    has_more: bool,
    /// After the last call: how many may still come in.
    last: Option<usize>,
}

impl Door {
    /// An open one, for so many connections.
    pub const fn new(listener: OwnedFd, connections_max: usize) -> Door {
        let listener = Some(listener);
        Door { listener, connections_max, pause: None, failures: 0, has_more: false, last: None }
    }

    /// What has to be watched for new clients; nothing once it is closed.
    pub const fn listener(&self) -> Option<&OwnedFd> {
        self.listener.as_ref()
    }

    /// Who waits outside, a bounded number of them, as non-blocking sockets.
    ///
    /// # Errors
    ///
    /// When nobody can be accepted ever again.
    pub fn accept(&mut self, inside: usize, now_ms: u64) -> anyhow::Result<Vec<OwnedFd>> {
        self.accept_at_most(self.connections_max.saturating_sub(inside), inside, now_ms)
    }

    /// The same, for doors that share their places.
    ///
    /// # Errors
    ///
    /// When nobody can be accepted ever again.
    pub fn accept_at_most(
        &mut self,
        most: usize,
        inside: usize,
        now_ms: u64,
    ) -> anyhow::Result<Vec<OwnedFd>> {
        let mut clients = Vec::new();
        let Some(listener) = &self.listener else { return Ok(clients) };
        self.has_more = true;
        for _ in 0..ACCEPTS_MAX {
            if clients.len() >= most {
                break;
            }
            match net::accept(listener, SockFlag::SOCK_NONBLOCK)? {
                Accepted::Client(client) => {
                    self.failures = 0;
                    clients.push(client);
                }
                Accepted::Nobody => {
                    self.has_more = false;
                    break;
                }
                Accepted::Again => {
                    self.failures += 1;
                    if self.failures > FAILURES_MAX {
                        self.pause(0, now_ms); // No client who leaves would end it sooner.
                        break;
                    }
                }
                Accepted::NoDescriptor => {
                    self.pause(inside + clients.len(), now_ms);
                    break;
                }
            }
        }
        if let Some(last) = &mut self.last {
            *last = last.saturating_sub(clients.len());
            if *last == 0 || !self.has_more {
                self.close();
            }
        }
        Ok(clients)
    }

    /// Whether somebody may be in the queue whom the last [`Door::accept`] did not reach: who waits for
    /// edges is not told of them again.
    pub const fn has_more(&self) -> bool {
        self.has_more
    }

    /// One of those who wait outside, as a socket whose calls wait.
    ///
    /// # Errors
    ///
    /// When nobody can be accepted ever again.
    pub fn accept_one(&mut self, inside: usize, now_ms: u64) -> anyhow::Result<Option<OwnedFd>> {
        let Some(listener) = &self.listener else { return Ok(None) };
        if inside >= self.connections_max {
            return Ok(None);
        }
        match net::accept(listener, SockFlag::empty())? {
            Accepted::Client(client) => {
                self.failures = 0;
                return Ok(Some(client));
            }
            Accepted::Nobody => {}
            Accepted::Again => {
                self.failures += 1;
                if self.failures > FAILURES_MAX {
                    self.pause(0, now_ms);
                }
            }
            Accepted::NoDescriptor => self.pause(inside, now_ms),
        }
        Ok(None)
    }

    /// Nobody is taken in for a while, or until somebody has left.
    fn pause(&mut self, inside: usize, now_ms: u64) {
        self.pause = Some((now_ms + PAUSE_MS, inside));
    }

    /// Whether the listener is to be watched, with so many inside. To be asked before each wait.
    pub fn is_open(&mut self, inside: usize, now_ms: u64) -> bool {
        self.pause.take_if(|&mut (until_ms, of)| until_ms <= now_ms || inside < of);
        self.listener.is_some() && self.pause.is_none() && inside < self.connections_max
    }

    /// Until when a wait may last for the door's sake.
    pub fn wake_at_ms(&self) -> Option<u64> {
        self.pause.map(|(until_ms, _)| until_ms)
    }

    /// The server stops. To close a listener is to reset everybody in its queue, who were told that they
    /// are connected. So they are taken in, as soon as there is room for them, and the door closes behind
    /// the last: when the queue is empty, or after as many as it holds, since there may be no end of those
    /// who come after them.
    pub fn last_call(&mut self, backlog: i32) {
        self.last = Some(usize::try_from(backlog).unwrap_or(0).saturating_add(1));
    }

    /// Whether the last call has been.
    pub const fn is_last_call(&self) -> bool {
        self.last.is_some()
    }

    /// Nobody is taken in any more, and whoever connects now is refused.
    pub fn close(&mut self) {
        self.listener = None;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn accepts_that_always_fail_are_not_repeated_without_a_pause() {
        // Nobody listens here: accept says EOPNOTSUPP whenever it is asked.
        let mut door = Door::new(UnixDatagram::unbound().unwrap().into(), 10);
        for now_ms in [0, PAUSE_MS] {
            assert!(door.is_open(0, now_ms));
            assert!(door.accept(0, now_ms).unwrap().is_empty());
            assert!(!door.is_open(0, now_ms + PAUSE_MS - 1), "it would be asked again at once");
            assert_eq!(door.wake_at_ms(), Some(now_ms + PAUSE_MS));
        }
    }
}
