//! Misconception: readers do not exclude each other, so that a read lock may be held for as long as one likes.
//!
//! Readers let readers in, and keep the writer out. The writer here is the loop, with the next client in
//! its hand, and it waits for the slowest of all readers.
//!
//! Killed by: half_a_line_stalls_nobody (others wait for its 2 s of patience)
//! Hint: Your threads share the lock. Who has to have it alone, how often, and whom does it wait for?

mod common;

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

type Clients = Arc<RwLock<HashMap<u64, TcpStream>>>;

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
                    let mut clients = clients.write().unwrap_or_else(PoisonError::into_inner);
                    clients.insert(token_last, client);
                }
                Err(error) => common::survive(error)?,
            }
        }
    }
}

fn handle(clients: &Clients, token: u64) {
    let shared = clients.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = shared.get(&token) {
        let _ = common::converse(client);
    }
    drop(shared);
    clients.write().unwrap_or_else(PoisonError::into_inner).remove(&token);
}
