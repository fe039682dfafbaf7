//! The monotonic clock and the CPU clocks, in nanoseconds.

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    sys::time::TimeSpec,
    time::{ClockId, ClockNanosleepFlags, clock_getcpuclockid, clock_gettime, clock_nanosleep},
    unistd::Pid,
};

/// Nanoseconds of the monotonic clock. It stands still for nobody, not even for a stopped process.
pub(crate) fn now_ns() -> u64 {
    // The call fails for clocks that do not exist; this one does.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(to_ns).unwrap_or(0)
}

/// CPU nanoseconds that this thread has used.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(to_ns).unwrap_or(0)
}

/// CPU nanoseconds that process `pid` has used, all its threads together, also those that are gone.
pub(crate) fn process_cpu_ns(pid: i32) -> Result<u64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid))
        .with_context(|| format!("clock_getcpuclockid({pid}): is that the server's process?"))?;
    let time = clock_gettime(clock).with_context(|| format!("clock_gettime of process {pid}"))?;
    Ok(to_ns(time))
}

/// Sleeps until `at_ns` of the monotonic clock.
pub(crate) fn sleep_until(at_ns: u64) {
    let at = to_timespec(at_ns);
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    // An absolute time can be slept for again after a signal, with nothing to work out.
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &at) == Err(Errno::EINTR) {}
}

pub(crate) fn to_timespec(ns: u64) -> TimeSpec {
    TimeSpec::new((ns / 1_000_000_000) as _, (ns % 1_000_000_000) as _)
}

/// Nanoseconds of a moment that was worked out in fractions of them.
pub(crate) fn to_ns_f64(ns: f64) -> u64 {
    ns.round().max(0.0) as u64
}

fn to_ns(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
