//! Misconception: the deadline of a client who has left does no harm, since there is nobody to let go.
//!
//! It is the first deadline from some moment on, and in the past: `epoll_wait` gets the timeout zero, again and
//! again.
//!
//! Killed by: an_idle_server_burns_no_cpu (burns CPU time)
//! Hint: Some seconds after its first client your server wants a whole core. Whose deadline does it wait for, and is that client still there?

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
    let mut deadlines: Vec<(Instant, u64)> = Vec::new();
    let mut token_last = LISTENER;
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let first = deadlines.first().map(|it| it.0);
        let ready = common::wait(&epoll, &mut events, first)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == LISTENER {
                let Some(client) = Client::accept(&listener)? else { continue };
                token_last += 1;
                epoll.add(&client.socket, common::readable(token_last))?;
                deadlines.push((client.deadline, token_last));
                clients.insert(token_last, client);
            } else if clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token)) {
                clients.remove(&token);
            }
        }
        deadlines.retain(|&(deadline, token)| {
            let is_late = deadline <= Instant::now() && clients.remove(&token).is_some();
            !is_late
        });
    }
}
