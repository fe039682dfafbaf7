//! Misconception: with the clients it is bytes that get lost, so it is enough to read each of them until EAGAIN.
//!
//! The listener is a descriptor like any other. It, too, tells once that somebody is there, and whoever is
//! left in its queue waits until a stranger connects.
//!
//! Killed by: a_burst_of_connects_is_queued (does not answer)
//! In other rows, timing decides whether it is seen.
//! Hint: You read each client until EAGAIN, and stop accepting after a share. Who tells you of those who are left in the queue?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

const LISTENER: u64 = 0;

/// How many clients are taken in before those who are already in have their turn again.
const ACCEPTS_MAX: usize = 16;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
    epoll.add(&listener, EpollEvent::new(edge, LISTENER))?;
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let mut token_last = LISTENER;
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let deadline = clients.values().map(|it| it.deadline).min();
        let ready = common::wait(&epoll, &mut events, deadline)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == LISTENER {
                for _ in 0..ACCEPTS_MAX {
                    let Some(client) = Client::accept(&listener)? else { break };
                    token_last += 1;
                    epoll.add(&client.socket, EpollEvent::new(edge, token_last))?;
                    clients.insert(token_last, client);
                }
            } else if clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token)) {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
