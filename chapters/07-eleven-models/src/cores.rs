//! Which cores this process may use, and how a thread stays on one of them. The same file in every
//! chapter that has reactors.

use anyhow::Context;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::command_line;

/// The calling thread: what 0 means to sched_setaffinity(2).
const SELF: Pid = Pid::from_raw(0);

/// The cores of the affinity mask, which `taskset` or a container may have made fewer than the machine's.
pub fn allowed() -> anyhow::Result<Vec<usize>> {
    let mask = sched_getaffinity(SELF).context("sched_getaffinity")?;
    Ok((0..CpuSet::count()).filter(|&core| mask.is_set(core) == Ok(true)).collect())
}

/// Keeps the calling thread on `core`. Where that is forbidden it is said, and the thread serves unpinned:
/// the scheduler may then move it, which costs time and breaks nothing.
pub fn pin(core: usize) {
    let mut mask = CpuSet::new();
    let pinned = mask.set(core).and_then(|()| sched_setaffinity(SELF, &mask));
    if let Err(errno) = pinned {
        command_line::say(format_args!("sched_setaffinity({core}): {errno}: served unpinned"));
    }
}
