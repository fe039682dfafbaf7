//! Misconception: an event of a client is one `recv`.
//!
//! Edge-triggered, it says that bytes came, once. What does not fit the buffer stays in the
//! socket, and there is no other event for it until the client sends again, which it has no reason
//! to.
//!
//! Killed by: answers_odd_even_invalid (does not answer)

mod common;

use std::collections::HashMap;
use std::io::{Read, Write};
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
    let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
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
                epoll.add(&client.socket, EpollEvent::new(interest, token_last))?;
                clients.insert(token_last, client);
            } else if clients.get_mut(&token).is_some_and(|it| !read_once(it)) {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}

/// Reads what came and answers when the line is complete: whether there is more to come.
fn read_once(Client { socket, session, .. }: &mut Client) -> bool {
    let mut bytes = [0; 16]; // More than any number needs that a client asked for so far.
    let Ok(length) = socket.read(&mut bytes) else { return false };
    session.feed(&bytes[..length]);
    while !session.unsent().is_empty() {
        let Ok(length) = socket.write(session.unsent()) else { return false };
        session.sent(length);
        if session.is_done() {
            let _ = common::hang_up(socket);
        }
    }
    !session.is_done()
}
