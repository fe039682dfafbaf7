//! epoll, edge-triggered: the kernel tells once that somebody has become ready, and what we leave unread
//! then is ours to remember. Nobody's interest is ever changed; who is forgotten waits for ever.

use std::collections::VecDeque;
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

/// The client has sent its last byte, or is gone.
const END: EpollFlags =
    EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// One thread, one epoll, readiness told when it begins.
pub struct EpollEdge;

impl Model for EpollEdge {
    fn name(&self) -> &'static str {
        "epoll-edge"
    }

    fn about(&self) -> &'static str {
        "one thread, epoll tells once who has become ready"
    }

    // ANCHOR: serve
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let stop = Stop::new()?;
        let listener = net::listen(address, config, Sharing::Alone)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
        epoll.add(&listener, edge(LISTENER)).context("epoll_ctl(ADD, listener)")?;
        epoll.add(&stop, edge(STOP)).context("epoll_ctl(ADD, signalfd)")?;
        net::announce(&listener)?;
        let mut house = House {
            epoll,
            door: Door::new(listener, config.connections_max),
            has_knocked: false,
            clients: Slots::new(),
            ready: VecDeque::new(),
            timers: Timers::new(),
            desk: Desk::new(Core::new(config.limits, app)),
        };
        let clock = Clock::new();
        let (mut now_ms, mut ends_at_ms) = (0, None);
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        while ends_at_ms.is_none_or(|it| now_ms < it) && !house.is_left() {
            // Who is ready and has been told of already is not waited for.
            let at_once = house.has_work(now_ms).then_some(now_ms);
            let wake_at = [at_once, house.timers.next_ms(), house.door.wake_at_ms(), ends_at_ms];
            let timeout = timeout(now_ms, wake_at.into_iter().flatten().min());
            let ready = match house.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                ready => ready.context("epoll_wait")?,
            };
            now_ms = clock.now_ms();
            house.desk.core.clock(clock::unix_seconds());
            for event in &events[..ready] {
                match event.data() {
                    LISTENER => house.has_knocked = true,
                    STOP if stop.heed()? => {
                        ends_at_ms = Some(now_ms + config.drain_ms);
                        house.close(config.backlog, now_ms);
                    }
                    STOP => {}
                    client => house.turn(client, event.events(), now_ms),
                }
            }
            house.continue_turns(now_ms);
            house.expire(now_ms);
            if house.has_knocked && house.door.is_open(house.clients.len(), now_ms) {
                house.take_in(now_ms)?;
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
    /// Whether somebody may be in the queue. That is not told again, so that a house which was full then
    /// has to remember it.
    has_knocked: bool,
    clients: Slots<Client>,
    /// Those whose turn was cut short: they may be ready still, and no edge will say so.
    ready: VecDeque<u64>,
    timers: Timers,
    desk: Desk,
}

impl House {
    // ANCHOR: turn
    /// It is `client`'s turn, unless it has gone, or waits for something else: epoll was not told what. What
    /// is passed over is not lost: a later turn reads and writes until the kernel says EAGAIN, which makes the next edge.
    fn turn(&mut self, client: u64, what: EpollFlags, now_ms: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        guest.has_ended |= what.intersects(END);
        let is_gone = what.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
        match guest.waits_for {
            Turn::Readable if what.intersects(EpollFlags::EPOLLIN | END) => {}
            Turn::Writable if what.contains(EpollFlags::EPOLLOUT) || is_gone => {}
            // Nothing is asked of it before its deadline, so that no call would tell of a reset.
            Turn::Deadline if is_gone => return self.leave(client),
            _ => return,
        }
        self.talk(client, now_ms);
    }

    fn talk(&mut self, client: u64, now_ms: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        let turn = guest.turn(&mut self.desk, now_ms);
        self.after(client, turn, now_ms);
    }

    /// Notes what `client` waits for now, or lets it go.
    fn after(&mut self, client: u64, mut turn: Turn, now_ms: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        if turn == Turn::Readable && guest.has_ended {
            // A read that did not fill the buffer was the last but one: the end is behind it, and nothing
            // comes after that to make an edge.
            turn = guest.turn(&mut self.desk, now_ms);
        }
        match turn {
            Turn::Over => return self.leave(client),
            Turn::Others if guest.waits_for != Turn::Others => self.ready.push_back(client),
            _ => {}
        }
        guest.waits_for = turn;
        self.timers.set(slots::slot(client), guest.connection.deadline_ms());
    }

    /// One more turn for each whose last was cut short, now that all others have had theirs.
    fn continue_turns(&mut self, now_ms: u64) {
        for _ in 0..self.ready.len() {
            let Some(client) = self.ready.pop_front() else { return };
            if let Some(guest) = self.clients.get_mut(client) {
                guest.waits_for = Turn::Readable; // It has left the queue, and may join it again.
                self.talk(client, now_ms);
            }
        }
    }
    // ANCHOR_END: turn

    /// Whether there is something to do that no wait will tell of.
    fn has_work(&mut self, now_ms: u64) -> bool {
        let can_enter = self.has_knocked && self.door.is_open(self.clients.len(), now_ms);
        can_enter || !self.ready.is_empty()
    }

    /// Closing a socket takes it out of epoll: no other descriptor is of it.
    fn leave(&mut self, client: u64) {
        if let Some(guest) = self.clients.remove(client) {
            guest.leave(&mut self.desk);
        }
    }

    // ANCHOR: accept
    /// Who waits outside. After the last call they are treated as those who are in.
    fn take_in(&mut self, now_ms: u64) -> anyhow::Result<()> {
        let sockets = self.door.accept(self.clients.len(), now_ms)?;
        self.has_knocked = self.door.has_more();
        // All that a client can do is asked for once: no call when it waits for something else.
        let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP;
        for socket in sockets {
            let token = self.clients.insert(Client::new(socket, &self.desk, now_ms));
            let Some(guest) = self.clients.get_mut(token) else { continue };
            self.timers.set(slots::slot(token), guest.connection.deadline_ms());
            let event = EpollEvent::new(interest | EpollFlags::EPOLLET, token);
            if self.epoll.add(&guest.socket, event).is_err() {
                self.leave(token);
            } else if self.door.is_last_call() {
                self.drain(token, now_ms);
            }
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
                self.after(token, turn, now_ms);
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
        self.has_knocked = true; // Perhaps nobody has. To look is how the door gets closed.
    }

    fn drain(&mut self, client: u64, now_ms: u64) {
        let Some(guest) = self.clients.get_mut(client) else { return };
        let turn = guest.drain(&mut self.desk, now_ms);
        self.after(client, turn, now_ms);
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

fn edge(token: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, token)
}
