//! The listener that outlives its process: an accept that is under way in a ring holds it, and the kernel
//! takes a ring apart at its leisure when the process was killed. That is over in some milliseconds, but
//! until then the dead listener gets its share of the new clients, and resets them when it goes.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{self, SockFlag, SockType, SockaddrLike, sockopt};

/// How long it is waited for at most. Whoever listens for longer is somebody who was not seen.
const WAIT: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Waits until nobody listens on `address`, where nobody is known to.
pub fn wait_for(address: SocketAddr) {
    let start = Instant::now();
    while address.port() != 0 && is_in_use(address) == Ok(true) && start.elapsed() < WAIT {
        thread::sleep(LOOK_AGAIN);
    }
}

/// Whether somebody listens there: one who does not ask for SO_REUSEPORT is then refused.
fn is_in_use(address: SocketAddr) -> nix::Result<bool> {
    let name = socket::SockaddrStorage::from(address);
    let family = name.family().ok_or(Errno::EAFNOSUPPORT)?;
    let probe = socket::socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    socket::setsockopt(&probe, sockopt::ReuseAddr, &true)?;
    match socket::bind(probe.as_raw_fd(), &name) {
        Err(Errno::EADDRINUSE) => Ok(true),
        result => result.map(|()| false),
    }
}
