//! Chapter 04, the first step: non-blocking descriptors and a state per client, nothing more.
//! Nobody waits for anybody. Nobody is let go either, and the descriptors may run out: `main.rs`.
#[path = "../command_line.rs"]
mod command_line;
#[cfg(not(target_os = "linux"))]
compile_error!("epoll is Linux's: use the dev container (.devcontainer/), or run --bin ch04-mio");

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{self, MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};
use oddeven::{LINE_BYTES_MAX, Session};

const BACKLOG: i32 = 4096;
const DISCARDS_MAX: usize = 16;
const EVENTS_MAX: usize = 256;
const LISTENER: u64 = 0;

/// A client, and how far its request and answer have come.
struct Client {
    socket: OwnedFd,
    session: Session,
}

fn main() -> ExitCode {
    command_line::run([], |address, []| {
        let listener = listen(address)?;
        command_line::announce(&listener)?;
        serve(&listener)
    })
}

fn listen(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let refused = |call, errno| command_line::refused(call, address, errno);
    let name = socket::SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket::socket(family, SockType::Stream, flags, None)
        .map_err(|errno| refused("socket", errno))?;
    socket::setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt(SO_REUSEADDR)")?;
    if address.is_ipv6() {
        socket::setsockopt(&listener, sockopt::Ipv6V6Only, &false)
            .context("setsockopt(IPV6_V6ONLY)")?;
    }
    socket::bind(listener.as_raw_fd(), &name).map_err(|errno| refused("bind", errno))?;
    let backlog = socket::Backlog::new(BACKLOG).context("a backlog beyond SOMAXCONN")?;
    socket::listen(&listener, backlog).map_err(|errno| refused("listen", errno))?;
    Ok(listener)
}

// ANCHOR: serve
fn serve(listener: &OwnedFd) -> anyhow::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
    let readable = |token| EpollEvent::new(EpollFlags::EPOLLIN, token);
    epoll.add(listener, readable(LISTENER)).context("epoll_ctl(ADD, listener)")?;
    let mut clients = HashMap::new();
    let mut token_last = LISTENER;
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    loop {
        let ready = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            ready => ready.context("epoll_wait")?,
        };
        for event in &events[..ready] {
            let token = event.data();
            if token == LISTENER {
                let Some(socket) = accept(listener)? else { continue };
                token_last += 1;
                if epoll.add(&socket, readable(token_last)).is_ok() {
                    clients.insert(token_last, Client { socket, session: Session::new() });
                }
            } else if let Some(client) = clients.get_mut(&token) {
                if !matches!(converse(client), Err(Errno::EAGAIN | Errno::EINTR)) {
                    clients.remove(&token);
                } else if !client.session.unsent().is_empty() {
                    let mut writable = EpollEvent::new(EpollFlags::EPOLLOUT, token);
                    epoll.modify(&client.socket, &mut writable).context("epoll_ctl(MOD)")?;
                }
            }
        }
    }
}
// ANCHOR_END: serve

fn accept(listener: &OwnedFd) -> anyhow::Result<Option<OwnedFd>> {
    match socket::accept4(listener, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
        Ok(client) => Ok(Some(client)),
        Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
            Err(errno).context("accept4")
        }
        Err(_) => Ok(None),
    }
}

// ANCHOR: converse
/// Reads and answers as far as that goes without waiting: EAGAIN means "not yet".
fn converse(Client { socket, session }: &mut Client) -> nix::Result<()> {
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while !session.is_done() {
        if session.unsent().is_empty() {
            let length = socket::recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
            session.feed(&bytes[..length]);
        } else {
            let length =
                socket::send(socket.as_raw_fd(), session.unsent(), MsgFlags::MSG_NOSIGNAL)?;
            session.sent(length);
        }
    }
    hang_up(socket);
    Ok(())
}
// ANCHOR_END: converse

fn hang_up(client: &OwnedFd) {
    let _ = socket::shutdown(client.as_raw_fd(), Shutdown::Write);
    let mut bytes = [0; 4096];
    let mut discard = || socket::recv(client.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT);
    (0..DISCARDS_MAX).all(|_| matches!(discard(), Ok(1..)));
}
