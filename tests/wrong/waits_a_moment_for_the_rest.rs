//! Misconception: the rest of a line is only a moment away.
//!
//! This server knows that a line can come in pieces and that a read may return EAGAIN. It sleeps a
//! little and tries again, with a limit. It sleeps in its only thread: the moment is everybody's.
//!
//! Killed by: half_a_line_stalls_nobody (others wait for its 2 s of patience)

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

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
            } else if let Some(mut client) = clients.remove(&token) {
                while client.serve(&epoll, token) && client.deadline > Instant::now() {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
