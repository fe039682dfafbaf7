//! Ctrl-C: once to end early and report what there is, twice to leave at once.

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Takes SIGINT and SIGTERM from now on: the first sets the returned flag, the second ends the process.
///
/// Call it before other threads begin, since they inherit the mask that keeps these signals from them.
/// So do children: a server does not see the Ctrl-C of the terminal, and lives until we end it.
///
/// # Errors
/// If the mask cannot be set or there is no thread for it.
pub fn watch() -> Result<Arc<AtomicBool>> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("pthread_sigmask(SIGINT, SIGTERM)")?;
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    let wait = move || {
        while let Ok(signal) = signals.wait() {
            if seen.swap(true, Ordering::Relaxed) {
                // The kernel ends our children: each has asked for that (PR_SET_PDEATHSIG).
                process::exit(128 + signal as i32);
            }
            eprintln!("\nstopping: what there is so far is reported (once more to leave at once)");
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("clone: no thread left")?;
    Ok(flag)
}
