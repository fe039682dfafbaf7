//! multireactor: epoll-edge's loop once for each core, each with its own listener on the same address and
//! its own clients. Nothing is shared but the number of places: nobody waits for a lock, and nobody helps
//! a loop that is busy. The kernel deals the clients out by a hash of their addresses.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Context;
use http::{Core, OddEven};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::clock::{self, Clock};
use crate::cores;
use crate::door::Door;
use crate::group::{self, Elders};
use crate::model::{Config, Model};
use crate::net::{self, Sharing};
use crate::options;
use crate::slots::{self, Slots};
use crate::stop::Stop;
use crate::talk::{Client, Desk, Turn};
use crate::timers::Timers;

const EVENTS_MAX: usize = 256;

// Tokens that are nobody's: a client's are below 2^63.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const SIGNALS: u64 = u64::MAX - 2;

/// The client has sent its last byte, or is gone.
const END: EpollFlags =
    EpollFlags::EPOLLRDHUP.union(EpollFlags::EPOLLHUP).union(EpollFlags::EPOLLERR);

/// How many places a reactor takes at a time for those whom it accepts.
const PLACES_AT_ONCE: usize = 64;

/// How often a reactor looks whether a place is free again: it is not told when another's client leaves.
const LOOK_MS: u64 = 250;

/// A loop for each core, a listener for each loop.
pub struct Multireactor;

impl Model for Multireactor {
    fn name(&self) -> &'static str {
        "multireactor"
    }

    fn about(&self) -> &'static str {
        "epoll-edge's loop on each core, with a listener of its own"
    }

    // ANCHOR: start
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let signals = Stop::new()?; // Before there are threads, which inherit that both are blocked.
        let elders = Elders::on(address);
        elders.sentence().into_iter().for_each(options::say);
        let first = doorway(address, config)?;
        let address = net::bound(&first.0)?; // After port 0, the others need to know.
        let others = (1..config.workers).map(|_| doorway(address, config));
        let others = others.collect::<anyhow::Result<Vec<Doorway>>>()?;
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("eventfd")?;
        let places = AtomicUsize::new(config.connections_max);
        let shared = &Shared { config, app, stop, places };
        let mut cores = cores::allowed()?.into_iter().cycle();
        let own_core = cores.next();
        thread::scope(|scope| {
            for (doorway, core) in others.into_iter().zip(cores) {
                let reactor = move || shared.reactor(doorway, Some(core), None);
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, reactor) {
                    // Its listener has gone with it. The others have clients of theirs, and go on.
                    options::say(format_args!("a thread for a reactor: {error}: served without"));
                }
            }
            options::print(format_args!("listening on {address}\n"));
            shared.reactor(first, own_core, Some(&(signals, elders)));
        });
        Ok(())
    }
    // ANCHOR_END: start
}

/// What a reactor needs of the system: its listener and its epoll.
type Doorway = (OwnedFd, Epoll);

/// Both of them, before the server says that it listens: so nothing is missing later.
fn doorway(address: SocketAddr, config: &Config) -> anyhow::Result<Doorway> {
    let listener = net::listen(address, config, Sharing::Shared)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
    epoll.add(&listener, edge(LISTENER)).context("epoll_ctl(ADD, listener)")?;
    Ok((listener, epoll))
}

/// What the reactors have in common.
struct Shared<'a> {
    config: &'a Config,
    app: OddEven,
    /// Readable when the server stops. Nobody reads it: it is told once, to each of them.
    stop: EventFd,
    /// How many clients may still come in, to whichever reactor.
    places: AtomicUsize,
}

impl Shared<'_> {
    /// One reactor, to its end. If it cannot go on, the others must not go on without it: the kernel would
    /// still give it clients.
    fn reactor(&self, doorway: Doorway, core: Option<usize>, signals: Option<&(Stop, Elders)>) {
        core.into_iter().for_each(cores::pin);
        if let Err(error) = self.serve(doorway, signals) {
            options::say(format_args!("ch07: multireactor: a reactor: {error:#}"));
            std::process::exit(1);
        }
    }

    // ANCHOR: serve
    fn serve(&self, doorway: Doorway, signals: Option<&(Stop, Elders)>) -> anyhow::Result<()> {
        let (listener, epoll) = doorway;
        epoll.add(&self.stop, edge(STOP)).context("epoll_ctl(ADD, stop)")?;
        if let Some((signals, _)) = signals {
            epoll.add(signals, edge(SIGNALS)).context("epoll_ctl(ADD, signalfd)")?;
        }
        let mut house = House {
            epoll,
            door: Door::new(listener, self.config.connections_max),
            has_knocked: false,
            places: &self.places,
            clients: Slots::new(),
            ready: VecDeque::new(),
            timers: Timers::new(),
            desk: Desk::new(Core::new(self.config.limits, self.app)),
        };
        let clock = Clock::new();
        let (mut now_ms, mut ends_at_ms) = (0, None);
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        while ends_at_ms.is_none_or(|it| now_ms < it) && !house.is_left() {
            // Who is ready and has been told of already is not waited for.
            let at_once = house.has_work(now_ms).then_some(now_ms);
            let looks_at = house.looks_at_ms(now_ms);
            let wake_at = [at_once, house.timers.next_ms(), looks_at, ends_at_ms];
            let timeout = timeout(now_ms, wake_at.into_iter().flatten().min());
            let ready = match house.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                ready => ready.context("epoll_wait")?,
            };
            now_ms = clock.now_ms();
            house.desk.core.clock(clock::unix_seconds());
            for event in &events[..ready] {
                match (event.data(), signals) {
                    (LISTENER, _) => house.has_knocked = true,
                    (SIGNALS, Some((signals, elders))) if signals.heed()? => {
                        self.stop_all(&house, elders)?;
                    }
                    (SIGNALS, _) => {}
                    (STOP, _) => {
                        ends_at_ms = Some(now_ms + self.config.drain_ms);
                        house.close(self.config.backlog, now_ms);
                    }
                    (client, _) => house.turn(client, event.events(), now_ms),
                }
            }
            house.continue_turns(now_ms);
            house.expire(now_ms);
            if house.has_knocked && house.is_open(now_ms) {
                house.take_in(now_ms)?;
            }
        }
        Ok(())
    }
    // ANCHOR_END: serve

    // ANCHOR: stop_all
    /// The server stops. New clients go to another process at this address, if there is one. Then each
    /// reactor takes in its own queue and closes its own listener. To close that of a queue with clients
    /// would reset them: the kernel does not give them to the other listeners (`net.ipv4.tcp_migrate_req`).
    fn stop_all(&self, house: &House<'_>, elders: &Elders) -> anyhow::Result<()> {
        if let Some(listener) = house.door.listener() {
            group::leave(listener, self.config.workers, elders)?;
        }
        self.stop.write(1).context("write(eventfd)").map(drop)
    }
    // ANCHOR_END: stop_all
}

/// Everything that one reactor knows between two waits.
struct House<'a> {
    epoll: Epoll,
    door: Door,
    /// Whether somebody may be in the queue. That is not told again, so that a house which was full then
    /// has to remember it.
    has_knocked: bool,
    /// How many clients may still come in, here or to another reactor.
    places: &'a AtomicUsize,
    clients: Slots<Client>,
    /// Those whose turn was cut short: they may be ready still, and no edge will say so.
    ready: VecDeque<u64>,
    timers: Timers,
    desk: Desk,
}

impl House<'_> {
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
        (self.has_knocked && self.is_open(now_ms)) || !self.ready.is_empty()
    }

    /// Closing a socket takes it out of epoll: no other descriptor is of it.
    fn leave(&mut self, client: u64) {
        if let Some(guest) = self.clients.remove(client) {
            guest.leave(&mut self.desk);
            self.places.fetch_add(1, Ordering::Relaxed);
        }
    }

    // ANCHOR: accept
    /// Who waits outside, as far as there are places: those are taken first, since other reactors look for
    /// some at the same time, and what is left of them is given back. After the last call the clients are
    /// treated as those who are in.
    fn take_in(&mut self, now_ms: u64) -> anyhow::Result<()> {
        let free = self.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            Some(free.saturating_sub(PLACES_AT_ONCE))
        });
        let taken = free.unwrap_or_else(|free| free).min(PLACES_AT_ONCE);
        let sockets = self.door.accept_at_most(taken, self.clients.len(), now_ms)?;
        self.places.fetch_add(taken - sockets.len(), Ordering::Relaxed);
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

    /// Whether somebody may come in: there is a place, and a descriptor as far as is known.
    fn is_open(&mut self, now_ms: u64) -> bool {
        let is_full = self.places.load(Ordering::Relaxed) == 0;
        self.door.is_open(self.clients.len(), now_ms) && !is_full
    }

    /// Until when a wait may last for the sake of somebody who has knocked and could not come in.
    fn looks_at_ms(&self, now_ms: u64) -> Option<u64> {
        self.door.wake_at_ms().or(self.has_knocked.then_some(now_ms + LOOK_MS))
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
