//! How the scheduler treats a thread that saturates: as one that hurries nobody.
//!
//! A client is cheaper than its server. On one core with it, the scheduler owes the client time, and lets it
//! interrupt the server after each answer: both then work in batches of one or two, and pay a context
//! switch for each. A batch thread waits until the server has nothing left to do.
//!
//! On a core of its own a batch thread would wait for whoever else works there, and a schedule has moments
//! to keep: such threads stay as they are.
#![expect(unsafe_code, reason = "nix has no sched_setscheduler")]

use super::plan::{Pace, Plan};
use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity},
    unistd::Pid,
};

/// Whether the client saturates and is pinned to the one CPU to which the server's process is pinned too.
pub(crate) fn shares_core(plan: &Plan) -> bool {
    let (Some(cpu), Some(pid), Pace::Saturate) = (plan.cpu, plan.server_pid, plan.pace) else {
        return false;
    };
    let Ok(server) = sched_getaffinity(Pid::from_raw(pid)) else { return false };
    (0..CpuSet::count()).all(|other| server.is_set(other) == Ok(other == cpu))
}

/// Makes the calling thread one of `SCHED_BATCH`, which any process may do.
///
/// # Errors
/// If the kernel, or a container's filter of system calls, refuses.
pub(crate) fn be_patient() -> Result<(), Errno> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives until the call has returned, and 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) };
    Errno::result(result).map(drop)
}
