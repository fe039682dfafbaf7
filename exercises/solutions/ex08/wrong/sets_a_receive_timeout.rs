//! Misconception: SO_RCVTIMEO lets a client go that is too slow, as in chapter 02.
//!
//! It ends a `recv` that sleeps. On a descriptor that does not block no `recv` sleeps, and the option says
//! nothing to epoll.
//!
//! Killed by: a_silent_client_is_let_go (held for ever)
//! Breaks too: a_dripping_client_is_let_go (held for ever)
//! Hint: A receive timeout ends a recv that sleeps. Which call of this server sleeps, and on whom?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;

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
        let ready = common::wait(&epoll, &mut events, None)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == LISTENER {
                let Some(client) = Client::accept(&listener)? else { continue };
                client.socket.set_read_timeout(Some(common::PATIENCE))?;
                token_last += 1;
                epoll.add(&client.socket, common::readable(token_last))?;
                clients.insert(token_last, client);
            } else if clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token)) {
                clients.remove(&token);
            }
        }
    }
}
