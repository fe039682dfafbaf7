//! How those who sleep in a blocking call learn that the server stops: a signal interrupts the call, it
//! returns EINTR, and the sleeper looks at a flag before it sleeps on.
//!
//! A signal that comes between the look and the call interrupts nothing, and the sleep would last. To look
//! at a second descriptor in the same call would need poll(2) before each read, three calls for an answer
//! instead of two. So the signal is not given once but again and again, until everybody has gone: it is the
//! stop that pays, and not the answers before it.
//!
//! The other way, to shut down the reading side of idle sockets, would need to know from outside which are
//! idle. Here each connection decides for itself.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// How long it takes at most until somebody who missed the signal gets it again.
pub const AGAIN_MS: u16 = 20;

/// What interrupts a call and does nothing else.
pub const INTERRUPT: Signal = Signal::SIGALRM;

static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// Whether the second signal ends this process at once.
static ENDS_AT_SECOND: AtomicBool = AtomicBool::new(true);

/// Whether the server has been asked to stop.
pub fn is_stopping() -> bool {
    IS_STOPPING.load(Ordering::SeqCst)
}

/// The server has been asked to stop. Whoever sleeps has to be interrupted then, more than once.
pub fn stop() {
    IS_STOPPING.store(true, Ordering::SeqCst);
}

/// From now on [`INTERRUPT`] interrupts the blocking calls of the thread that gets it.
///
/// # Errors
///
/// None that a kernel is known to give.
pub fn allow() -> anyhow::Result<()> {
    handle(INTERRUPT, interrupted).context("sigaction(SIGALRM)")
}

/// For a process with one thread: SIGTERM and SIGINT set the flag and interrupt what it sleeps in, now and
/// again and again. The second one ends it.
///
/// # Errors
///
/// None that a kernel is known to give.
pub fn allow_signals() -> anyhow::Result<()> {
    allow()?;
    handle(Signal::SIGTERM, asked_to_stop).context("sigaction(SIGTERM)")?;
    handle(Signal::SIGINT, asked_to_stop).context("sigaction(SIGINT)")
}

/// The same for a child: it may be told by the terminal and by its parent, so that a second time means
/// nothing. That the parent ends is what ends it.
///
/// # Errors
///
/// None that a kernel is known to give.
pub fn allow_signals_of_parent() -> anyhow::Result<()> {
    ENDS_AT_SECOND.store(false, Ordering::SeqCst);
    allow_signals()
}

/// What `signal` does by default is done again. Whoever started this process may have ignored SIGCHLD, which
/// is inherited: then nobody would be told of a child's end.
///
/// # Errors
///
/// None that a kernel is known to give.
#[expect(unsafe_code, reason = "nix leaves it to the caller what a signal does")]
pub fn heed(signal: Signal) -> nix::Result<()> {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default is no function of ours, so that nothing is called later.
    unsafe { sigaction(signal, &action) }.map(drop)
}

/// Installs a handler without SA_RESTART: the interrupted call is to return. A signal that was blocked by
/// whoever started this process, which is inherited, is not blocked any more.
#[expect(
    unsafe_code,
    reason = "nix leaves it to the caller that a handler does only what handlers may do"
)]
fn handle(signal: Signal, handler: extern "C" fn(libc::c_int)) -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(handler), SaFlags::empty(), SigSet::empty());
    // SAFETY: both handlers below only use atomics and calls that are plain system calls, take no lock,
    // allocate nothing and cannot panic.
    unsafe { sigaction(signal, &action) }?;
    SigSet::from(signal).thread_unblock()
}

extern "C" fn interrupted(_: libc::c_int) {}

#[expect(unsafe_code, reason = "nix has no call for these that a handler could use")]
extern "C" fn asked_to_stop(signal: libc::c_int) {
    if IS_STOPPING.swap(true, Ordering::SeqCst) && ENDS_AT_SECOND.load(Ordering::SeqCst) {
        // SAFETY: signal(2) and raise(3) are async-signal-safe, see signal-safety(7). The signal is blocked
        // until this handler returns; then it does what it does by default: it ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // SAFETY: as above.
        unsafe { libc::raise(signal) };
        return;
    }
    let again = libc::timeval { tv_sec: 0, tv_usec: libc::suseconds_t::from(AGAIN_MS) * 1000 };
    let timer = libc::itimerval { it_interval: again, it_value: again };
    // SAFETY: on Linux setitimer is a system call and nothing else; `timer` outlives it, and the old value
    // is not asked for. It cannot fail with these arguments, so that errno is what it was.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}
