//! Misconception: a descriptor's number names a client, so a timer for it needs no more than that.
//!
//! The kernel gives the lowest free number to the next client. The timer of one that has long had
//! its answer then ends another's time: whoever has the number by now.
//! In other rows, timing decides whether it is seen.
//!
//! Killed by: a_reused_descriptor_is_a_new_client (does not answer)

mod common;

use std::collections::{HashMap, VecDeque};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Instant;

use common::Client;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent};

fn main() -> ExitCode {
    common::run(serve)
}

fn serve(listener: TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let listener_number = listener.as_raw_fd() as u64;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, common::readable(listener_number))?;
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let mut timers: VecDeque<(Instant, u64)> = VecDeque::new();
    let mut events = [EpollEvent::empty(); 256];
    loop {
        let next = timers.front().map(|&(deadline, _)| deadline);
        let ready = common::wait(&epoll, &mut events, next)?;
        for event in &events[..ready] {
            let number = event.data();
            if number == listener_number {
                let Some(client) = Client::accept(&listener)? else { continue };
                let number = client.socket.as_raw_fd() as u64;
                epoll.add(&client.socket, common::readable(number))?;
                timers.push_back((client.deadline, number));
                clients.insert(number, client);
            } else if clients.get_mut(&number).is_some_and(|it| !it.serve(&epoll, number)) {
                clients.remove(&number); // Its timer will find nobody: no harm done.
            }
        }
        while let Some(&(deadline, number)) = timers.front()
            && deadline <= Instant::now()
        {
            timers.pop_front();
            clients.remove(&number);
        }
    }
}
