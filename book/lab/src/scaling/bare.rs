//! The bare loop: the least that a server of this protocol asks of the kernel, as something to measure the
//! chapters against. Whatever a chapter costs beyond it is its own bookkeeping.
//!
//! Simplified: it is no server that anybody should run. It takes the first `recv` for the whole line, the
//! first `send` for the whole answer, lets nobody go, and ends when it runs out of descriptors.

use anyhow::{Context, Result, anyhow};
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        socket::{
            AddressFamily, Backlog, MsgFlags, Shutdown, SockFlag, SockType, SockaddrIn,
            SockaddrStorage, accept4, bind, getsockname, listen, recv, send, setsockopt, shutdown,
            socket, sockopt,
        },
    },
};
use std::{
    io::{self, Write},
    net::SocketAddrV4,
    os::fd::{AsRawFd, OwnedFd},
};

const EVENTS_MAX: usize = 256;
const BACKLOG: i32 = 4096;

/// The token of the listener; that of a client is its descriptor, which is never 0.
const LISTENER: u64 = 0;

/// How a client is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With the calls that the chapters make: shutdown, discard what is unread, close.
    Politely,
    /// With close alone. A client that has sent more than its line is then reset.
    AtOnce,
    /// Not at all: whatever it sends is taken for a GET, and answered with the same bytes. What HTTP costs
    /// at least, with nothing read and nothing decided.
    Never,
}

/// An answer like that to `GET /` of chapter 07, byte for byte as long.
const HTTP: &[u8] = b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 14\r\n\r\nAsk /parity/7\n";

/// Serves on a free port of 127.0.0.1 until it is killed, and says on stdout where.
///
/// # Errors
/// If the kernel refuses a call.
pub fn serve(end: End) -> Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Inet, SockType::Stream, flags, None).context("socket")?;
    setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt(SO_REUSEADDR)")?;
    let any_port: SocketAddrV4 = "127.0.0.1:0".parse().context("an address")?;
    bind(listener.as_raw_fd(), &SockaddrIn::from(any_port)).context("bind(127.0.0.1:0)")?;
    listen(&listener, Backlog::new(BACKLOG).context("a backlog")?).context("listen")?;
    let name: SockaddrStorage = getsockname(listener.as_raw_fd()).context("getsockname")?;
    let mut stdout = io::stdout();
    writeln!(stdout, "listening on {name}").and_then(|()| stdout.flush()).context("write")?;

    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?;
    let readable = |token| EpollEvent::new(EpollFlags::EPOLLIN, token);
    epoll.add(&listener, readable(LISTENER)).context("epoll_ctl(ADD, listener)")?;
    // By descriptor, which is as quick as it gets.
    let mut clients: Vec<Option<OwnedFd>> = Vec::new();
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    loop {
        let ready = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            ready => ready.context("epoll_wait")?,
        };
        for event in &events[..ready] {
            if event.data() == LISTENER {
                while let Some(client) = accept(&listener)? {
                    let number = usize::try_from(client.as_raw_fd()).context("a descriptor")?;
                    epoll.add(&client, readable(number as u64)).context("epoll_ctl(ADD)")?;
                    clients.resize_with(clients.len().max(number + 1), || None);
                    clients[number] = Some(client);
                }
            } else if let Some(client) = clients[event.data() as usize].take() {
                clients[event.data() as usize] = answer(client, end);
            }
        }
    }
}

/// The next client; `None` if nobody waits.
fn accept(listener: &OwnedFd) -> Result<Option<OwnedFd>> {
    match accept4(listener, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK) {
        Ok(client) => Ok(Some(client)),
        Err(Errno::EAGAIN) => Ok(None),
        Err(errno) => Err(anyhow!("accept4: {errno}")),
    }
}

/// Reads and answers. Back comes the client if it stays; if not, its `OwnedFd` closes. One that has gone is
/// no error.
fn answer(client: OwnedFd, end: End) -> Option<OwnedFd> {
    if end == End::Never {
        let mut request = [0; 4096];
        let length = recv(client.as_raw_fd(), &mut request, MsgFlags::empty()).unwrap_or(0);
        let sent = send(client.as_raw_fd(), HTTP, MsgFlags::MSG_NOSIGNAL);
        return (length > 0 && sent.is_ok()).then_some(client);
    }
    let mut line = [0; 64];
    let length = recv(client.as_raw_fd(), &mut line, MsgFlags::empty()).unwrap_or(0);
    let digit = line[..length].iter().rev().find(|it| it.is_ascii_digit());
    let answer: &[u8] = match digit {
        Some(digit) if digit % 2 == 1 => b"Odd\n",
        Some(_) => b"Even\n",
        None => b"Invalid\n",
    };
    let _ = send(client.as_raw_fd(), answer, MsgFlags::MSG_NOSIGNAL);
    if end == End::Politely {
        let _ = shutdown(client.as_raw_fd(), Shutdown::Write);
        let mut unread = [0; 4096];
        let _ = recv(client.as_raw_fd(), &mut unread, MsgFlags::MSG_DONTWAIT);
    }
    None
}
