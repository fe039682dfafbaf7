//! Misconception: when `recv` returns no byte, the client has gone.
//!
//! It has said all that it will say, and listens. A request may end so, and then the end is what makes it
//! complete.
//!
//! Killed by: a_half_closed_client_is_answered (does not answer)
//! Hint: A client says a number and half-closes. What do you do when recv returns 0, and has the session heard of it?

mod common;

use std::collections::HashMap;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};
use oddeven::{LINE_BYTES_MAX, Session};

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, common::readable(0))?;
    let mut clients = HashMap::new();
    let mut token_last = 0;
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let ready = common::wait(&epoll, &mut events, None)?;
        for event in &events[..ready] {
            if event.data() == 0 {
                match listener.accept() {
                    Ok((client, _)) => {
                        token_last += 1;
                        epoll.add(&client, common::readable(token_last))?;
                        clients.insert(token_last, (client, Session::new()));
                    }
                    Err(error) => common::survive(error)?,
                }
            } else if let Some((client, session)) = clients.get_mut(&event.data())
                && !converse(client, session)
            {
                clients.remove(&event.data());
            }
        }
    }
}

/// Reads once: whether the client stays.
fn converse(mut client: &TcpStream, session: &mut Session) -> bool {
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    let Ok(length @ 1..) = client.read(&mut bytes) else { return false };
    session.feed(&bytes[..length]);
    if session.unsent().is_empty() {
        return true;
    }
    let _ = common::answer(client, session.unsent());
    false
}
