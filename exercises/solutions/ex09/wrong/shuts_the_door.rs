//! Misconception: `shutdown` of a listener shuts the door and leaves those who are inside.
//!
//! It ends the listener, and resets all who wait in its queue: their handshakes are done and their requests sent.
//! `accept` then says EINVAL, and not who they were.
//!
//! Killed by: a_restart_loses_nobody (resets the connection)
//! Hint: Before you close it you call shutdown on the listener. Ask accept afterwards who is in the queue: what does it say, and what did they hear?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{Shutdown, shutdown};

const LISTENER: u64 = 0;
const STOP: u64 = 1;

fn main() -> ExitCode {
    common::run_on(common::listen_shared, |listener| {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        signals.thread_block().context("sigprocmask")?;
        let stop = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).context("signalfd")?;
        serve(listener, &stop)
    })
}

fn serve(listener: TcpListener, stop: &SignalFd) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, common::readable(LISTENER))?;
    epoll.add(stop, common::readable(STOP))?;
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let mut token_last = STOP;
    let mut events = [EpollEvent::empty(); 256];
    let mut is_leaving = false;
    loop {
        let deadline = clients.values().map(|it| it.deadline).min();
        let ready = common::wait(&epoll, &mut events, deadline)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == STOP {
                epoll.delete(stop)?;
                // From here on nobody new gets in; those who did are accepted as before.
                shutdown(listener.as_raw_fd(), Shutdown::Both)?;
                is_leaving = true;
            }
            if token == LISTENER || token == STOP {
                match Client::accept(&listener) {
                    Ok(Some(client)) => {
                        token_last += 1;
                        epoll.add(&client.socket, common::readable(token_last))?;
                        clients.insert(token_last, client);
                    }
                    Ok(None) => {}
                    Err(_) if is_leaving => {
                        let _ = epoll.delete(&listener); // The queue is empty.
                    }
                    Err(error) => return Err(error),
                }
            } else if clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token)) {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
        if is_leaving && clients.is_empty() {
            return Ok(());
        }
    }
}
