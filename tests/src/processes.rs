//! A server and its children: what a server that forks uses is the sum of what they use.
//!
//! All of it is read from /proc (see proc(5)). A process may end while it is looked at, and is then left
//! out.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// The process `pid`, and after it its children and theirs. Those that have ended and that nobody has
/// asked about, zombies, are among them.
///
/// Simplified: where the kernel has no list of children (CONFIG_PROC_CHILDREN), there are none. One that
/// has children all the time could keep us busy for ever: of more than [`FAMILY_MAX`], the rest is left out.
pub fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(&parent) = family.get(at)
        && family.len() < FAMILY_MAX
    {
        for task in tasks(parent) {
            let text = fs::read_to_string(format!("/proc/{parent}/task/{task}/children"));
            let children = text.unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
        }
        at += 1;
    }
    family
}

/// More than any server here has.
const FAMILY_MAX: usize = 20_000;

/// The threads of `pid`, in the order of their numbers.
pub fn tasks(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut ids: Vec<u32> =
        tasks.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// What the process does, as a letter: the third field of its `stat`. `None` when it is gone.
pub fn state(pid: u32) -> Option<char> {
    fields(format!("/proc/{pid}/stat")).and_then(|it| it.trim_start().chars().next())
}

/// Whether `pid` has ended, or is about to: its sockets are closed when it is known already that it ends, and
/// before anybody can ask how (`PF_EXITING`, among the flags of its `stat`).
pub fn has_ended(pid: u32) -> bool {
    const EXITING: u64 = 4;
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) => return is_gone(&error),
    };
    let Some((_, fields)) = stat.rsplit_once(')') else { return true };
    let mut fields = fields.split_whitespace();
    let is_zombie = fields.next().is_none_or(|it| matches!(it, "Z" | "X"));
    let flags = fields.nth(5).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    is_zombie || flags & EXITING != 0
}

/// Whether `error` is that of a file of a process that is no more. That we cannot look, for want of a
/// descriptor of our own, is nothing that it did.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Whether all threads of `pid` have been stopped, or it has ended.
pub fn is_stopped(pid: u32) -> bool {
    tasks(pid).into_iter().all(|task| {
        // It may end meanwhile.
        fields(format!("/proc/{pid}/task/{task}/stat"))
            .is_none_or(|it| it.trim_start().starts_with(['T', 'Z', 'X']))
    })
}

/// Whether all threads of `pid` sleep until something happens, or it has ended. One that waits for a core
/// does not sleep: it has something to do.
pub fn is_asleep(pid: u32) -> bool {
    tasks(pid).into_iter().all(|task| {
        fields(format!("/proc/{pid}/task/{task}/stat"))
            .is_none_or(|it| it.trim_start().starts_with(['S', 'Z', 'X']))
    })
}

/// How many threads `pid` has. A thread of the kernel's that works for a ring stands among them, and comes
/// and goes as the kernel likes: it is not counted.
pub fn threads(pid: u32) -> Option<usize> {
    let is_kernels = |task: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/task/{task}/comm"));
        name.is_ok_and(|it| it.starts_with("iou-"))
    };
    let all = tasks(pid);
    (!all.is_empty()).then(|| all.iter().filter(|it| !is_kernels(it)).count())
}

/// The CPU time of all threads of `pid` and of those children of its whose end it has been told, in
/// steps of a clock tick (10 ms).
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let fields = fields(format!("/proc/{pid}/stat"))?;
    let times = fields.split_whitespace().skip(11).take(4).filter_map(|it| it.parse::<u64>().ok());
    let ticks: u64 = times.sum();
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// The CPU time of all threads of `pid`, those that have ended included, to the nanosecond.
pub fn run_time(pid: u32) -> Option<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

/// How long each thread of `pid` has run or has waited for a core to run on.
pub fn wanted_times(pid: u32) -> Vec<(u32, Duration)> {
    run_times(pid).into_iter().map(|(task, [ran, waited])| (task, ran + waited)).collect()
}

/// How long each thread of `pid` has run, and how long it has waited for a core to run on.
pub fn run_times(pid: u32) -> Vec<(u32, [Duration; 2])> {
    let each = |task| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{task}/schedstat")).ok()?;
        let mut times = text.split_whitespace().filter_map(|it| it.parse().ok());
        Some((task, [times.next()?, times.next()?].map(Duration::from_nanos)))
    };
    tasks(pid).into_iter().filter_map(each).collect()
}

/// How long the first thread of `pid` has waited for a core to run on, since it began: the second number of
/// its `schedstat`. Zero where the kernel does not count it (CONFIG_SCHED_INFO), and of a process that is gone.
pub fn starved(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).unwrap_or_default();
    let waited_ns = text.split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    Duration::from_nanos(waited_ns)
}

/// How often the thread `task` of `pid` went to sleep of its own will.
pub fn sleeps(pid: u32, task: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{task}/status")).ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|it| it.trim().parse().ok())
}

/// How many entries the folder `name` of `/proc/PID` has: `fd`, `task`.
pub fn count(pid: u32, name: &str) -> Option<usize> {
    Some(fs::read_dir(Path::new("/proc").join(pid.to_string()).join(name)).ok()?.count())
}

/// The resident memory of `pid` in bytes.
///
/// `statm` is quicker and may be wrong by some pages for each core, since Linux 6.2 counts on each core by
/// itself: it is what is read where the kernel does not say it exactly.
pub fn resident_bytes(pid: u32) -> Option<usize> {
    if let Some(exact) = of_all_mappings(pid, "Rss:") {
        return Some(exact);
    }
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: usize = text.split_whitespace().nth(1)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    Some(pages * usize::try_from(page).ok()?)
}

/// The memory of `pid` in bytes, of which a page that several share counts as a part for each.
pub fn proportional_bytes(pid: u32) -> Option<usize> {
    of_all_mappings(pid, "Pss:")
}

/// What the line `name` says of all mappings of `pid` together, in bytes.
fn of_all_mappings(pid: u32, name: &str) -> Option<usize> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix(name))?;
    let kib: usize = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    Some(kib * 1024)
}

/// What follows the name of the program, which is in parentheses and may hold blanks.
fn fields(path: String) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.rsplit_once(')').map(|it| it.1.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::bounded;

    #[test]
    fn whom_we_have_no_descriptor_to_look_at_has_not_ended() {
        let gone = fs::read("/proc/0/stat").unwrap_err();
        assert!(is_gone(&gone), "{gone}");
        let error = std::io::Error::from_raw_os_error;
        assert!(is_gone(&error(libc::ESRCH)), "it ended while we read");
        for errno in [libc::EMFILE, libc::ENFILE, libc::EACCES, libc::EINTR] {
            assert!(!is_gone(&error(errno)), "{}", error(errno));
        }
    }

    #[test]
    fn who_shares_a_core_waits_for_it() {
        let spin = || {
            let mut command = Command::new("taskset");
            command.args(["-c", "0", "timeout", "20", "sh", "-c", "while :; do :; done"]);
            command.stdin(Stdio::null()).spawn().expect("taskset, of util-linux")
        };
        let mut spinning = [spin(), spin(), spin(), spin()];
        let mut sleeping = Command::new("sleep").arg("20").spawn().unwrap();
        // `timeout` sleeps, and the shell is its child.
        let shells = || -> Vec<u32> {
            spinning.iter().filter_map(|it| family(it.id()).get(1).copied()).collect()
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while shells().len() < spinning.len() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let sum = || shells().into_iter().map(starved).sum::<Duration>();
        let (before, start) = (sum(), Instant::now());
        thread::sleep(Duration::from_secs(1));
        let (waited, wall) = (sum() - before, start.elapsed());
        let asleep = starved(sleeping.id());
        for shell in shells() {
            let shell = nix::unistd::Pid::from_raw(shell.cast_signed());
            nix::sys::signal::kill(shell, nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        for child in spinning.iter_mut().chain([&mut sleeping]) {
            bounded::end(child).unwrap();
        }
        // Of four that want the same core, three wait at each moment.
        assert!(waited > 2 * wall, "{waited:?} in {wall:?}");
        assert!(asleep < wall / 2, "who sleeps waited {asleep:?} for a core");
    }
}
