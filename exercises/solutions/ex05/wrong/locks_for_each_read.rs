//! Misconception: a lock that is taken for one `recv` at a time is never held for long.
//!
//! One `recv` takes as long as its client likes. Whoever wants the lock meanwhile waits for that client.
//!
//! Killed by: half_a_line_stalls_nobody (others wait for its 2 s of patience)
//! Hint: You take the lock for a short piece of the program. Which call stands in that piece, and how long may it sleep?

mod common;

use std::collections::HashMap;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use oddeven::{LINE_BYTES_MAX, Session};

type Clients = Arc<Mutex<HashMap<u64, TcpStream>>>;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, common::readable(0))?;
    let clients = Clients::default();
    let mut token_last = 0;
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let ready = common::wait(&epoll, &mut events, None)?;
        for event in &events[..ready] {
            let (clients, token) = (Arc::clone(&clients), event.data());
            if token != 0 {
                thread::spawn(move || handle(&clients, token));
                continue;
            }
            match listener.accept() {
                Ok((client, _)) => {
                    token_last += 1;
                    let once = EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT;
                    epoll.add(&client, EpollEvent::new(once, token_last))?;
                    let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
                    clients.insert(token_last, client);
                }
                Err(error) => common::survive(error)?,
            }
        }
    }
}

fn handle(clients: &Clients, token: u64) {
    let locked = || clients.lock().unwrap_or_else(PoisonError::into_inner);
    let deadline = Instant::now() + common::PATIENCE;
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while session.unsent().is_empty() && !session.is_done() {
        let clients = locked();
        let Some(mut client) = clients.get(&token) else { return };
        let left = deadline.saturating_duration_since(Instant::now());
        let read = client.set_read_timeout(Some(left)).and_then(|()| client.read(&mut bytes));
        drop(clients);
        match read {
            Ok(length) => session.feed(&bytes[..length]),
            Err(_) => break,
        }
    }
    let client = locked().remove(&token);
    if let Some(client) = client {
        let _ = common::answer(&client, session.unsent());
    }
}
