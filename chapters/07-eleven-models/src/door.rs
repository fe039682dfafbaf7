//! When the listener is looked at and when it is not: while the house is full, or no descriptor is left,
//! it stays ready, and a loop that waits for it would spin.

use std::os::fd::OwnedFd;

use nix::sys::socket::SockFlag;

use crate::net::{self, Accepted};

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
}

impl Door {
    /// An open one, for so many connections.
    pub const fn new(listener: OwnedFd, connections_max: usize) -> Door {
        Door { listener: Some(listener), connections_max, pause: None }
    }

    /// What has to be watched for new clients; nothing after [`Door::close`].
    pub const fn listener(&self) -> Option<&OwnedFd> {
        self.listener.as_ref()
    }

    /// Who waits outside, a bounded number of them, as non-blocking sockets.
    ///
    /// # Errors
    ///
    /// When nobody can be accepted ever again.
    pub fn accept(&mut self, inside: usize, now_ms: u64) -> anyhow::Result<Vec<OwnedFd>> {
        let mut clients = Vec::new();
        let Some(listener) = &self.listener else { return Ok(clients) };
        for _ in 0..ACCEPTS_MAX {
            if inside + clients.len() >= self.connections_max {
                break;
            }
            match net::accept(listener, SockFlag::SOCK_NONBLOCK)? {
                Accepted::Client(client) => clients.push(client),
                Accepted::Nobody => break,
                Accepted::Again => {}
                Accepted::NoDescriptor => {
                    self.pause = Some((now_ms + PAUSE_MS, inside + clients.len()));
                    break;
                }
            }
        }
        Ok(clients)
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

    /// Nobody is taken in any more, and whoever connects now is refused.
    pub fn close(&mut self) {
        self.listener = None;
    }
}
