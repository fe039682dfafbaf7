//! Misconception: nobody is to be lost, so whoever has been begun with is waited for, however long that takes.
//!
//! One of them is the stalled client, and it is in no hurry. The server never ends, and whoever wants to replace
//! it has to kill it, with all the others in its hands.
//!
//! Killed by: it_restarts_at_once (goes on when asked to stop)
//! In other rows, timing decides whether it is seen.
//! Hint: Asked to stop, your server does not end while one client is in the middle of its line. How long does a client have, and does that change when you leave?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

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
    loop {
        let deadline = clients.values().map(|it| it.deadline).min();
        let ready = common::wait(&epoll, &mut events, deadline)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == LISTENER || token == STOP {
                while let Some(client) = Client::accept(&listener)? {
                    token_last += 1;
                    epoll.add(&client.socket, common::readable(token_last))?;
                    clients.insert(token_last, client);
                }
                if token == STOP {
                    drop(listener);
                    epoll.delete(stop)?;
                    return finish(&epoll, clients);
                }
            } else if clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token)) {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}

/// Waits for the last clients.
fn finish(epoll: &Epoll, mut clients: HashMap<u64, Client>) -> anyhow::Result<()> {
    let mut events = [EpollEvent::empty(); 256];
    while !clients.is_empty() {
        let ready = common::wait(epoll, &mut events, None)?;
        for event in &events[..ready] {
            let token = event.data();
            if clients.get_mut(&token).is_some_and(|it| !it.serve(epoll, token)) {
                clients.remove(&token);
            }
        }
    }
    Ok(())
}
