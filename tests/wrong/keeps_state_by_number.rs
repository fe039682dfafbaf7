//! Misconception: a descriptor's number names a client, so its state can be kept under the number.
//!
//! The state is dropped when the line is complete. A client that leaves before it leaves its half
//! line to the next one, who gets the same number and is answered for both.
//!
//! Killed by: a_reused_descriptor_is_a_new_client (answers wrongly)

mod common;

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Instant;

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};
use oddeven::Session;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let listener_number = listener.as_raw_fd() as u64;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, common::readable(listener_number))?;
    let mut clients: HashMap<u64, (TcpStream, Instant)> = HashMap::new();
    let mut sessions: HashMap<u64, Session> = HashMap::new();
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let deadline = clients.values().map(|&(_, deadline)| deadline).min();
        let ready = common::wait(&epoll, &mut events, deadline)?;
        for event in &events[..ready] {
            let number = event.data();
            if number == listener_number {
                let Some(Client { socket, deadline, .. }) = Client::accept(&listener)? else {
                    continue;
                };
                let number = socket.as_raw_fd() as u64;
                epoll.add(&socket, common::readable(number))?;
                clients.insert(number, (socket, deadline));
            } else if let Some((socket, _)) = clients.get(&number) {
                let session = sessions.entry(number).or_default();
                if !common::serve(&epoll, number, socket, session) {
                    if session.is_done() || !session.unsent().is_empty() {
                        sessions.remove(&number);
                    }
                    clients.remove(&number);
                }
            }
        }
        clients.retain(|_, &mut (_, deadline)| deadline > Instant::now());
    }
}
