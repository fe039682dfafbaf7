//! Misconception: when somebody is late, `epoll_wait` says so by returning no event.
//!
//! It returns none when nobody at all has done anything for so long. On a busy server that is never the case,
//! and a client that drips keeps its own server busy.
//!
//! Killed by: a_dripping_client_is_let_go (each byte renews the patience)
//! Hint: You look for those who are late when epoll_wait has returned no event. How often is that when somebody sends a byte now and then?

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
        let in_two_seconds = clients.values().next().map(|_| Instant::now() + common::PATIENCE);
        let ready = common::wait(&epoll, &mut events, in_two_seconds)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == LISTENER {
                let Some(client) = Client::accept(&listener)? else { continue };
                token_last += 1;
                epoll.add(&client.socket, common::readable(token_last))?;
                clients.insert(token_last, client);
            } else if clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token)) {
                clients.remove(&token);
            }
        }
        if ready == 0 {
            clients.retain(|_, it| it.deadline > Instant::now());
        }
    }
}
