//! A thread for each connection: a client waits for nobody but the kernel's scheduler. What it costs is a
//! stack for each, in the process and in the kernel, and a thread's making and ending for each connection.

use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use anyhow::Context;
use http::OddEven;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::blocking::{self, Desk};
use crate::clock::Clock;
use crate::crowd::Crowd;
use crate::door::Door;
use crate::interrupt;
use crate::model::{Config, Model};
use crate::net::{self, Sharing};
use crate::stop::Stop;

/// A thread's stack. It is address space until it is used, and a conversation uses a few pages of it; the
/// default of 2 MiB is address space for nothing, which a limit on it would make us pay for.
const STACK_BYTES: usize = 128 * 1024;

/// Each thread has a buffer of its own, and most of them are idle.
const READ_BYTES: usize = 4 * 1024;

/// Address space that has to be left, where that is limited, before a thread is made: what a thread
/// allocates before it has begun ends the whole process when there is none. So large a block is always a
/// mapping of its own, which takes from what is left and not from what is kept.
const SPARE_BYTES: usize = 40 * 1024 * 1024;

/// A thread for each connection.
pub struct ThreadPerConnection;

impl Model for ThreadPerConnection {
    fn name(&self) -> &'static str {
        "thread-per-connection"
    }

    fn about(&self) -> &'static str {
        "a thread for each connection"
    }

    // ANCHOR: serve
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let stop = Stop::new()?;
        let crowd = Crowd::new(config.connections_max)?;
        let listener = net::listen(address, config, Sharing::Alone)?;
        net::announce(&listener)?;
        let door = Door::new(listener, config.connections_max);
        let (space, _) = getrlimit(Resource::RLIMIT_AS).context("getrlimit(RLIMIT_AS)")?;
        let mut house = House {
            door,
            crowd,
            clock: Clock::new(),
            config: config.clone(),
            app,
            is_space_limited: space != RLIM_INFINITY,
        };
        loop {
            let is_open = house.door.is_open(house.crowd.inside(), house.clock.now_ms());
            let listener = house.door.listener().context("the door is open until the end")?;
            let watched =
                [(stop.as_fd(), true), (house.crowd.room(), true), (listener.as_fd(), is_open)];
            let ready = blocking::ready(watched, &house.clock, house.door.wake_at_ms())?;
            let [is_asked_to_stop, is_room, has_come] = ready;
            if is_room {
                house.crowd.note_room();
            }
            if has_come {
                house.take_in()?;
            }
            if is_asked_to_stop && stop.heed()? {
                house.close();
                house.crowd.stop(config.drain_ms);
                return Ok(()); // Whoever is left ends with the process.
            }
        }
    }
    // ANCHOR_END: serve
}

/// What the first thread knows.
struct House {
    door: Door,
    crowd: Arc<Crowd>,
    clock: Clock,
    config: Config,
    app: OddEven,
    is_space_limited: bool,
}

impl House {
    // ANCHOR: accept
    /// The next one who waits outside, if there is anybody.
    fn take_in(&mut self) -> anyhow::Result<()> {
        if let Some(client) = self.door.accept_one(self.crowd.inside(), self.clock.now_ms())? {
            self.admit(client);
        }
        Ok(())
    }

    fn admit(&self, client: OwnedFd) {
        // Both have it: without a thread it is ours to refuse. The last one to let go closes it.
        let client = Arc::new(client);
        if self.start(Arc::clone(&client)).is_err() {
            // No thread for this one. It is told so at once, as is the next: nobody waits for what may never
            // come, and since each turn takes a client from the queue, this is no spin.
            net::refuse(&client);
        }
    }

    /// Makes the thread of `client`.
    fn start(&self, client: Arc<OwnedFd>) -> io::Result<()> {
        if self.is_space_limited {
            let mut spare = Vec::<u8>::new();
            spare.try_reserve_exact(SPARE_BYTES)?;
            drop(black_box(spare)); // Or the compiler would see that nobody uses it.
        }
        let (mut place, config, app) = (self.crowd.place(), self.config.clone(), self.app);
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            place.take();
            let mut desk = Desk::new(&config, app, READ_BYTES);
            blocking::converse(&client, &mut desk, || {});
        });
        started.map(drop)
    }
    // ANCHOR_END: accept

    /// The server stops. Who is in the queue already is let in, and nobody else.
    fn close(&mut self) {
        interrupt::stop(); // Before it shows: from now on each answer is the last.
        let queue = self.door.listener().map(|it| net::take_queue(it, self.config.backlog));
        self.door.close();
        for client in queue.unwrap_or_default() {
            match self.crowd.inside() < self.config.connections_max {
                true => self.admit(client),
                false => net::refuse(&client),
            }
        }
    }
}
