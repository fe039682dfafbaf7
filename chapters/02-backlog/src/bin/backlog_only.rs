//! Chapter 02, one change alone: the long queue, and no patience limit.

#[path = "../command_line.rs"]
mod command_line;
#[path = "../socket.rs"]
mod socket;

use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;

use anyhow::Context;
use nix::errno::Errno;
use oddeven::{LINE_BYTES_MAX, Session};
use socket::{MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike, sockopt};

/// How many clients the kernel completes the handshake of before we accept them, less one.
/// It takes less where net.core.somaxconn is less.
const BACKLOG: i32 = 4096;

/// How much unread input is taken from a client before its connection is closed: 16 × 4 KiB.
const DISCARDS_MAX: usize = 16;

fn main() -> ExitCode {
    command_line::run([], |address, []| {
        let listener = listen(address)?;
        command_line::announce(&listener)?;
        serve(&listener)
    })
}

/// A socket at `address` to which clients can connect.
fn listen(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let refused = |call, errno| command_line::refused(call, address, errno);
    let name = socket::SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    let listener = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|errno| refused("socket", errno))?;
    // Without it, the connections that the last run closed (they stay in TIME_WAIT for a minute)
    // would keep this one from the same port.
    socket::setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt(SO_REUSEADDR)")?;
    if address.is_ipv6() {
        // [::] serves IPv4 clients too, whatever net.ipv6.bindv6only says.
        socket::setsockopt(&listener, sockopt::Ipv6V6Only, &false)
            .context("setsockopt(IPV6_V6ONLY)")?;
    }
    socket::bind(listener.as_raw_fd(), &name).map_err(|errno| refused("bind", errno))?;
    let backlog = socket::Backlog::new(BACKLOG).context("a backlog beyond SOMAXCONN")?;
    socket::listen(&listener, backlog).map_err(|errno| refused("listen", errno))?;
    let somaxconn = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or("?".into());
    let most = somaxconn.trim_end();
    command_line::say(format_args!(
        "listen: asked for {BACKLOG}, net.core.somaxconn allows {most}"
    ));
    Ok(listener)
}

fn serve(listener: &OwnedFd) -> anyhow::Result<()> {
    loop {
        let Some(client) = accept(listener)? else { continue };
        // A client that fails has failed alone: there is nobody to tell, and the next one waits.
        let _ = converse(&client);
    }
}

/// The next client, or `None` when it went away or there was no descriptor for it.
///
/// Simplified: when the process has no descriptor left, `accept` fails at once and so will the next
/// one. This server holds one client at a time and needs one descriptor; chapter 03 holds many.
fn accept(listener: &OwnedFd) -> anyhow::Result<Option<OwnedFd>> {
    match socket::accept4(listener, SockFlag::SOCK_CLOEXEC) {
        Ok(client) => Ok(Some(client)),
        // These say that the listener itself is not one: accepting again cannot help.
        Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
            Err(errno).context("accept4")
        }
        // All others concern one client, or pass: EINTR, ECONNABORTED, EPROTO, ENETDOWN, EMFILE, …
        Err(_) => Ok(None),
    }
}

/// Reads until the request is complete, and answers it.
fn converse(client: &OwnedFd) -> nix::Result<()> {
    let mut session = Session::new();
    let mut bytes = [0; LINE_BYTES_MAX + 1];
    while !session.is_done() {
        if session.unsent().is_empty() {
            // The client decides how long this takes.
            let length =
                uninterrupted(|| socket::recv(client.as_raw_fd(), &mut bytes, MsgFlags::empty()))?;
            session.feed(&bytes[..length]); // No byte at all is the client's half-close.
        } else {
            let length = uninterrupted(|| {
                socket::send(client.as_raw_fd(), session.unsent(), MsgFlags::MSG_NOSIGNAL)
            })?;
            session.sent(length); // Perhaps not all of it: the next turn sends the rest.
        }
    }
    hang_up(client);
    Ok(())
}

/// Says that no more will come, and takes what has come, without waiting for any of it: to close a
/// socket with unread input resets the connection, and a reset can overtake the answer.
///
/// It never waits for the client's own end: that would be one more way to be held up. The descriptor
/// is closed when its owner drops it.
fn hang_up(client: &OwnedFd) {
    // Whatever goes wrong here, the client has had its answer or will not get one.
    let _ = socket::shutdown(client.as_raw_fd(), Shutdown::Write);
    let mut bytes = [0; 4096];
    for _ in 0..DISCARDS_MAX {
        let Ok(1..) = socket::recv(client.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) else {
            return;
        };
    }
}

/// Makes a call again for as long as a signal interrupts it.
fn uninterrupted<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => continue,
            result => return result,
        }
    }
}
