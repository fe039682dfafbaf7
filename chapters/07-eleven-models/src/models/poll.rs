//! poll: we keep the list of whom we wait for, and hand all of it to the kernel at each wait. The kernel
//! walks it to ask everybody, and then we walk it to see who was meant: the idle cost as much as the busy.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::Context;
use http::{Core, OddEven};
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, c_short, pollfd};
use nix::errno::Errno;

use crate::clock::{self, Clock};
use crate::door::Door;
use crate::model::{Config, Model};
use crate::net::{self, Sharing};
use crate::slots::{self, Slots};
use crate::stop::Stop;
use crate::talk::{Client, Desk, Turn};
use crate::timers::Timers;

// The first places in the list; the clients have those behind.
const LISTENER: usize = 0;
const STOP: usize = 1;
const CLIENTS: usize = 2;

/// A place that poll passes over.
const NOBODY: i32 = -1;

/// One thread, and a list that is walked at each wait.
pub struct Poll;

impl Model for Poll {
    fn name(&self) -> &'static str {
        "poll"
    }

    fn about(&self) -> &'static str {
        "one thread, everybody's readiness is asked for at each wait"
    }

    // ANCHOR: serve
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let stop = Stop::new()?;
        let listener = net::listen(address, config, Sharing::Alone)?;
        net::announce(&listener)?;
        let mut house = House {
            watched: vec![watch(NOBODY, POLLIN), watch(stop.as_fd().as_raw_fd(), POLLIN)],
            whose: Vec::new(),
            door: Door::new(listener, config.connections_max),
            clients: Slots::new(),
            timers: Timers::new(),
            desk: Desk::new(Core::new(config.limits, app)),
        };
        let clock = Clock::new();
        let (mut now_ms, mut ends_at_ms) = (0, None);
        while ends_at_ms.is_none_or(|it| now_ms < it) && !house.is_left() {
            house.watch_door(now_ms);
            let wake_at = [house.timers.next_ms(), house.door.wake_at_ms(), ends_at_ms];
            let timeout_ms = timeout_ms(now_ms, wake_at.into_iter().flatten().min());
            let mut ready = match poll(&mut house.watched, timeout_ms) {
                Err(Errno::EINTR) => 0,
                ready => ready.context("poll")?,
            };
            now_ms = clock.now_ms();
            house.desk.core.clock(clock::unix_seconds());
            // From the last to the first: who leaves is replaced by the last, whose turn has been.
            let mut place = house.watched.len();
            while ready > 0 && place > 0 {
                place -= 1;
                let what = house.watched[place].revents;
                if what == 0 {
                    continue;
                }
                ready -= 1;
                match place {
                    LISTENER => house.take_in(now_ms)?,
                    STOP if stop.heed()? => {
                        ends_at_ms = Some(now_ms + config.drain_ms);
                        house.close(config.backlog, now_ms);
                        break; // Who is still in has had a turn.
                    }
                    STOP => {}
                    client => house.turn(client, what, now_ms),
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
    /// What poll is handed: the listener, the stop, and the clients. It is kept in step with them instead
    /// of being written anew for each wait.
    watched: Vec<pollfd>,
    /// Whose the places behind [`CLIENTS`] are, in the same order.
    whose: Vec<u64>,
    door: Door,
    clients: Slots<Guest>,
    timers: Timers,
    desk: Desk,
}

/// A client, and its place in the list.
struct Guest {
    client: Client,
    place: u32,
}

impl House {
    // ANCHOR: turn
    /// It is the turn of whoever is at `place`.
    fn turn(&mut self, place: usize, what: c_short, now_ms: u64) {
        let token = self.whose[place - CLIENTS];
        let Some(guest) = self.clients.get_mut(token) else { return };
        // Who waits for the deadline alone is asked nothing, so that no call would tell of a reset.
        let is_gone = what & (POLLERR | POLLHUP | POLLNVAL) != 0 && self.watched[place].events == 0;
        let turn = if is_gone { Turn::Over } else { guest.client.turn(&mut self.desk, now_ms) };
        self.after(token, turn);
    }

    /// Notes what the client waits for now, for the next wait to ask, or lets it go.
    fn after(&mut self, token: u64, turn: Turn) {
        let Some(guest) = self.clients.get_mut(token) else { return };
        self.watched[guest.place as usize].events = match turn {
            Turn::Readable => POLLIN,
            Turn::Writable => POLLOUT,
            Turn::Deadline => 0,
            Turn::Others => POLLIN | POLLOUT, // Ready at the next wait.
            Turn::Over => return self.leave(token),
        };
        self.timers.set(slots::slot(token), guest.client.connection.deadline_ms());
    }
    // ANCHOR_END: turn

    /// The place is filled with the last of the list, so that there is no hole to walk over.
    fn leave(&mut self, token: u64) {
        let Some(guest) = self.clients.remove(token) else { return };
        let place = guest.place;
        guest.client.leave(&mut self.desk);
        self.watched.swap_remove(place as usize);
        self.whose.swap_remove(place as usize - CLIENTS);
        if let Some(&moved) = self.whose.get(place as usize - CLIENTS)
            && let Some(moved) = self.clients.get_mut(moved)
        {
            moved.place = place;
        }
    }

    // ANCHOR: accept
    /// Who waits outside. After the last call they are treated as those who are in.
    fn take_in(&mut self, now_ms: u64) -> anyhow::Result<()> {
        for socket in self.door.accept(self.clients.len(), now_ms)? {
            let client = Client::new(socket, &self.desk, now_ms);
            let deadline_ms = client.connection.deadline_ms();
            let place = u32::try_from(self.watched.len()).context("more than 2^32 clients")?;
            self.watched.push(watch(client.socket.as_raw_fd(), POLLIN));
            let token = self.clients.insert(Guest { client, place });
            self.whose.push(token);
            self.timers.set(slots::slot(token), deadline_ms);
            if self.door.is_last_call() {
                self.drain(token, now_ms);
            }
        }
        Ok(())
    }

    /// A full house does not look at its door: the listener would stay ready, and the loop would spin.
    fn watch_door(&mut self, now_ms: u64) {
        let is_open = self.door.is_open(self.clients.len(), now_ms);
        let listener = self.door.listener().filter(|_| is_open);
        self.watched[LISTENER].fd = listener.map_or(NOBODY, AsRawFd::as_raw_fd);
    }
    // ANCHOR_END: accept

    // ANCHOR: expire
    /// Whose timer has rung is asked for the deadline, which has moved on with each request.
    fn expire(&mut self, now_ms: u64) {
        while let Some(slot) = self.timers.rung(now_ms) {
            let Some((token, guest)) = self.clients.at_mut(slot) else { continue };
            let deadline_ms = guest.client.connection.deadline_ms();
            if deadline_ms > now_ms {
                self.timers.set(slot, deadline_ms);
            } else {
                let turn = guest.client.expire(&mut self.desk, now_ms);
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
        let turn = guest.client.drain(&mut self.desk, now_ms);
        self.after(client, turn);
    }

    /// Whether nobody is in, and nobody can come in any more.
    fn is_left(&self) -> bool {
        self.clients.is_empty() && self.door.listener().is_none()
    }
    // ANCHOR_END: stop
}

// ANCHOR: poll
/// Waits until somebody in the list is ready, and says how many are.
///
/// nix has this call too, and its list borrows the descriptors. So it cannot be kept beside their owners
/// from one wait to the next.
#[expect(unsafe_code, reason = "poll(2) on a list that outlives the wait")]
fn poll(watched: &mut [pollfd], timeout_ms: i32) -> nix::Result<usize> {
    let length = libc::nfds_t::try_from(watched.len()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: `watched` is `length` pollfds, exclusively ours for the call, which writes their `revents`
    // and nothing else. A descriptor that is not open would be an answer (POLLNVAL) and no fault.
    let ready = unsafe { libc::poll(watched.as_mut_ptr(), length, timeout_ms) };
    Errno::result(ready).map(|it| it as usize) // Not negative: that would have been an error.
}
// ANCHOR_END: poll

/// How long `poll` may sleep, -1: without end. Both times are whole milliseconds, the first of them
/// rounded down, so that the second has come when it returns.
fn timeout_ms(now_ms: u64, wake_at_ms: Option<u64>) -> i32 {
    let left_ms = wake_at_ms.map(|it| it.saturating_sub(now_ms));
    left_ms.map_or(-1, |it| i32::try_from(it).unwrap_or(i32::MAX))
}

const fn watch(fd: i32, events: c_short) -> pollfd {
    pollfd { fd, events, revents: 0 }
}
