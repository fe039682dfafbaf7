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

/// The CPUs on which the calling thread may run, for people: `0, 1`.
pub(crate) fn own_cpus() -> String {
    let Ok(own) = sched_getaffinity(Pid::from_raw(0)) else { return "(unknown)".into() };
    let allowed = (0..CpuSet::count()).filter(|cpu| own.is_set(*cpu) == Ok(true));
    allowed.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(", ")
}

/// Makes the calling thread, and whatever it starts, one of `SCHED_BATCH`, which any process may do.
///
/// # Errors
/// If the kernel, or a container's filter of system calls, refuses.
pub fn be_patient() -> Result<(), Errno> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives until the call has returned, and 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::sched_setaffinity;
    use std::time::Duration;

    #[test]
    fn who_saturates_on_the_servers_core_is_known() {
        let target = "127.0.0.1:1".parse().unwrap();
        // The server's process is this very thread, pinned to one of the CPUs that it may use.
        let server = nix::unistd::gettid().as_raw();
        let own = Pid::from_raw(0);
        let before = sched_getaffinity(own).unwrap();
        let cpu = (0..CpuSet::count()).find(|cpu| before.is_set(*cpu) == Ok(true)).unwrap();
        let mut one = CpuSet::new();
        one.set(cpu).unwrap();
        sched_setaffinity(own, &one).unwrap();
        let length = Duration::from_secs(1);
        let plan = Plan::saturate(target, "/", 1, length).with_server_pid(server);
        assert!(shares_core(&plan.clone().with_cpu(cpu)));
        assert!(!shares_core(&plan.clone().with_cpu(cpu + 1)) && !shares_core(&plan));
        let steady = Plan::steady(target, "/", 1, 1.0, length).with_server_pid(server);
        assert!(!shares_core(&steady.with_cpu(cpu)));
        assert!(!shares_core(&Plan { server_pid: None, ..plan.clone().with_cpu(cpu) }));
        if before.is_set(cpu + 1) == Ok(true) {
            sched_setaffinity(own, &before).unwrap();
            assert!(!shares_core(&plan.with_cpu(cpu)));
        }
    }

    #[test]
    fn a_thread_can_be_one_of_batch() {
        let policy = || {
            be_patient().unwrap();
            std::fs::read_to_string("/proc/thread-self/stat").unwrap()
        };
        let stat = std::thread::spawn(policy).join().unwrap();
        // After the name, which may hold blanks: the 41st field of all is the policy.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        assert_eq!(fields[41 - 3], libc::SCHED_BATCH.to_string());
    }
}
