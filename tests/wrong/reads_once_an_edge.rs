//! Misconception: an event of a client is one `recv`.
//!
//! Edge-triggered, it says that bytes came, once. What does not fit the buffer stays in the
//! socket, and there is no other event for it until the client sends again, which it has no reason
//! to.
//!
//! Killed by: answers_odd_even_invalid (does not answer)

mod common;

use std::collections::HashMap;
use std::io::{self, Read};
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
    let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
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
            } else if let Some(client) = clients.get_mut(&token) {
                let is_last = event.events().contains(EpollFlags::EPOLLRDHUP);
                let goes_on = if is_last { Client::serve } else { read_once };
                if !goes_on(client, &epoll, token) {
                    clients.remove(&token);
                }
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}

/// Reads what came and answers when the line is complete: whether there is more to come.
fn read_once(client: &mut Client, epoll: &Epoll, token: u64) -> bool {
    let mut bytes = [0; 32]; // More than any number has that a client asked for so far.
    if client.session.unsent().is_empty() {
        match client.socket.read(&mut bytes) {
            Ok(length) => client.session.feed(&bytes[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return read_once(client, epoll, token);
            }
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    let is_read = client.session.is_done() || !client.session.unsent().is_empty();
    !is_read || client.serve(epoll, token)
}
