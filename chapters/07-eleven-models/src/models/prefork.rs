//! Prefork: a fixed number of processes, made before anybody comes, each of which serves one client to its
//! end. No client pays for a fork. When there are more clients than processes, those who are too many wait
//! in the queue of the kernel until one ends: silent clients can hold them all, until they are let go.
//!
//! All of them sleep in accept(2) on one listener. The kernel keeps such sleepers in a queue of their own
//! and wakes one of them for one client, in turn. (If they slept in poll(2) instead, each client would wake
//! all that are idle, and all but one would hear EAGAIN: the thundering herd. `strace -fc` shows it.)

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use http::OddEven;
use nix::sys::socket::{self, Shutdown, SockFlag};

use crate::blocking::{self, Desk, READ_BYTES};
use crate::children::{Children, Side};
use crate::clock::Clock;
use crate::model::{Config, Model};
use crate::net::{self, Accepted, FAILURES_MAX, Sharing};
use crate::stop::Stop;
use crate::{interrupt, options};

/// How long it takes until a child that has ended is replaced: one that cannot live would else be born and
/// buried without end.
const PAUSE_MS: u64 = 250;

/// A fixed number of processes.
pub struct Prefork;

impl Model for Prefork {
    fn name(&self) -> &'static str {
        "prefork"
    }

    fn about(&self) -> &'static str {
        "a fixed number of processes, each serves one client to its end"
    }

    // ANCHOR: serve
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let stop = Stop::new()?;
        let listener = net::listen(address, config, Sharing::Alone)?;
        net::set_blocking(&listener, true)?;
        let mut house = House {
            listener,
            children: Children::new()?,
            desk: Desk::new(config, app, READ_BYTES),
            clock: Clock::new(),
            places: config.pool,
            birth_at_ms: 0,
        };
        house.fill().context("fork: no process can be made: see `ulimit -u`")?;
        if house.children.len() < house.places {
            let (born, places) = (house.children.len(), house.places);
            options::say(format_args!("ch07: {born} of {places} processes: see `ulimit -u`"));
        }
        net::announce(&house.listener)?;
        loop {
            let is_short = house.children.len() < house.places;
            let wake_at_ms = is_short.then_some(house.birth_at_ms);
            let watched = [(stop.as_fd(), true), (house.children.as_fd(), true)];
            let [is_asked_to_stop, has_ended] = blocking::ready(watched, &house.clock, wake_at_ms)?;
            if has_ended && house.children.reap()? > 0 {
                house.birth_at_ms = house.clock.now_ms() + PAUSE_MS;
            }
            if is_asked_to_stop {
                house.close(config.backlog);
                if stop.heed()? {
                    return house.children.stop(&house.clock, config.drain_ms);
                }
            }
            if house.clock.now_ms() >= house.birth_at_ms {
                let _ = house.fill(); // Those that there are go on. The next attempt is not far.
            }
        }
    }
    // ANCHOR_END: serve
}

/// What the parent has, and each child a copy of.
struct House {
    listener: OwnedFd,
    children: Children,
    desk: Desk,
    clock: Clock,
    places: usize,
    /// When the missing children are made.
    birth_at_ms: u64,
}

impl House {
    // ANCHOR: children
    /// Makes the children that are missing, as many as can be made.
    ///
    /// # Errors
    ///
    /// When there is none at all.
    fn fill(&mut self) -> nix::Result<()> {
        while self.children.len() < self.places {
            match self.children.fork() {
                Ok(Side::Parent) => {}
                Ok(Side::Child) => self.live(),
                Err(errno) => {
                    self.birth_at_ms = self.clock.now_ms() + PAUSE_MS;
                    return if self.children.len() == 0 { Err(errno) } else { Ok(()) };
                }
            }
        }
        Ok(())
    }

    /// The life of a child: the iterative server.
    fn live(&mut self) -> ! {
        let mut failures = 0;
        while !interrupt::is_stopping() {
            match net::accept(&self.listener, SockFlag::empty()) {
                Ok(Accepted::Client(client)) => {
                    failures = 0;
                    blocking::converse(&client, &mut self.desk, || {});
                }
                Ok(Accepted::Nobody) => {}
                Ok(Accepted::Again) if failures < FAILURES_MAX => failures += 1,
                Ok(Accepted::Again | Accepted::NoDescriptor) => {
                    thread::sleep(Duration::from_millis(PAUSE_MS))
                }
                Err(_) if interrupt::is_stopping() => {}
                Err(error) => {
                    options::say(format_args!("ch07: a child: {error:#}"));
                    std::process::exit(1);
                }
            }
        }
        std::process::exit(0)
    }
    // ANCHOR_END: children

    // ANCHOR: close
    /// The server stops. A listener is closed when the last process has closed it, and a busy child does
    /// not do that soon: shutdown(2) ends it for all of them. It would also reset who is in the queue. They
    /// are taken in before that, and served by a last child, one after the other.
    fn close(&mut self, backlog: i32) {
        self.children.tell(); // First, so that they know why the listener fails them.
        let queue = net::take_queue(&self.listener, backlog);
        let _ = socket::shutdown(self.listener.as_raw_fd(), Shutdown::Read);
        if queue.is_empty() {
            return;
        }
        match self.children.fork() {
            Ok(Side::Parent) => {}
            Ok(Side::Child) => {
                interrupt::stop();
                queue.into_iter().for_each(|it| blocking::converse(&it, &mut self.desk, || {}));
                std::process::exit(0);
            }
            Err(_) => queue.iter().for_each(net::refuse), // No process for them. They are told so.
        }
    }
    // ANCHOR_END: close
}
