//! Misconception: a socket that is open is connected, so it has a peer with an address.
//!
//! After a reset, `getpeername` fails with ENOTCONN, on a socket that `accept` has just returned as
//! well as on any other. A port scan is enough to end this server.
//!
//! Killed by: resets_harm_nobody_else (the server ends)

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

#[expect(clippy::unwrap_used, reason = "the misconception")]
fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, common::readable(LISTENER))?;
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let mut turns = HashMap::new();
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
                // How much of our time each address takes.
                let peer = client.socket.peer_addr().unwrap();
                *turns.entry(peer.ip()).or_insert(0_u64) += 1;
                if !client.serve(&epoll, token) {
                    clients.remove(&token);
                }
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
