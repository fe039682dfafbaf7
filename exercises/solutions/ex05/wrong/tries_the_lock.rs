//! Misconception: whoever must not sleep asks with `try_lock`, and does without when the lock is taken.
//!
//! The loop sleeps no more. The lock is held for as long as before, and whoever comes meanwhile is sent
//! away instead of waiting.
//!
//! Killed by: half_a_line_stalls_nobody (answers wrongly)
//! In other rows, timing decides whether it is seen.
//! Hint: Your loop no longer waits for the lock. What becomes of a client that comes while it is taken, and why is it taken for so long?

mod common;

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

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
                    // Nobody can be kept while the lock is taken: the client is dropped.
                    if let Ok(mut clients) = clients.try_lock() {
                        clients.insert(token_last, client);
                    }
                }
                Err(error) => common::survive(error)?,
            }
        }
    }
}

fn handle(clients: &Clients, token: u64) {
    if let Some(client) = clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&token) {
        let _ = common::converse(&client);
    }
}
