//! Misconception: with edges one has to ask for EPOLLRDHUP, or it would not be noticed that a client is gone.
//!
//! It says that the client has half-closed. Its request is there, or was read a moment ago, and it waits for the
//! answer.
//!
//! Killed by: a_half_closed_client_is_answered (does not answer)
//! Hint: You drop a client at EPOLLRDHUP. Which half has it closed, and what may it have said before?

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
    epoll.add(&listener, common::readable(LISTENER))?;
    let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let mut token_last = LISTENER;
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let deadline = clients.values().map(|it| it.deadline).min();
        let ready = common::wait(&epoll, &mut events, deadline)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == LISTENER {
                let Some(client) = Client::accept(&listener)? else { continue };
                token_last += 1;
                epoll.add(&client.socket, EpollEvent::new(edge, token_last))?;
                clients.insert(token_last, client);
            } else if event.events().contains(EpollFlags::EPOLLRDHUP)
                || clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token))
            {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
