//! Misconception: an interrupted call is made again when the next event comes.
//!
//! With levels that is so. The edge has been told: what the interrupted `recv` did not take is still there,
//! and no event is to come for it.
//!
//! Killed by: a_signal_loses_nobody (does not answer)
//! Hint: You treat EINTR as EAGAIN. After EAGAIN an edge is to come; what is to come after EINTR?

mod common;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use oddeven::LINE_BYTES_MAX;

const LISTENER: u64 = 0;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, common::readable(LISTENER))?;
    let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
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
                epoll.add(&client.socket, EpollEvent::new(both, token_last))?;
                clients.insert(token_last, client);
            } else if clients.get_mut(&token).is_some_and(|it| !converse(it)) {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}

/// Reads and answers as far as that goes without waiting: whether it has to go on later.
fn converse(Client { socket, session, .. }: &mut Client) -> bool {
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while !session.is_done() {
        let result = if session.unsent().is_empty() {
            socket.read(&mut bytes).map(|length| session.feed(&bytes[..length]))
        } else {
            socket.write(session.unsent()).map(|length| session.sent(length))
        };
        if let Err(error) = result {
            return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
        }
    }
    let _ = common::hang_up(socket);
    false
}
