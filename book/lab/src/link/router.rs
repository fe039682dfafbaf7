//! The router: a thread that takes packets from either side, and gives them to the other when it is
//! time.

use super::{
    Side,
    air::{Air, Cause, Fate},
    counts::Tally,
    sys,
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{prctl, time::TimeSpec},
    unistd::{read, write},
};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// More than any device of ours has as its MTU, with the header of Ethernet.
const PACKET_MAX: usize = 2_048;

/// Packets that are taken from one side before those that are due are delivered.
const AT_ONCE: usize = 32;

/// What the router works with.
pub struct Router {
    /// The packets of the client, and of the server.
    pub client: OwnedFd,
    /// As above.
    pub server: OwnedFd,
    /// Ready when the router is to end.
    pub end: OwnedFd,
    /// What it decides by.
    pub air: Air,
    /// What it writes down.
    pub tally: Arc<Mutex<Tally>>,
    /// When the link was opened.
    pub start: Instant,
}

/// A packet on its way. The order is that of delivery; equal times go in order of arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    at_ns: u64,
    number: u64,
    to: Side,
    bytes: Vec<u8>,
}

/// What is between the sides.
#[derive(Default)]
struct Flight {
    packets: BinaryHeap<Reverse<Flying>>,
    taken: u64,
    /// Buffers that are free, so that a packet in the middle of a run allocates nothing.
    free: Vec<Vec<u8>>,
}

impl Router {
    /// Routes until it is told to end, or until a side is gone.
    pub fn run(mut self) {
        if let Err(error) = self.route() {
            lock(&self.tally).failed = Some(format!("the router has ended: {error}"));
        }
    }

    fn route(&mut self) -> Result<(), Errno> {
        // A sleep is to end when it should, not within the next 50 us. Both are refused in places:
        // the lateness tells what it costs.
        let _ = prctl::set_timerslack(1);
        let _ = sys::go_first();
        let mut flight = Flight::default();
        loop {
            let Some(ready) = self.wait(&flight)? else { return Ok(()) };
            for (from, is_ready) in ready {
                if is_ready {
                    self.take(from, &mut flight)?;
                }
            }
            self.deliver(&mut flight);
        }
    }

    /// Sleeps until a packet is due or has come. `None` when it is time to end.
    fn wait(&self, flight: &Flight) -> Result<Option<[(Side, bool); 2]>, Errno> {
        let mut ready = [&self.client, &self.server, &self.end]
            .map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN));
        let timeout = flight.packets.peek().map(|Reverse(next)| {
            TimeSpec::from_duration(Duration::from_nanos(next.at_ns.saturating_sub(self.now_ns())))
        });
        match ppoll(&mut ready, timeout, None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Some(Side::BOTH.map(|side| (side, false)))),
            Err(error) => return Err(error),
        }
        // Errors count as ready: the read tells which.
        let [client, server, end] = ready.map(|it| it.any().unwrap_or(true));
        Ok((!end).then_some([(Side::Client, client), (Side::Server, server)]))
    }

    /// Takes what `from` has sent, and decides what becomes of it.
    fn take(&mut self, from: Side, flight: &mut Flight) -> Result<(), Errno> {
        let to = from.other();
        for _ in 0..AT_ONCE {
            let mut bytes = flight.free.pop().unwrap_or_else(|| vec![0; PACKET_MAX]);
            bytes.resize(PACKET_MAX, 0);
            match read(self.packets(from), &mut bytes) {
                Ok(length) => bytes.truncate(length),
                Err(Errno::EAGAIN) => {
                    flight.free.push(bytes);
                    return Ok(());
                }
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error),
            }
            if is_ipv6(&bytes) {
                flight.free.push(bytes);
                continue;
            }
            let now_ns = self.now_ns();
            let fate = self.air.arrive(to, now_ns);
            let waiting = self.air.queue_packets(now_ns);
            let mut tally = lock(&self.tally);
            tally.queue(now_ns, waiting);
            let packets = tally.to(to);
            packets.arrived += 1;
            match fate {
                Fate::At(at_ns) => {
                    flight.taken += 1;
                    let number = flight.taken;
                    flight.packets.push(Reverse(Flying { at_ns, number, to, bytes }));
                    continue;
                }
                Fate::Dropped(Cause::QueueFull) => packets.queue_full += 1,
                Fate::Dropped(Cause::Lost) => packets.lost += 1,
                Fate::Dropped(Cause::Outage) => packets.outage += 1,
            }
            flight.free.push(bytes);
        }
        Ok(())
    }

    /// Gives every packet that is due to its side.
    fn deliver(&self, flight: &mut Flight) {
        while let Some(next) = flight.packets.peek_mut() {
            let late = self.now_ns().checked_sub(next.0.at_ns);
            let Some(late_ns) = late else { return };
            let Reverse(Flying { to, bytes, .. }) =
                std::collections::binary_heap::PeekMut::pop(next);
            let written = loop {
                match write(self.packets(to), &bytes) {
                    Err(Errno::EINTR) => {}
                    written => break written,
                }
            };
            let mut tally = lock(&self.tally);
            match written {
                Ok(_) => {
                    tally.to(to).delivered += 1;
                    tally.late(late_ns);
                }
                // No room, or a device that is down: a network would not wait for it either.
                Err(_) => tally.to(to).overrun += 1,
            }
            drop(tally);
            flight.free.push(bytes);
        }
    }

    fn packets(&self, side: Side) -> &OwnedFd {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// A TUN device sends these as well, on its own account. (A packet socket is bound to IPv4 alone, and
/// its packets begin with a hardware address, of which ours begins with 2.)
fn is_ipv6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

/// What was written down is whole after a panic as well.
pub fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}
