//! `nix::sys::socket` under its own name, so that a chapter that needs nothing else of Linux is written
//! for macOS too. On Linux it is that module and no more: `socket::recv` is recv(2).
//!
//! macOS has no accept4(2), no flags for socket(2) and no `MSG_NOSIGNAL`, and nix leaves them out there.
//! The module `elsewhere` stands in for them. We have compiled it on Linux alone, where
//! `RUSTFLAGS="--cfg elsewhere"` takes it as well and the tests hold the programs to their columns.

pub use nix::sys::socket::*;

#[cfg(any(not(target_os = "linux"), elsewhere))]
pub use elsewhere::{Backlog, MsgFlags, SockFlag, accept4, socket};

#[cfg(any(not(target_os = "linux"), elsewhere))]
mod elsewhere {
    use std::os::fd::OwnedFd;

    use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
    use nix::sys::socket::{self, AddressFamily, SockProtocol, SockType};

    /// The flags of a new socket, which have to be set on the descriptor afterwards.
    ///
    /// Simplified: a program started by another thread between the two calls inherits the descriptor.
    /// These programs start none.
    pub struct SockFlag;

    #[allow(dead_code, reason = "a program that may wait needs only the first")]
    impl SockFlag {
        pub const SOCK_CLOEXEC: OFlag = OFlag::O_CLOEXEC;
        pub const SOCK_NONBLOCK: OFlag = OFlag::O_NONBLOCK;
    }

    pub struct MsgFlags;

    impl MsgFlags {
        pub const MSG_DONTWAIT: socket::MsgFlags = socket::MsgFlags::MSG_DONTWAIT;
        /// Nothing: a Rust program ignores SIGPIPE from its start, and `send` fails with EPIPE alone.
        pub const MSG_NOSIGNAL: socket::MsgFlags = socket::MsgFlags::empty();

        pub const fn empty() -> socket::MsgFlags {
            socket::MsgFlags::empty()
        }
    }

    pub struct Backlog;

    #[expect(clippy::new_ret_no_self, reason = "nix's own type, by nix's own call")]
    impl Backlog {
        /// As many as the system has a name for: on macOS that is 128, where Linux has 4096.
        pub fn new(clients: i32) -> nix::Result<socket::Backlog> {
            socket::Backlog::new(clients.min(socket::Backlog::MAXCONN.into()))
        }
    }

    pub fn socket(
        family: AddressFamily,
        kind: SockType,
        flags: OFlag,
        protocol: Option<SockProtocol>,
    ) -> nix::Result<OwnedFd> {
        with(socket::socket(family, kind, socket::SockFlag::empty(), protocol)?, flags)
    }

    pub fn accept4(listener: &OwnedFd, flags: OFlag) -> nix::Result<OwnedFd> {
        with(socket::accept(listener)?, flags)
    }

    /// Sets `O_NONBLOCK` or takes it away: unlike Linux's, a socket accepted on a BSD has its listener's.
    fn with(socket: OwnedFd, flags: OFlag) -> nix::Result<OwnedFd> {
        if flags.contains(SockFlag::SOCK_CLOEXEC) {
            fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        let mut status = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        status.set(OFlag::O_NONBLOCK, flags.contains(SockFlag::SOCK_NONBLOCK));
        fcntl(&socket, FcntlArg::F_SETFL(status))?;
        Ok(socket)
    }
}
