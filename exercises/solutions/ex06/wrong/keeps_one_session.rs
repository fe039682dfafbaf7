//! Misconception: the server reads from one client at a time, so that one session is enough.
//!
//! It reads from one at a time, and has begun with many. What one of them left unfinished is put in
//! front of what the next one says.
//!
//! Killed by: a_reused_descriptor_is_a_new_client (answers wrongly)
//! Hint: A client is answered for what another has said. Whose half line is in your session when the next client speaks?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
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
    let mut clients = HashMap::new();
    let mut session = Session::new();
    let mut token_last = 0;
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let ready = common::wait(&epoll, &mut events, None)?;
        for event in &events[..ready] {
            let token = event.data();
            if token == 0 {
                match listener.accept() {
                    Ok((client, _)) => {
                        client.set_nonblocking(true)?;
                        token_last += 1;
                        epoll.add(&client, common::readable(token_last))?;
                        clients.insert(token_last, client);
                    }
                    Err(error) => common::survive(error)?,
                }
            } else if let Some(client) = clients.get(&token)
                && !common::serve(&epoll, token, client, &mut session)
            {
                clients.remove(&token);
                if session.is_done() {
                    session = Session::new();
                }
            }
        }
    }
}
