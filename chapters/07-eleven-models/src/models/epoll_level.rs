//! epoll, level-triggered: the kernel keeps the list of whom we wait for, and tells at each wait who is
//! ready, again and again until what made them ready has been read.

use std::net::SocketAddr;

use anyhow::Context;
use http::{Core, OddEven};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::clock::{self, Clock};
use crate::door::Door;
use crate::model::{Config, Model};
use crate::net::{self, Sharing};
use crate::slots::{self, Slots};
use crate::stop::Stop;
use crate::talk::{Client, Desk, Turn};
use crate::timers::Timers;

const EVENTS_MAX: usize = 256;

// Tokens that are nobody's: a client's are below 2^63.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// One thread, one epoll, readiness told until it is used up.
pub struct EpollLevel;

impl Model for EpollLevel {
    fn name(&self) -> &'static str {
        "epoll-level"
    }

    fn about(&self) -> &'static str {
        "one thread, epoll tells who is ready until it is used up"
    }

    // ANCHOR: serve
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let stop = Stop::new()?;
        let listener = net::listen(address, config, Sharing::Alone)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
        epoll.add(&listener, readable(LISTENER)).context("epoll_ctl(ADD, listener)")?;
        epoll.add(&stop, readable(STOP)).context("epoll_ctl(ADD, signalfd)")?;
        net::announce(&listener)?;
        let mut house = House {
            epoll,
            door: Door::new(listener, config.connections_max),
            is_watched: true,
            clients: Slots::new(),
            timers: Timers::new(),
            desk: Desk::new(Core::new(config.limits, app)),
        };
        let clock = Clock::new();
        let (mut now_ms, mut ends_at_ms) = (0, None);
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        while ends_at_ms.is_none_or(|it| now_ms < it) && !house.is_left() {
            house.watch_door(now_ms)?;
            let wake_at = [house.timers.next_ms(), house.door.wake_at_ms(), ends_at_ms];
            let timeout = timeout(now_ms, wake_at.into_iter().flatten().min());
            let ready = match house.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                ready => ready.context("epoll_wait")?,
            };
            now_ms = clock.now_ms();
            house.desk.core.clock(clock::unix_seconds());
            for event in &events[..ready] {
                match event.data() {
                    LISTENER => house.take_in(now_ms)?,
                    STOP if stop.heed()? => {
                        ends_at_ms = Some(now_ms + config.drain_ms);
                        house.close(config.backlog, now_ms);
                    }
                    STOP => {}
                    client => house.turn(client, event.events(), now_ms),
                }
            }
            house.expire(now_ms);
            if house.door.is_last_call() {
                house.take_in(now_ms)?; // There may be room now for who is still in the queue.
            }
        }
        Ok(())
    }
    // ANCHOR_END: serve
}

/// Everything that the loop knows between two waits.
struct House {
    epoll: Epoll,
    door: Door,
    /// Whether epoll watches the listener now.
    is_watched: bool,
    clients: Slots<Client>,
    timers: Timers,
    desk: Desk,
}

impl House {
    // ANCHOR: turn
    /// It is `client`'s turn, unless it has gone: an event may be for somebody who left in this batch.
    fn turn(&mut self, client: u64, what: EpollFlags, now_ms: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        // Who waits for the deadline alone is asked nothing, so that no call would tell of a reset.
        let is_gone = what.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP)
            && guest.waits_for == Turn::Deadline;
        let turn = if is_gone { Turn::Over } else { guest.turn(&mut self.desk, now_ms) };
        self.after(client, turn);
    }

    /// Tells epoll what `client` waits for now, where that has changed, or lets it go.
    fn after(&mut self, client: u64, turn: Turn) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        if turn != guest.waits_for {
            let mut event = EpollEvent::new(interest(turn), client);
            // The error would be ENOMEM: this client's misfortune alone.
            if turn == Turn::Over || self.epoll.modify(&guest.socket, &mut event).is_err() {
                return self.leave(client);
            }
            guest.waits_for = turn;
        }
        self.timers.set(slots::slot(client), guest.connection.deadline_ms());
    }
    // ANCHOR_END: turn

    /// Closing a socket takes it out of epoll: no other descriptor is of it.
    fn leave(&mut self, client: u64) {
        if let Some(guest) = self.clients.remove(client) {
            guest.leave(&mut self.desk);
        }
    }

    // ANCHOR: accept
    /// Who waits outside. After the last call they are treated as those who are in.
    fn take_in(&mut self, now_ms: u64) -> anyhow::Result<()> {
        for socket in self.door.accept(self.clients.len(), now_ms)? {
            let token = self.clients.insert(Client::new(socket, &self.desk, now_ms));
            let Some(guest) = self.clients.get_mut(token) else { continue };
            self.timers.set(slots::slot(token), guest.connection.deadline_ms());
            if self.epoll.add(&guest.socket, readable(token)).is_err() {
                self.leave(token);
            } else if self.door.is_last_call() {
                self.drain(token, now_ms);
            }
        }
        Ok(())
    }

    /// A full house does not look at its door: the listener would stay ready, and the loop would spin.
    fn watch_door(&mut self, now_ms: u64) -> anyhow::Result<()> {
        let is_open = self.door.is_open(self.clients.len(), now_ms);
        if let Some(listener) = self.door.listener()
            && is_open != self.is_watched
        {
            let what = if is_open { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
            let mut event = EpollEvent::new(what, LISTENER);
            self.epoll.modify(listener, &mut event).context("epoll_ctl(MOD, listener)")?;
            self.is_watched = is_open;
        }
        Ok(())
    }
    // ANCHOR_END: accept

    // ANCHOR: expire
    /// Whose timer has rung is asked for the deadline, which has moved on with each request.
    fn expire(&mut self, now_ms: u64) {
        while let Some(slot) = self.timers.rung(now_ms) {
            let Some((token, guest)) = self.clients.at_mut(slot) else { continue };
            let deadline_ms = guest.connection.deadline_ms();
            if deadline_ms > now_ms {
                self.timers.set(slot, deadline_ms);
            } else {
                let turn = guest.expire(&mut self.desk, now_ms);
                self.after(token, turn);
            }
        }
    }
    // ANCHOR_END: expire

    // ANCHOR: stop
    /// The server stops: who is idle goes, what is in flight is answered, who is in the queue is taken in.
    fn close(&mut self, backlog: i32, now_ms: u64) {
        self.desk.core.stop();
        for client in self.clients.tokens() {
            self.drain(client, now_ms);
        }
        self.door.last_call(backlog);
    }

    fn drain(&mut self, client: u64, now_ms: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        let turn = guest.drain(&mut self.desk, now_ms);
        self.after(client, turn);
    }

    /// Whether nobody is in, and nobody can come in any more.
    fn is_left(&self) -> bool {
        self.clients.is_empty() && self.door.listener().is_none()
    }
    // ANCHOR_END: stop
}

/// How long `epoll_wait` may sleep. Both times are whole milliseconds, the first of them rounded down, so
/// that the second has come when it returns.
fn timeout(now_ms: u64, wake_at_ms: Option<u64>) -> EpollTimeout {
    let Some(wake_at_ms) = wake_at_ms else { return EpollTimeout::NONE };
    let left_ms = wake_at_ms.saturating_sub(now_ms);
    EpollTimeout::from(u16::try_from(left_ms).unwrap_or(u16::MAX))
}

fn interest(turn: Turn) -> EpollFlags {
    match turn {
        Turn::Readable => EpollFlags::EPOLLIN,
        Turn::Writable => EpollFlags::EPOLLOUT,
        Turn::Others => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, // Ready at the next wait.
        Turn::Deadline | Turn::Over => EpollFlags::empty(),
    }
}

fn readable(token: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, token)
}
