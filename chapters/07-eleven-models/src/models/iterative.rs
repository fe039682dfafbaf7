//! Iterative: one client is served to its end, then the next. Everybody waits for the one who is served,
//! in the queue of the kernel; it costs nothing but their time.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use http::{Limits, OddEven};
use nix::sys::socket::SockFlag;

use crate::blocking::{self, Desk, READ_BYTES};
use crate::interrupt;
use crate::model::{Config, Model};
use crate::net::{self, Accepted, FAILURES_MAX, Sharing};

/// How long a client whose last answer has been sent may keep all others waiting while it closes. Shorter
/// than elsewhere, and long enough for the way to a client and back.
const LINGER_MS_MAX: u32 = 250;

/// How long nobody is accepted for want of a descriptor, which is not ours to free, or after many failures.
const PAUSE: Duration = Duration::from_millis(250);

/// One thread, one client at a time.
pub struct Iterative;

impl Model for Iterative {
    fn name(&self) -> &'static str {
        "iterative"
    }

    fn about(&self) -> &'static str {
        "one thread serves one client to its end, then the next"
    }

    // ANCHOR: serve
    fn serve(&self, address: SocketAddr, config: &Config, app: OddEven) -> anyhow::Result<()> {
        // No signalfd here: while a client is served, nobody would look at it.
        interrupt::allow_signals()?;
        let listener = net::listen(address, config, Sharing::Alone)?;
        net::set_blocking(&listener, true)?;
        net::announce(&listener)?;
        let linger_ms = config.limits.linger_ms.min(LINGER_MS_MAX);
        let config = Config { limits: Limits { linger_ms, ..config.limits }, ..config.clone() };
        let mut desk = Desk::new(&config, app, READ_BYTES);
        let mut listener = Some(listener);
        let mut queue = Vec::new();
        let mut failures = 0;
        while let Some(door) = &listener {
            if interrupt::is_stopping() {
                queue = net::take_queue(door, config.backlog);
                break;
            }
            match net::accept(door, SockFlag::empty())? {
                Accepted::Client(client) => {
                    failures = 0;
                    blocking::converse(&client, &mut desk, || {
                        // Asked to stop in the middle of it: nobody else comes in from this moment on.
                        let door = listener.take();
                        queue =
                            door.map(|it| net::take_queue(&it, config.backlog)).unwrap_or_default();
                    });
                }
                Accepted::Nobody => {}
                Accepted::Again if failures < FAILURES_MAX => failures += 1,
                Accepted::Again | Accepted::NoDescriptor => thread::sleep(PAUSE),
            }
        }
        drop(listener);
        // Who was in the queue already is answered, if its request has come.
        queue.into_iter().for_each(|it: OwnedFd| blocking::converse(&it, &mut desk, || {}));
        Ok(())
    }
    // ANCHOR_END: serve
}
