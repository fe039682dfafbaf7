//! Misconception: a descriptor's number names its client, so that what it has said can be kept under it.
//!
//! The number is free as soon as the client has left, and the next one gets it: with the half line that
//! nobody has thrown away.
//!
//! Killed by: a_reused_descriptor_is_a_new_client (answers wrongly)
//! Hint: A client leaves in the middle of its line. What have you kept of it, under which key, and who has that key next?

mod common;

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};
use oddeven::Session;

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, common::readable(0))?;
    let mut clients: HashMap<u64, TcpStream> = HashMap::new();
    let mut sessions: HashMap<u64, Session> = HashMap::new();
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let ready = common::wait(&epoll, &mut events, None)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == 0 {
                match listener.accept() {
                    Ok((client, _)) => {
                        client.set_nonblocking(true)?;
                        let number = client.as_raw_fd() as u64;
                        epoll.add(&client, common::readable(number))?;
                        clients.insert(number, client);
                    }
                    Err(error) => common::survive(error)?,
                }
            } else if let Some(client) = clients.get(&token) {
                let session = sessions.entry(token).or_default();
                if !common::serve(&epoll, token, client, session) {
                    if session.is_done() {
                        sessions.remove(&token);
                    }
                    clients.remove(&token);
                }
            }
        }
    }
}
