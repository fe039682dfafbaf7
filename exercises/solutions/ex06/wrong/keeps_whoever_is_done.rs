//! Misconception: a client that has its answer needs nothing more, so that nothing more is to be done about it.
//!
//! It has to be forgotten: closed and taken out of the map. Its end of the stream is something to read,
//! now and for ever, and epoll says so each time it is asked.
//!
//! Killed by: an_idle_server_burns_no_cpu (burns CPU time)
//! Hint: You keep the clients in the map while they speak. Who takes them out, after the answer and after an error?

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
    let mut token_last = 0;
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let ready = common::wait(&epoll, &mut events, None)?;
        for event in &events[..ready] {
            if event.data() == 0 {
                match listener.accept() {
                    Ok((client, _)) => {
                        client.set_nonblocking(true)?;
                        token_last += 1;
                        epoll.add(&client, common::readable(token_last))?;
                        clients.insert(token_last, (client, Session::new()));
                    }
                    Err(error) => common::survive(error)?,
                }
            } else if let Some((client, session)) = clients.get_mut(&event.data()) {
                // Whether it goes on does not matter: its place costs nothing.
                common::serve(&epoll, event.data(), client, session);
            }
        }
    }
}
