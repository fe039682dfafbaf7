//! Misconception: half a line is no line, so one reads on until it is whole.
//!
//! The second `recv` is one that epoll has not announced, and sleeps. This is chapter 03 itself: right
//! answers, and everybody waits for the client that stops in the middle.
//!
//! Killed by: half_a_line_stalls_nobody (others wait for its 2 s of patience)
//! Hint: You call recv again when the line is not complete. Has epoll said that there is something to read by then, and who waits if not?

mod common;

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::ExitCode;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};

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
            } else if let Some(client) = clients.remove(&event.data()) {
                let _ = common::converse(&client);
            }
        }
    }
}
