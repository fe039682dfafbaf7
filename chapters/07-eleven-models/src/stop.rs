//! How a server is asked to stop: SIGTERM or SIGINT, as a descriptor that becomes readable.
//!
//! A handler could come between the look at a flag and the wait. A signal that is blocked and read from
//! a descriptor cannot: it is one more thing to wait for, see signalfd(2).

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The wish that the server stops.
pub struct Stop {
    signals: SignalFd,
}

impl Stop {
    /// Blocks both signals in the calling thread. Threads and processes that it makes later inherit that,
    /// so it has to come first.
    pub fn new() -> anyhow::Result<Stop> {
        signals().thread_block().context("sigprocmask")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Stop { signals: SignalFd::with_flags(&signals(), flags).context("signalfd")? })
    }

    /// To be called when it is readable. Whether a signal has come; then the next one ends the process at
    /// once, as if nobody had asked.
    pub fn heed(&self) -> anyhow::Result<bool> {
        let has_come = self.signals.read_signal().context("read(signalfd)")?.is_some();
        if has_come {
            signals().thread_unblock().context("sigprocmask")?;
        }
        Ok(has_come)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

fn signals() -> SigSet {
    SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM])
}
