//! Misconception: to stop in good order, close the listener first, so that nobody new comes.
//!
//! Whoever waits in its queue has come already, and is reset by the close. Those who were accepted are all
//! answered, so that in the server's own books nobody is missing.
//!
//! Killed by: a_restart_loses_nobody (resets the connection)
//! Hint: You finish with everybody whom you have accepted. Who has connected by then, and has not been accepted?

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
    let mut open = Some(listener);
    loop {
        let deadline = clients.values().map(|it| it.deadline).min();
        let ready = common::wait(&epoll, &mut events, deadline)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == STOP {
                epoll.delete(stop)?;
                open = None; // This closes it.
            } else if token == LISTENER {
                let Some(listener) = &open else { continue };
                let Some(client) = Client::accept(listener)? else { continue };
                token_last += 1;
                epoll.add(&client.socket, common::readable(token_last))?;
                clients.insert(token_last, client);
            } else if clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token)) {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
        if open.is_none() && clients.is_empty() {
            return Ok(());
        }
    }
}
