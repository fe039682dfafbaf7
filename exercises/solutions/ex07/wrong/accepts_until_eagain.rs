//! Misconception: with edges one accepts until EAGAIN, whatever else `accept` says.
//!
//! Without a descriptor `accept` says EMFILE before it looks at the queue: EAGAIN never comes, and the loop
//! that waits for it has the core for itself.
//!
//! Killed by: running_out_of_descriptors_does_not_spin (burns CPU time)
//! Hint: Your loop around accept ends at EAGAIN alone. What does accept say when there is no descriptor left, and what next?

mod common;

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use oddeven::Session;

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
        let deadline = clients.values().map(|it| it.deadline).min();
        let ready = common::wait(&epoll, &mut events, deadline)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == LISTENER {
                while let Some(client) = next(&listener)? {
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

/// The next client, or `None` when the queue is empty.
fn next(listener: &TcpListener) -> anyhow::Result<Option<Client>> {
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(true)?;
                let (session, deadline) = (Session::new(), Instant::now() + common::PATIENCE);
                return Ok(Some(Client { socket, session, deadline }));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(_) => {} // That one went away. The next one may be there.
        }
    }
}
