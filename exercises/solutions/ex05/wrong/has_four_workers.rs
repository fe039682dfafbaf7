//! Misconception: four threads serve four clients at once, so that one that stalls leaves three.
//!
//! Four that stall leave none. A thread that may sleep on a client is worth one client, and a stalled one
//! costs nothing to whoever sends it.
//!
//! Killed by: half_a_line_stalls_nobody (others wait until it lets go)
//! Hint: One client that stalls is no trouble to you. How many of them does it take until it is?

mod common;

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

const WORKERS: usize = 4;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, common::readable(0))?;
    let mut clients = HashMap::new();
    let (ready_clients, queue) = mpsc::channel();
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..WORKERS {
        let queue = Arc::clone(&queue);
        thread::spawn(move || work(&queue));
    }
    let mut token_last = 0;
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let ready = common::wait(&epoll, &mut events, None)?;
        for event in &events[..ready] {
            let token = event.data();
            if token != 0 {
                if let Some(client) = clients.remove(&token) {
                    ready_clients.send(client)?;
                }
                continue;
            }
            match listener.accept() {
                Ok((client, _)) => {
                    token_last += 1;
                    let once = EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT;
                    epoll.add(&client, EpollEvent::new(once, token_last))?;
                    clients.insert(token_last, client);
                }
                Err(error) => common::survive(error)?,
            }
        }
    }
}

fn work(queue: &Mutex<mpsc::Receiver<TcpStream>>) {
    loop {
        let client = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(client) = client else { return };
        let _ = common::converse(&client);
    }
}
