//! Misconception: a server that has deadlines has to look at the clock often.
//!
//! It has to wake up when the first deadline has come. A server that wakes a hundred times a second keeps a core
//! from sleeping, for nobody.
//!
//! Killed by: an_idle_server_burns_no_cpu (burns CPU time)
//! Hint: You wake up at short intervals to see whether somebody is late. When does the next thing happen that you have to wake up for?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};

const LISTENER: u64 = 0;

/// How often it looks who is late.
const TICK: Duration = Duration::from_millis(10);

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
        let ready = common::wait(&epoll, &mut events, Some(Instant::now() + TICK))?;
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
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
