//! Misconception: since an edge may be missed, it is safest to ask again everybody who is not done.
//!
//! Then nobody is lost, and the server no longer sleeps while anybody is connected who says nothing. What
//! is to be remembered is who was *left* before EAGAIN, and not who is there.
//!
//! Killed by: an_idle_server_burns_no_cpu (burns CPU time)
//! In other rows, timing decides whether it is seen.
//! Hint: Your server never sleeps while a client is silent. Whom do you ask again, and which of them has already said EAGAIN?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

const LISTENER: u64 = 0;

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
        // Without anybody there it sleeps; otherwise somebody may have been missed.
        let now = clients.values().next().map(|_| Instant::now());
        common::wait(&epoll, &mut events, now)?;
        while let Some(client) = Client::accept(&listener)? {
            token_last += 1;
            epoll.add(&client.socket, EpollEvent::new(edge, token_last))?;
            clients.insert(token_last, client);
        }
        clients.retain(|token, it| it.serve(&epoll, *token) && it.deadline > Instant::now());
    }
}
