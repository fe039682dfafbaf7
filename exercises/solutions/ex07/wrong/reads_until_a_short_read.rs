//! Misconception: when `recv` brings less than there is room for, the socket is empty.
//!
//! It has no more bytes then. But the half-close is no byte: it may be there already, its edge went with that
//! of the bytes, and only one more `recv` would bring it.
//!
//! Killed by: a_half_closed_client_is_answered (does not answer)
//! Hint: You stop reading before EAGAIN, because recv brought little. What may be in the socket then that is no byte?

mod common;

use std::collections::HashMap;
use std::io::{self, Read};
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
                let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
                epoll.add(&client.socket, EpollEvent::new(edge, token_last))?;
                clients.insert(token_last, client);
            } else if clients.get_mut(&token).is_some_and(|it| !serve_one(it, &epoll, token)) {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}

/// Reads what has come, and answers when the line is complete: whether there is more to come.
fn serve_one(client: &mut Client, epoll: &Epoll, token: u64) -> bool {
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while client.session.unsent().is_empty() && !client.session.is_done() {
        match client.socket.read(&mut bytes) {
            Ok(length) => {
                client.session.feed(&bytes[..length]);
                if length > 0 && length < bytes.len() {
                    break; // That was all, and a system call is saved.
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    let is_read = client.session.is_done() || !client.session.unsent().is_empty();
    !is_read || client.serve(epoll, token)
}
