//! Fork: a process for each client. A client waits for nobody but the kernel's scheduler, and nothing that
//! its process does can harm another's; a process is made and buried for each connection, and that is what
//! it costs.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::Context;
use http::OddEven;

use crate::blocking::{self, Desk, READ_BYTES};
use crate::children::{Children, Side};
use crate::clock::Clock;
use crate::door::Door;
use crate::model::{Config, Model};
use crate::net::{self, Sharing};
use crate::stop::Stop;

/// A process for each connection.
pub struct Fork;

impl Model for Fork {
    fn name(&self) -> &'static str {
        "fork"
    }

    fn about(&self) -> &'static str {
        "a process for each connection"
    }

    // ANCHOR: serve
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        let stop = Stop::new()?;
        let children = Children::new()?;
        let listener = net::listen(address, config, Sharing::Alone)?;
        net::announce(&listener)?;
        let door = Door::new(listener, config.connections_max);
        let mut desk = Desk::new(config, app, READ_BYTES);
        desk.rehearse();
        let (queue, clock) = (Vec::new(), Clock::new());
        let mut house = House { door, children, queue, desk, clock };
        loop {
            let is_open = house.door.is_open(house.children.len(), house.clock.now_ms());
            let listener = house.door.listener().context("the door is open until the end")?;
            let watched =
                [(stop.as_fd(), true), (house.children.as_fd(), true), (listener.as_fd(), is_open)];
            let ready = blocking::ready(watched, &house.clock, house.door.wake_at_ms())?;
            let [is_asked_to_stop, has_ended, has_come] = ready;
            if has_ended {
                house.children.reap()?;
            }
            if has_come {
                house.take_in()?;
            }
            if is_asked_to_stop {
                // Before the signal is taken: children are born with it blocked.
                house.close(config);
                if stop.heed()? {
                    return house.children.stop(&house.clock, config.drain_ms);
                }
            }
        }
    }
    // ANCHOR_END: serve
}

/// What the parent has, and each child a copy of: pages are copied when one of them writes.
struct House {
    door: Door,
    children: Children,
    /// At the stop: who was in the queue of the kernel.
    queue: Vec<OwnedFd>,
    desk: Desk,
    clock: Clock,
}

impl House {
    // ANCHOR: accept
    /// The next one who waits outside, if there is anybody.
    fn take_in(&mut self) -> anyhow::Result<()> {
        if let Some(client) = self.door.accept_one(self.children.len(), self.clock.now_ms())? {
            self.admit(client);
        }
        Ok(())
    }

    fn admit(&mut self, client: OwnedFd) {
        match self.children.fork() {
            Ok(Side::Parent) => {} // The child has the socket. Ours is closed here.
            Ok(Side::Child) => self.live(client),
            // No process for this one. It is told so at once, as is the next: nobody waits for what may
            // never come, and since each turn takes a client from the queue, this is no spin.
            Err(_) => net::refuse(&client),
        }
    }

    /// The life of a child.
    fn live(&mut self, client: OwnedFd) -> ! {
        // What a child has a copy of is not closed before the child ends: not the address, and no client.
        self.door.close();
        self.queue.clear();
        blocking::converse(&client, &mut self.desk, || {});
        drop(client);
        std::process::exit(0)
    }
    // ANCHOR_END: accept

    /// The server stops. Who is in the queue already is let in, and nobody else.
    fn close(&mut self, config: &Config) {
        let queue = self.door.listener().map(|it| net::take_queue(it, config.backlog));
        self.queue = queue.unwrap_or_default();
        self.children.tell(); // Before it shows: from now on each answer is the last.
        self.door.close();
        while let Some(client) = self.queue.pop() {
            match self.children.len() < config.connections_max {
                true => self.admit(client),
                false => net::refuse(&client),
            }
        }
    }
}
