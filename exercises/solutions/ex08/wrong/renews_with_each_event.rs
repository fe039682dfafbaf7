//! Misconception: a client that does something is not stalled, so its time begins anew with each event.
//!
//! Then the time is one between two bytes, and the request has as many of them as it has bytes. The drip needs
//! no more.
//!
//! Killed by: a_dripping_client_is_let_go (each byte renews the patience)
//! Hint: Each event of a client moves its deadline. How long may a request of 64 bytes take in all, then?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};

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
                epoll.add(&client.socket, common::readable(token_last))?;
                clients.insert(token_last, client);
            } else if let Some(client) = clients.get_mut(&token) {
                client.deadline = Instant::now() + common::PATIENCE;
                if !client.serve(&epoll, token) {
                    clients.remove(&token);
                }
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
