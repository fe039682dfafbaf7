//! Misconception: half a line is best left in the kernel until the rest has come: MSG_PEEK looks without taking.
//!
//! What has not been taken is still there, so the client is still ready, and epoll says so again at once:
//! a loop at full speed for as long as the client keeps quiet. And the half-close at the end of a line
//! without a newline cannot be seen by looking, since the line stands before it.
//!
//! Killed by: an_idle_server_burns_no_cpu (burns CPU time)
//! Breaks too: a_half_closed_client_is_answered (does not answer)
//! Hint: You look at the bytes and do not take them. What does the next epoll_wait say about a client whose bytes are still there?

mod common;

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};
use oddeven::LINE_BYTES_MAX;

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
                        clients.insert(token_last, client);
                    }
                    Err(error) => common::survive(error)?,
                }
            } else if let Some(client) = clients.get(&event.data())
                && is_whole(client)
            {
                let _ = common::converse(client);
                clients.remove(&event.data());
            }
        }
    }
}

/// Whether all of the line is there, or there is nothing to wait for. Nothing is taken from the kernel.
fn is_whole(client: &TcpStream) -> bool {
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    match client.peek(&mut bytes) {
        Ok(0) | Err(_) => true,
        Ok(length) => length > LINE_BYTES_MAX || bytes[..length].contains(&b'\n'),
    }
}
