//! How the scheduler treats a thread that saturates: as one that hurries nobody.
//!
//! A client is cheaper than its server. On one core with it, the scheduler owes the client time, and lets it
//! interrupt the server after each answer: both then work in batches of one or two, and pay a context
//! switch for each. A batch thread waits until the server has nothing left to do. A schedule has moments to
//! keep, and its threads stay as they are.
#![expect(unsafe_code, reason = "nix has no sched_setscheduler")]

use nix::errno::Errno;

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
