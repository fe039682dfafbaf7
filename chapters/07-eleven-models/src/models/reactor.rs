//! reactor: whoever waits for something says so, and leaves a callback; one loop waits for all of it and
//! calls. The program is turned round: nobody asks any more, everybody is called.
//!
//! The loop knows nothing of HTTP, nor of listeners and signals: all three are callbacks. That costs an
//! allocation for each of them, and a call through a pointer for each event; and one who does not return
//! keeps everybody waiting.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

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

/// One loop that calls, and callbacks for everything.
pub struct CallbackReactor;

impl Model for CallbackReactor {
    fn name(&self) -> &'static str {
        "reactor"
    }

    fn about(&self) -> &'static str {
        "one loop calls whoever has registered a callback"
    }

    // ANCHOR: serve
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let stop = Stop::new()?;
        let listener = net::listen(address, config, Sharing::Alone)?;
        net::announce(&listener)?;
        let door = Door::new(listener, config.connections_max);
        let desk = Desk::new(Core::new(config.limits, app));
        let mut house =
            House { desk, inside: 0, entrance: 0, is_shut: false, backlog: config.backlog };
        let mut reactor = Reactor::new()?;
        let drain_ms = config.drain_ms;
        house.entrance = reactor.register(door, Wait::READABLE, welcome)?;
        reactor.register(stop, Wait::READABLE, move |stop: &mut Stop, reactor, house, _| {
            if !stop.heed()? {
                return Ok(Wait::READABLE);
            }
            house.desk.core.stop();
            reactor.stop(drain_ms, house)?;
            Ok(Wait::NOTHING)
        })?;
        reactor.run(&mut house, |house| house.desk.core.clock(clock::unix_seconds()))
    }
    // ANCHOR_END: serve
}

/// What the callbacks of this server share. Each is lent it for as long as it is called.
struct House {
    desk: Desk,
    /// How many clients there are.
    inside: usize,
    /// By what the listener's registration is known.
    entrance: u64,
    /// Whether the listener waits for somebody to leave.
    is_shut: bool,
    backlog: i32,
}

// ANCHOR: callbacks
/// The listener's callback: somebody may be at the door, or there may be room for them again.
fn welcome(
    door: &mut Door,
    reactor: &mut Reactor<House>,
    house: &mut House,
    cause: Cause,
) -> anyhow::Result<Wait> {
    let now_ms = reactor.now_ms;
    if cause == Cause::Stop {
        door.last_call(house.backlog);
    }
    if door.is_last_call() || door.is_open(house.inside, now_ms) {
        for socket in door.accept(house.inside, now_ms)? {
            let client = Client::new(socket, &house.desk, now_ms);
            let deadline_ms = client.connection.deadline_ms();
            // An error would be ENOMEM: this client's misfortune alone.
            let Ok(token) = reactor.register(client, Wait::READABLE.until(deadline_ms), talk)
            else {
                continue;
            };
            house.inside += 1;
            if door.is_last_call() {
                reactor.call(token, Cause::Stop, house)?;
            }
        }
    }
    house.is_shut = !door.is_open(house.inside, now_ms);
    let wait = if house.is_shut { Wait::DEADLINE } else { Wait::READABLE };
    Ok(Wait { until_ms: door.wake_at_ms(), is_over: door.listener().is_none(), ..wait })
}

/// A client's callback: it can be read from or written to, its deadline has come, or the server stops.
fn talk(
    client: &mut Client,
    reactor: &mut Reactor<House>,
    house: &mut House,
    cause: Cause,
) -> anyhow::Result<Wait> {
    let (desk, now_ms) = (&mut house.desk, reactor.now_ms);
    client.waits_for = match cause {
        // Who waits for the deadline alone is asked nothing, so that no call would tell of a reset.
        Cause::Broken if client.waits_for == Turn::Deadline => Turn::Over,
        Cause::Ready | Cause::Broken => client.turn(desk, now_ms),
        Cause::Deadline if client.connection.deadline_ms() > now_ms => client.waits_for,
        Cause::Deadline => client.expire(desk, now_ms),
        Cause::Stop => client.drain(desk, now_ms),
    };
    let wait = match client.waits_for {
        Turn::Readable => Wait::READABLE,
        Turn::Writable => Wait::WRITABLE,
        Turn::Deadline => Wait::DEADLINE,
        Turn::Others => Wait::EITHER, // Ready at the next wait.
        Turn::Over => {
            house.inside -= 1;
            if house.is_shut {
                reactor.call_at(house.entrance, now_ms);
            }
            Wait::NOTHING
        }
    };
    Ok(wait.until(client.connection.deadline_ms()))
}
// ANCHOR_END: callbacks

/// Why a callback is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The descriptor is ready.
    Ready,
    /// Whatever was waited for, it is in error or hung up. What can be read is still there.
    Broken,
    /// The time has come.
    Deadline,
    /// The server stops.
    Stop,
}

/// What a callback says when it returns: when it wants to be called again.
#[derive(Clone, Copy, Debug)]
struct Wait {
    interest: EpollFlags,
    until_ms: Option<u64>,
    /// Never: what was registered is dropped, its descriptor closed and thereby out of epoll.
    is_over: bool,
}

impl Wait {
    const READABLE: Wait = Wait::interest(EpollFlags::EPOLLIN);
    const WRITABLE: Wait = Wait::interest(EpollFlags::EPOLLOUT);
    const EITHER: Wait = Wait::interest(EpollFlags::EPOLLIN.union(EpollFlags::EPOLLOUT));
    const DEADLINE: Wait = Wait::interest(EpollFlags::empty());
    const NOTHING: Wait = Wait { is_over: true, ..Wait::DEADLINE };

    const fn interest(interest: EpollFlags) -> Wait {
        Wait { interest, until_ms: None, is_over: false }
    }

    fn until(self, deadline_ms: u64) -> Wait {
        Wait { until_ms: Some(deadline_ms), ..self }
    }
}

// ANCHOR: reactor
/// The loop: whom it waits for, and whom it calls then. `S` is what the callbacks share.
struct Reactor<S> {
    epoll: Epoll,
    /// Nothing in the place of one that is being called: it is lent the reactor, and cannot be in it.
    registered: Slots<Option<Box<dyn Registered<S>>>>,
    timers: Timers,
    clock: Clock,
    /// The time of this turn of the loop.
    now_ms: u64,
    ends_at_ms: Option<u64>,
}

impl<S: 'static> Reactor<S> {
    fn new() -> anyhow::Result<Reactor<S>> {
        Ok(Reactor {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?,
            registered: Slots::new(),
            timers: Timers::new(),
            clock: Clock::new(),
            now_ms: 0,
            ends_at_ms: None,
        })
    }

    /// Takes `source`, and has `callback` called when that for which it waits comes. Returns by what the
    /// registration is known.
    fn register<T: Source + 'static>(
        &mut self,
        source: T,
        wait: Wait,
        callback: impl FnMut(&mut T, &mut Reactor<S>, &mut S, Cause) -> anyhow::Result<Wait> + 'static,
    ) -> anyhow::Result<u64> {
        let entry = Entry { source, callback, interest: wait.interest };
        let token = self.registered.insert(None);
        if let Some(descriptor) = entry.source.descriptor() {
            let added = self.epoll.add(descriptor, EpollEvent::new(wait.interest, token));
            added.inspect_err(|_| drop(self.registered.remove(token))).context("epoll_ctl(ADD)")?;
        }
        self.put_back(token, Box::new(entry), wait.until_ms);
        Ok(token)
    }

    /// Has the callback of `token` called at `at_ms`, or before.
    fn call_at(&mut self, token: u64, at_ms: u64) {
        self.timers.set(slots::slot(token), at_ms);
    }

    /// Waits and calls until nobody is registered any more. Each turn begins with a call of `begin`.
    fn run(mut self, shared: &mut S, mut begin: impl FnMut(&mut S)) -> anyhow::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        while self.ends_at_ms.is_none_or(|it| self.now_ms < it) && !self.registered.is_empty() {
            let wake_at = [self.timers.next_ms(), self.ends_at_ms];
            let timeout = timeout(self.now_ms, wake_at.into_iter().flatten().min());
            let ready = match self.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                ready => ready.context("epoll_wait")?,
            };
            self.now_ms = self.clock.now_ms();
            begin(shared);
            for event in &events[..ready] {
                let is_broken =
                    event.events().intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
                let cause = if is_broken { Cause::Broken } else { Cause::Ready };
                self.call(event.data(), cause, shared)?;
            }
            while let Some(slot) = self.timers.rung(self.now_ms) {
                if let Some((token, _)) = self.registered.at_mut(slot) {
                    self.call(token, Cause::Deadline, shared)?;
                }
            }
        }
        Ok(())
    }

    /// Calls one, unless it has gone: an event may be for somebody who left in this batch.
    fn call(&mut self, token: u64, cause: Cause, shared: &mut S) -> anyhow::Result<()> {
        let Some(mut called) = self.registered.get_mut(token).and_then(Option::take) else {
            return Ok(());
        };
        let wait = called.call(self, shared, cause)?;
        if wait.is_over {
            self.registered.remove(token);
            return Ok(());
        }
        if wait.interest != *called.interest()
            && let Some(descriptor) = called.descriptor()
        {
            let mut event = EpollEvent::new(wait.interest, token);
            self.epoll.modify(descriptor, &mut event).context("epoll_ctl(MOD)")?;
            *called.interest() = wait.interest;
        }
        self.put_back(token, called, wait.until_ms);
        Ok(())
    }

    fn put_back(&mut self, token: u64, called: Box<dyn Registered<S>>, until_ms: Option<u64>) {
        if let Some(place) = self.registered.get_mut(token) {
            *place = Some(called);
            until_ms.inspect(|&at_ms| self.timers.set(slots::slot(token), at_ms));
        }
    }

    /// Tells everybody that the server stops, the latest first: who has a place in it goes before those
    /// who wait for one. Whoever is not over in `drain_ms` is left.
    fn stop(&mut self, drain_ms: u64, shared: &mut S) -> anyhow::Result<()> {
        self.ends_at_ms = Some(self.now_ms + drain_ms);
        let tokens = self.registered.tokens();
        tokens.into_iter().rev().try_for_each(|token| self.call(token, Cause::Stop, shared))
    }
}
// ANCHOR_END: reactor

/// What can be waited for.
trait Source {
    /// What epoll watches; nothing when it is closed.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

impl Source for Client {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

impl Source for Door {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.listener().map(AsFd::as_fd)
    }
}

impl Source for Stop {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// A source, whatever its type, with its callback.
trait Registered<S> {
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    fn interest(&mut self) -> &mut EpollFlags;
    fn call(
        &mut self,
        reactor: &mut Reactor<S>,
        shared: &mut S,
        cause: Cause,
    ) -> anyhow::Result<Wait>;
}

struct Entry<T, F> {
    source: T,
    callback: F,
    /// What epoll was told.
    interest: EpollFlags,
}

impl<S, T, F> Registered<S> for Entry<T, F>
where
    T: Source,
    F: FnMut(&mut T, &mut Reactor<S>, &mut S, Cause) -> anyhow::Result<Wait>,
{
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.source.descriptor()
    }

    fn interest(&mut self) -> &mut EpollFlags {
        &mut self.interest
    }

    fn call(
        &mut self,
        reactor: &mut Reactor<S>,
        shared: &mut S,
        cause: Cause,
    ) -> anyhow::Result<Wait> {
        (self.callback)(&mut self.source, reactor, shared, cause)
    }
}

/// How long `epoll_wait` may sleep. Both times are whole milliseconds, the first of them rounded down, so
/// that the second has come when it returns.
fn timeout(now_ms: u64, wake_at_ms: Option<u64>) -> EpollTimeout {
    let Some(wake_at_ms) = wake_at_ms else { return EpollTimeout::NONE };
    let left_ms = wake_at_ms.saturating_sub(now_ms);
    EpollTimeout::from(u16::try_from(left_ms).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use http::Limits;

    use super::*;

    #[test]
    fn an_event_from_before_the_stop_ends_nobody_whose_answer_is_due_later() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.write_all(b"GET /slow/300 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let desk = Desk::new(Core::new(Limits::default(), OddEven));
        let mut client = Client::new(ours.into(), &desk, 0);
        let mut house = House { desk, inside: 1, entrance: 0, is_shut: false, backlog: 1 };
        let mut reactor = Reactor::new().unwrap();
        let mut call = |cause| talk(&mut client, &mut reactor, &mut house, cause).unwrap();
        // One wait brings the signal and the request; the signal's callback reads the request.
        assert_eq!(call(Cause::Stop).until_ms, Some(300));
        assert!(!call(Cause::Ready).is_over, "its answer is still due");
        assert!(call(Cause::Broken).is_over, "it has gone, and would be told of at each wait");
    }
}
