//! Misconception: an event says that something has happened, and a look at everybody finds out what.
//!
//! With ten clients that is ten calls. Most of the thousands that are connected have nothing to say, and each answer
//! pays for asking all of them.
//!
//! Killed by: idle_connections_slow_nobody (each idle client makes answers dearer)

mod common;

use std::process::ExitCode;

use common::{Client, Core};
use http::OddEven;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// The longest wait: when somebody's time has come is seen as late as that.
const WAIT_MS_MAX: u16 = 50;

fn main() -> ExitCode {
    common::run(|listener, config| {
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let mut core = Core::new(config.limits, OddEven);
        let mut clients: Vec<Client> = Vec::new();
        loop {
            let mut events = [EpollEvent::empty(); 64];
            match epoll.wait(&mut events, EpollTimeout::from(WAIT_MS_MAX)) {
                Ok(_) | Err(Errno::EINTR) => common::clock(&mut core),
                Err(errno) => return Err(errno.into()),
            }
            while let Some(client) = common::accept(&listener, &mut core, clients.len(), &config)? {
                epoll.add(&client.socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
                clients.push(client);
            }
            clients.retain_mut(|client| {
                client.connection.expire(&mut core, common::now_ms());
                common::turn(client, &mut core)
            });
        }
    })
}
