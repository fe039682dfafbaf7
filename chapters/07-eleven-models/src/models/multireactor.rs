//! multireactor: epoll's loop once for each core, each with its own listener on the same address, and its
//! own clients. Nothing is shared but the number of places: nobody waits for a lock, and nobody helps a
//! loop that is busy. The kernel deals the clients out by a hash of their addresses.

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
        "epoll's loop on each core, with a listener of its own (SO_REUSEPORT)"
    }

    // ANCHOR: start
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let signals = Stop::new()?; // Before there are threads, which inherit that both are blocked.
        let elders = Elders::on(address);
        elders.sentence().into_iter().for_each(options::say);
        let first = net::listen(address, config, Sharing::Shared)?;
        let address = net::bound(&first)?; // After port 0, the others need to know.
        let others = (1..config.workers).map(|_| net::listen(address, config, Sharing::Shared));
        let others = others.collect::<anyhow::Result<Vec<OwnedFd>>>()?;
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("eventfd")?;
        let places = AtomicUsize::new(config.connections_max);
        let shared = &Shared { config, app, stop, places };
        let mut cores = cores::allowed()?.into_iter().cycle();
        let own_core = cores.next();
        thread::scope(|scope| {
            for (listener, core) in others.into_iter().zip(cores) {
                let reactor = move || shared.reactor(listener, Some(core), None);
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

/// What the reactors have in common.
struct Shared<'a> {
    config: &'a Config,
    app: OddEven,
    /// Readable when the server stops. Nobody reads it, so that it is told to all of them.
    stop: EventFd,
    /// How many clients may still come in, to whichever reactor.
    places: AtomicUsize,
}

impl Shared<'_> {
    /// One reactor, to its end. If it cannot go on, the others must not go on without it: the kernel would
    /// still give it clients.
    fn reactor(&self, listener: OwnedFd, core: Option<usize>, signals: Option<&(Stop, Elders)>) {
        core.into_iter().for_each(cores::pin);
        if let Err(error) = self.serve(listener, signals) {
            options::say(format_args!("ch07: multireactor: a reactor: {error:#}"));
            std::process::exit(1);
        }
    }

    // ANCHOR: serve
    fn serve(&self, listener: OwnedFd, signals: Option<&(Stop, Elders)>) -> anyhow::Result<()> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
        epoll.add(&listener, readable(LISTENER)).context("epoll_ctl(ADD, listener)")?;
        epoll.add(&self.stop, readable(STOP)).context("epoll_ctl(ADD, stop)")?;
        if let Some((signals, _)) = signals {
            epoll.add(signals, readable(SIGNALS)).context("epoll_ctl(ADD, signalfd)")?;
        }
        let mut house = House {
            epoll,
            door: Door::new(listener, self.config.connections_max),
            is_watched: true,
            places: &self.places,
            clients: Slots::new(),
            timers: Timers::new(),
            desk: Desk::new(Core::new(self.config.limits, self.app)),
        };
        let clock = Clock::new();
        let (mut now_ms, mut ends_at_ms) = (0, None);
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        while ends_at_ms.is_none_or(|it| now_ms < it) && !house.is_left() {
            house.watch_door(now_ms)?;
            let wake_at = [house.timers.next_ms(), house.looks_at_ms(now_ms), ends_at_ms];
            let timeout = timeout(now_ms, wake_at.into_iter().flatten().min());
            let ready = match house.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                ready => ready.context("epoll_wait")?,
            };
            now_ms = clock.now_ms();
            house.desk.core.clock(clock::unix_seconds());
            for event in &events[..ready] {
                match (event.data(), signals) {
                    (LISTENER, _) => house.take_in(now_ms)?,
                    (SIGNALS, Some((signals, elders))) if signals.heed()? => {
                        self.stop_all(&house, elders)?;
                    }
                    (SIGNALS, _) => {}
                    (STOP, _) => {
                        house.epoll.delete(&self.stop).context("epoll_ctl(DEL, stop)")?;
                        ends_at_ms = Some(now_ms + self.config.drain_ms);
                        house.close(self.config.backlog, now_ms);
                    }
                    (client, _) => house.turn(client, event.events(), now_ms),
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
    /// Whether epoll watches the listener now.
    is_watched: bool,
    /// How many clients may still come in, here or to another reactor.
    places: &'a AtomicUsize,
    clients: Slots<Client>,
    timers: Timers,
    desk: Desk,
}

impl House<'_> {
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
        for socket in sockets {
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
        let is_full = self.places.load(Ordering::Relaxed) == 0;
        let is_open = self.door.is_open(self.clients.len(), now_ms) && !is_full;
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

    /// Until when a wait may last for the door's sake.
    fn looks_at_ms(&self, now_ms: u64) -> Option<u64> {
        let is_full = !self.is_watched && self.door.listener().is_some();
        self.door.wake_at_ms().or(is_full.then_some(now_ms + LOOK_MS))
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
