//! The children of a server that forks: how they begin, are told to stop, and are reaped.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};

use crate::clock::Clock;
use crate::{blocking, interrupt, options};

/// Those that live.
pub struct Children {
    pids: HashSet<Pid>,
    /// SIGCHLD, as a descriptor.
    ended: SignalFd,
    parent: Pid,
}

/// Who returns from a fork.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The server.
    Parent,
    /// The new process, which has to end with [`std::process::exit`].
    Child,
}

impl Children {
    /// None yet. Blocks SIGCHLD, so that it can be waited for together with everything else.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn new() -> anyhow::Result<Children> {
        let signals = SigSet::from(Signal::SIGCHLD);
        interrupt::heed(Signal::SIGCHLD).context("sigaction(SIGCHLD)")?;
        signals.thread_block().context("sigprocmask")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let ended = SignalFd::with_flags(&signals, flags).context("signalfd")?;
        Ok(Children { pids: HashSet::new(), ended, parent: getpid() })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.pids.len()
    }

    // ANCHOR: fork
    /// Makes one more. SIGTERM and SIGINT have to be blocked: the child takes them when it is ready to.
    ///
    /// # Errors
    ///
    /// EAGAIN where the user, or the machine, may have no more processes; ENOMEM.
    #[expect(
        unsafe_code,
        reason = "nix leaves it to the caller that the child may do what it does"
    )]
    pub fn fork(&mut self) -> nix::Result<Side> {
        // SAFETY: in the models that fork this process has a single thread, so that no lock is held by a
        // thread that the child does not have.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                self.pids.insert(child);
                Ok(Side::Parent)
            }
            ForkResult::Child => {
                if let Err(error) = self.begin() {
                    options::say(format_args!("ch07: a child: {error:#}"));
                    std::process::exit(1);
                }
                Ok(Side::Child)
            }
        }
    }

    /// What a child does first: it ends with its parent, and obeys it.
    fn begin(&self) -> anyhow::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL).context("prctl(PR_SET_PDEATHSIG)")?;
        if getppid() != self.parent {
            std::process::exit(0); // It ended before that call.
        }
        interrupt::allow_signals_of_parent()?;
        SigSet::empty().thread_set_mask().context("sigprocmask")
    }
    // ANCHOR_END: fork

    // ANCHOR: reap
    /// To be called when this is readable: buries all that have ended, and says how many those were.
    /// Signals of one kind do not queue, so that one of them may speak for many.
    ///
    /// # Errors
    ///
    /// None that a kernel is known to give.
    pub fn reap(&mut self) -> anyhow::Result<usize> {
        while self.ended.read_signal().context("read(signalfd)")?.is_some() {}
        let before = self.pids.len();
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => break,
                Ok(status) => drop(status.pid().is_some_and(|pid| self.pids.remove(&pid))),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("waitpid"),
            }
        }
        Ok(before - self.pids.len())
    }
    // ANCHOR_END: reap

    // ANCHOR: stop
    /// Tells all of them to stop. It does no harm to say it twice.
    pub fn tell(&self) {
        for &pid in &self.pids {
            let _ = kill(pid, Signal::SIGTERM); // One that has ended is a zombie until it is reaped.
        }
    }

    /// Tells all of them to stop, and waits until they have or the time is over. Those that are left then
    /// end with this process.
    ///
    /// # Errors
    ///
    /// None that a kernel is known to give.
    pub fn stop(&mut self, clock: &Clock, drain_ms: u64) -> anyhow::Result<()> {
        self.tell();
        let ends_at_ms = clock.now_ms() + drain_ms;
        while !self.pids.is_empty() && clock.now_ms() < ends_at_ms {
            let [has_ended] = blocking::ready([(self.as_fd(), true)], clock, Some(ends_at_ms))?;
            if has_ended {
                self.reap()?;
            }
        }
        Ok(())
    }
    // ANCHOR_END: stop
}

impl AsFd for Children {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
}
