//! Misconception: who has begun a line sends the rest of it soon, and a deadline bounds the wait.
//!
//! It bounds the wait for that client, who is let go in time. All the others have waited for it, too: the one
//! thread slept in a `recv` and not in `epoll_wait`.
//!
//! Killed by: half_a_line_stalls_nobody (others wait for its 2 s of patience)
//! In other rows, timing decides whether it is seen.
//! Hint: Your deadline ends a recv. Where does your thread sleep until then, and who else is served meanwhile?

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
            } else if let Some(client) = clients.remove(&token) {
                client.socket.set_nonblocking(false)?;
                let _ = common::converse_until(&client.socket, client.deadline);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
