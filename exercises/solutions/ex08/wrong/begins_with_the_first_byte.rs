//! Misconception: the time of a request begins when the request does, with its first byte.
//!
//! Then a client who never sends one has no deadline, and its place in the server for ever.
//!
//! Killed by: a_silent_client_is_let_go (held for ever)
//! Hint: A client who says nothing at all is never let go. From which moment on does its time count, and does that moment come?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};

const LISTENER: u64 = 0;

/// For those who have not begun.
const NO_DEADLINE: Duration = Duration::from_secs(3600);

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
                let Some(mut client) = Client::accept(&listener)? else { continue };
                client.deadline += NO_DEADLINE;
                token_last += 1;
                epoll.add(&client.socket, common::readable(token_last))?;
                clients.insert(token_last, client);
            } else if let Some(client) = clients.get_mut(&token) {
                // The first event is the first byte.
                client.deadline = client.deadline.min(Instant::now() + common::PATIENCE);
                if !client.serve(&epoll, token) {
                    clients.remove(&token);
                }
            }
        }
        clients.retain(|_, it| it.deadline > Instant::now());
    }
}
