//! Misconception: a client accepted by a non-blocking listener does not block.
//!
//! On Linux it does: O_NONBLOCK is not inherited. Where it says "until there is no more", the loop
//! sleeps in `recv` until the rest of the line has come, and everybody else with it.
//!
//! Killed by: half_a_line_stalls_nobody (others wait until it lets go)

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};
use oddeven::Session;

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
                match listener.accept() {
                    Ok((socket, _)) => {
                        token_last += 1;
                        epoll.add(&socket, common::readable(token_last))?;
                        let (session, deadline) =
                            (Session::new(), Instant::now() + common::PATIENCE);
                        clients.insert(token_last, Client { socket, session, deadline });
                    }
                    Err(error) => common::survive(error)?,
                }
            } else if clients.get_mut(&token).is_some_and(|it| !it.serve(&epoll, token)) {
                clients.remove(&token);
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
