//! Thread pool: a fixed number of threads, each of which serves one client to its end, and a queue of
//! clients for them. No client pays for a thread. When there are more clients than threads, those who are
//! too many wait in the queue, and idle clients who keep their connections hold the threads until they are
//! let go.
//!
//! Nobody waits in the queue without end: a silent client is let go after `--idle-ms`, and whoever is in the
//! queue for that and `--patience-ms` more is told 503, and when to come again. A queue that is full takes
//! nobody in, and whoever comes then waits in the queue of the kernel.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Context;
use http::OddEven;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::blocking::{self, Desk, READ_BYTES};
use crate::clock::Clock;
use crate::crowd::Crowd;
use crate::door::Door;
use crate::interrupt;
use crate::model::{Config, Model};
use crate::net::{self, Sharing};
use crate::options;
use crate::stop::Stop;

/// A thread's stack, of which a conversation uses a few pages.
const STACK_BYTES: usize = 128 * 1024;

/// How many clients wait for a thread at most.
const QUEUE_MAX: usize = 1024;

/// A fixed number of threads.
pub struct ThreadPool;

impl Model for ThreadPool {
    fn name(&self) -> &'static str {
        "thread-pool"
    }

    fn about(&self) -> &'static str {
        "a fixed number of threads, each serves one client to its end"
    }

    // ANCHOR: serve
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let stop = Stop::new()?;
        let listener = net::listen(address, config, Sharing::Alone)?;
        let (queue, crowd) = (Queue::new(config)?, Crowd::new(config.pool)?);
        hire(&queue, &crowd, config, app)?;
        net::announce(&listener)?;
        let mut door = Door::new(listener, config.connections_max);
        let clock = Clock::new();
        loop {
            let Look { inside, has_room, late_at_ms } = queue.look();
            let is_open = door.is_open(inside, clock.now_ms()) && has_room;
            let listener = door.listener().context("the door is open until the end")?;
            let watched = [(stop.as_fd(), true), (queue.room(), true), (listener.as_fd(), is_open)];
            let wake_at = [door.wake_at_ms(), late_at_ms].into_iter().flatten().min();
            let [is_asked_to_stop, is_room, has_come] = blocking::ready(watched, &clock, wake_at)?;
            let now_ms = clock.now_ms();
            if is_room {
                queue.note_room();
            }
            queue.refuse_late(now_ms);
            if has_come && let Some(client) = door.accept_one(inside, now_ms)? {
                queue.push(client, now_ms);
            }
            if is_asked_to_stop && stop.heed()? {
                interrupt::stop(); // Before it shows: from now on each answer is the last.
                let last = door.listener().map(|it| net::take_queue(it, config.backlog));
                for client in last.unwrap_or_default() {
                    match queue.look().inside < config.connections_max {
                        true => queue.push(client, now_ms),
                        false => net::refuse(&client),
                    }
                }
                door.close();
                queue.close();
                crowd.stop(config.drain_ms);
                return Ok(()); // Whoever is left ends with the process.
            }
        }
    }
    // ANCHOR_END: serve
}

// ANCHOR: hire
/// Starts the threads.
///
/// # Errors
///
/// When there is none at all.
fn hire(
    queue: &Arc<Queue>,
    crowd: &Arc<Crowd>,
    config: &Config,
    app: OddEven,
) -> anyhow::Result<()> {
    for hired in 0..config.pool {
        let (mut place, queue, settings) = (crowd.place(), Arc::clone(queue), config.clone());
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            place.take();
            work(&queue, &settings, app);
        });
        match thread {
            Ok(_) => {}
            Err(error) if hired == 0 => {
                return Err(error).context("no thread can be made: see `ulimit -u`");
            }
            Err(error) => {
                options::say(format_args!(
                    "ch07: {hired} of {} threads: see `ulimit -u`: {error}",
                    config.pool
                ));
                break;
            }
        }
    }
    Ok(())
}

/// The life of a thread: one client after the other.
fn work(queue: &Queue, config: &Config, app: OddEven) {
    let mut desk = Desk::new(config, app, READ_BYTES);
    while let Some(client) = queue.pop() {
        // What goes wrong with one client must not cost the pool a thread.
        let talk = AssertUnwindSafe(|| blocking::converse(&client, &mut desk, || {}));
        if catch_unwind(talk).is_err() {
            desk = Desk::new(config, app, READ_BYTES);
        }
        drop(client);
        queue.done();
    }
}
// ANCHOR_END: hire

// ANCHOR: queue
/// Clients who wait for a thread.
struct Queue {
    waiting: Mutex<Waiting>,
    somebody_came: Condvar,
    /// Becomes readable when there is room again after [`Queue::look`] has found none.
    room: EventFd,
    connections_max: usize,
    patience_ms: u64,
}

struct Waiting {
    /// Each with the time when it will have waited too long.
    clients: VecDeque<(OwnedFd, u64)>,
    /// How many are being served.
    served: usize,
    is_room_wanted: bool,
    is_closed: bool,
}

/// What the first thread has to know of the queue before it waits.
struct Look {
    /// How many clients wait or are served.
    inside: usize,
    has_room: bool,
    /// When the first of those who wait will have waited too long.
    late_at_ms: Option<u64>,
}

impl Queue {
    fn new(config: &Config) -> anyhow::Result<Arc<Queue>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let waiting = Waiting {
            clients: VecDeque::new(),
            served: 0,
            is_room_wanted: false,
            is_closed: false,
        };
        Ok(Arc::new(Queue {
            waiting: Mutex::new(waiting),
            somebody_came: Condvar::new(),
            room: EventFd::from_flags(flags).context("eventfd")?,
            connections_max: config.connections_max,
            patience_ms: u64::from(config.limits.idle_patience_ms)
                + u64::from(config.limits.head_patience_ms),
        }))
    }

    /// For the first thread: one more.
    fn push(&self, client: OwnedFd, now_ms: u64) {
        self.waiting().clients.push_back((client, now_ms + self.patience_ms));
        self.somebody_came.notify_one();
    }

    /// For a thread of the pool: the next one. Sleeps until there is one; nothing after
    /// [`Queue::close`], when the queue is empty.
    fn pop(&self) -> Option<OwnedFd> {
        let is_nobody_here = |it: &mut Waiting| it.clients.is_empty() && !it.is_closed;
        let woken = self.somebody_came.wait_while(self.waiting(), is_nobody_here);
        let mut waiting = woken.unwrap_or_else(PoisonError::into_inner);
        let (client, _) = waiting.clients.pop_front()?;
        waiting.served += 1;
        self.tell_of_room(waiting);
        Some(client)
    }

    /// For a thread of the pool: the one whom it served has gone.
    fn done(&self) {
        let mut waiting = self.waiting();
        waiting.served -= 1;
        self.tell_of_room(waiting);
    }

    /// Who has waited too long is told that it waits in vain.
    fn refuse_late(&self, now_ms: u64) {
        let mut waiting = self.waiting();
        let late =
            waiting.clients.iter().take_while(|(_, late_at_ms)| *late_at_ms <= now_ms).count();
        let late: Vec<_> = waiting.clients.drain(..late).collect();
        drop(waiting);
        late.iter().for_each(|(client, _)| net::refuse(client));
    }

    /// Nobody comes any more.
    fn close(&self) {
        self.waiting().is_closed = true;
        self.somebody_came.notify_all();
    }

    fn look(&self) -> Look {
        let mut waiting = self.waiting();
        let inside = waiting.clients.len() + waiting.served;
        let has_room = waiting.clients.len() < QUEUE_MAX && inside < self.connections_max;
        waiting.is_room_wanted |= !has_room;
        Look { inside, has_room, late_at_ms: waiting.clients.front().map(|it| it.1) }
    }

    fn tell_of_room(&self, mut waiting: MutexGuard<'_, Waiting>) {
        let is_room_wanted = std::mem::take(&mut waiting.is_room_wanted);
        drop(waiting);
        if is_room_wanted {
            let _ = self.room.write(1);
        }
    }

    fn room(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    fn note_room(&self) {
        let _ = self.room.read();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
// ANCHOR_END: queue

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use http::Limits;

    use super::*;

    fn queue(connections_max: usize) -> Arc<Queue> {
        let limits = Limits { head_patience_ms: 40, idle_patience_ms: 60, ..Limits::default() };
        let config = Config {
            workers: 1,
            pool: 1,
            backlog: 1024,
            limits,
            drain_ms: 1,
            connections_max,
            batch_wait_us: 0,
        };
        Queue::new(&config).unwrap()
    }

    #[test]
    fn who_has_waited_too_long_is_told_so_and_nobody_else() {
        let queue = queue(10);
        let (mut first, theirs) = UnixStream::pair().unwrap();
        queue.push(theirs.into(), 0);
        let (_second, theirs) = UnixStream::pair().unwrap();
        queue.push(theirs.into(), 1);
        assert_eq!(queue.look().late_at_ms, Some(100));
        queue.refuse_late(99);
        assert_eq!(queue.look().inside, 2);
        queue.refuse_late(100);
        assert_eq!(queue.look().inside, 1);
        let mut told = String::new();
        first.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    }

    #[test]
    fn whom_a_thread_serves_takes_room_until_it_has_gone() {
        let queue = queue(1);
        let (_client, theirs) = UnixStream::pair().unwrap();
        queue.push(theirs.into(), 0);
        assert!(!queue.look().has_room);
        assert!(queue.pop().is_some());
        assert!(!queue.look().has_room);
        queue.done();
        assert!(queue.look().has_room);
        assert_eq!(queue.room.read(), Ok(2)); // Told each time that somebody may wait for it.
        queue.close();
        assert!(queue.pop().is_none());
    }
}
