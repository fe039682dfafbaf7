//! The calls on sockets which every model makes, with what their errors mean.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use anyhow::{Context, anyhow};
use http::Unsent;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    self, MsgFlags, SockFlag, SockType, SockaddrLike, SockaddrStorage, getsockname, sockopt,
};

use crate::model::Config;
use crate::options;

/// Descriptors that are not connections: the three standard ones, listeners, epoll, signals, and what the
/// libraries open for a moment.
const DESCRIPTORS_SPARED: u64 = 16;

/// What a client is told for whom there is no thread, process or worker.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    Retry-After: 1\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 24\r\n\
    Connection: close\r\n\
    \r\n\
    The server is busy now.\n";

/// Of 4 KiB each: what a client has sent before it is refused.
const DISCARDS_MAX: usize = 16;

/// Raises the number of descriptors to what the administrator allows, and says how many connections that
/// leaves.
pub fn connections_max() -> anyhow::Result<usize> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("getrlimit(RLIMIT_NOFILE)")?;
    // What the shell gives is for programs that use select(2). This one does not.
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    let limit = if raised.is_ok() { hard } else { soft };
    // With 20 descriptors four are left for clients; one client there has to be.
    Ok(usize::try_from(limit.saturating_sub(DESCRIPTORS_SPARED).max(1)).unwrap_or(usize::MAX))
}

/// Whether several sockets listen at one address, and the kernel deals the clients out to them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// The address is this listener's alone.
    Alone,
    /// SO_REUSEPORT.
    Shared,
}

/// A socket that listens at `address`. It never blocks in accept: who was in the queue may have left it,
/// or another process may have been faster.
pub fn listen(address: SocketAddr, config: &Config, sharing: Sharing) -> anyhow::Result<OwnedFd> {
    let refused = |call, errno| refused(call, address, errno);
    let name = SockaddrStorage::from(address);
    let family = name.family().context("an address of a family that nix does not know")?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket::socket(family, SockType::Stream, flags, None)
        .map_err(|errno| refused("socket", errno))?;
    socket::setsockopt(&listener, sockopt::ReuseAddr, &true).context("setsockopt(SO_REUSEADDR)")?;
    if sharing == Sharing::Shared {
        socket::setsockopt(&listener, sockopt::ReusePort, &true)
            .context("setsockopt(SO_REUSEPORT)")?;
    }
    if address.is_ipv6() {
        socket::setsockopt(&listener, sockopt::Ipv6V6Only, &false)
            .context("setsockopt(IPV6_V6ONLY)")?;
    }
    // Accepted sockets inherit it, see tcp(7): no call for each client. Without it the second of two short
    // answers waits for the acknowledgement of the first, which the client delays.
    socket::setsockopt(&listener, sockopt::TcpNoDelay, &true).context("setsockopt(TCP_NODELAY)")?;
    socket::bind(listener.as_raw_fd(), &name).map_err(|errno| refused("bind", errno))?;
    let backlog = socket::Backlog::new(config.backlog).context("a backlog beyond SOMAXCONN")?;
    socket::listen(&listener, backlog).map_err(|errno| refused("listen", errno))?;
    Ok(listener)
}

/// Says on stdout where `listener` really listens, which only the kernel knows after port 0.
pub fn announce(listener: &OwnedFd) -> anyhow::Result<()> {
    options::print(format_args!("listening on {}\n", bound(listener)?));
    Ok(())
}

/// Where `listener` really listens.
pub fn bound(listener: &OwnedFd) -> anyhow::Result<SocketAddr> {
    let name: SockaddrStorage = getsockname(listener.as_raw_fd()).context("getsockname")?;
    name.to_string().parse().with_context(|| format!("getsockname: {name} is no address"))
}

/// How many accepts in a row may fail, each of them perhaps because that client went away. When all of them
/// do (where accept is forbidden, it says so again and again, and the client stays in the queue), to ask
/// on without a pause is to spin.
pub const FAILURES_MAX: u32 = 16;

/// What came of an accept.
pub enum Accepted {
    /// Somebody.
    Client(OwnedFd),
    /// Nobody is in the queue.
    Nobody,
    /// This one went away, or a signal came: ask again.
    Again,
    /// Somebody may be there, and no descriptor or memory for them. The listener stays ready: to look at
    /// it again at once is to spin.
    NoDescriptor,
}

/// Takes one client from the queue of `listener`; `flags` is what its socket gets beside CLOEXEC.
///
/// # Errors
///
/// Only those that say that nobody can be accepted ever again, see accept(2).
pub fn accept(listener: &OwnedFd, flags: SockFlag) -> anyhow::Result<Accepted> {
    match socket::accept4(listener, SockFlag::SOCK_CLOEXEC | flags) {
        Ok(client) => Ok(Accepted::Client(client)),
        Err(Errno::EAGAIN) => Ok(Accepted::Nobody),
        Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
            Ok(Accepted::NoDescriptor)
        }
        Err(errno @ (Errno::EBADF | Errno::EFAULT | Errno::EINVAL | Errno::ENOTSOCK)) => {
            Err(errno).context("accept4")
        }
        Err(_) => Ok(Accepted::Again),
    }
}

/// Whether accept(2) sleeps until somebody comes, for a process that has nothing else to wait for.
///
/// # Errors
///
/// None that a kernel is known to give.
pub fn set_blocking(listener: &OwnedFd, is_blocking: bool) -> anyhow::Result<()> {
    let flags = if is_blocking { OFlag::empty() } else { OFlag::O_NONBLOCK };
    fcntl(listener, FcntlArg::F_SETFL(flags)).context("fcntl(F_SETFL)").map(drop)
}

/// All who have come until now, for a server that stops. There may be no end of those who come meanwhile,
/// so that these are at most as many as the queue holds.
pub fn take_queue(listener: &OwnedFd, backlog: i32) -> Vec<OwnedFd> {
    let mut queue = Vec::new();
    if set_blocking(listener, false).is_err() {
        return queue;
    }
    for _ in 0..=backlog {
        match accept(listener, SockFlag::empty()) {
            Ok(Accepted::Client(client)) => queue.push(client),
            Ok(Accepted::Again) => {}
            Ok(Accepted::Nobody | Accepted::NoDescriptor) | Err(_) => break,
        }
    }
    queue
}

/// Sends what can be sent at once of both slices, in one call. It does not wait, whatever the socket is.
pub fn send(socket: RawFd, unsent: &Unsent<'_>) -> nix::Result<usize> {
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    if unsent.second.is_empty() {
        return socket::send(socket, unsent.first, flags);
    }
    let slices = [IoSlice::new(unsent.first), IoSlice::new(unsent.second)];
    socket::sendmsg::<()>(socket, &slices, &[], flags, None)
}

/// Says to `client` that nobody has time for it, without a wait: whoever says it has others to see to. What
/// the client has sent already is read, up to a bound, so that the close is no reset.
pub fn refuse(client: &OwnedFd) {
    let socket = client.as_raw_fd();
    let _ = socket::send(socket, BUSY, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
    let _ = socket::shutdown(socket, socket::Shutdown::Write);
    let mut discarded = [0; 4096];
    for _ in 0..DISCARDS_MAX {
        if !matches!(socket::recv(socket, &mut discarded, MsgFlags::MSG_DONTWAIT), Ok(1..)) {
            break;
        }
    }
}

fn refused(call: &str, address: SocketAddr, errno: Errno) -> anyhow::Error {
    let remedy = match errno {
        Errno::EADDRINUSE => {
            "another program listens there: stop it, or give another port (0 takes a free one)"
        }
        Errno::EADDRNOTAVAIL => "this machine has no such address: see `ip address`",
        Errno::EACCES => "ports below net.ipv4.ip_unprivileged_port_start are root's: take another",
        Errno::EAFNOSUPPORT => {
            "this machine does not speak that family: take an address of another"
        }
        Errno::EMFILE | Errno::ENFILE => "no descriptor is left: raise `ulimit -n`",
        _ => "this is not expected: see the call's manual page",
    };
    anyhow!("{call}({address}): {errno}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_as_many_bytes_as_it_says() {
        let text = std::str::from_utf8(BUSY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        assert!(head.lines().all(|line| !line.starts_with(' ')), "{head}");
    }
}
