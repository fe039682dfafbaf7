//! Misconception: a server may end when nobody waits in its queue.
//!
//! Those whom it took in before are in its hands, and some of them are in the middle of their line. The end of the
//! process is the end of their connections.
//!
//! Killed by: a_restart_loses_nobody (does not answer)
//! Hint: You empty the queue and end. What becomes of a client who has been accepted and has said half of its line?

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
            if token == STOP {
                // Whoever waits has asked, and is answered. Then nobody is left.
                while let Some(mut client) = Client::accept(&listener)? {
                    client.advance();
                }
                return Ok(());
            } else if token == LISTENER {
                let Some(client) = Client::accept(&listener)? else { continue };
                token_last += 1;
                epoll.add(&client.socket, common::readable(token_last))?;
                clients.insert(token_last, client);
            } else if clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token)) {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
