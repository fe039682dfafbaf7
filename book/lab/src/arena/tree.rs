//! What a server costs that may be several processes: CPU time and memory of the one that was started and
//! of all that came from it.

use anyhow::{Context, Result};
use nix::{
    time::{clock_getcpuclockid, clock_gettime},
    unistd::{Pid, SysconfVar, sysconf},
};
use std::{fs, ops::Sub, path::Path};

/// A process and its descendants, as they are now.
///
/// Simplification: a child whose parent has ended belongs to nobody's tree any more. No server here leaves
/// such children.
#[derive(Clone, Debug)]
pub struct Tree {
    pids: Vec<u32>,
}

/// CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// Of those that live, in seconds: known to the nanosecond.
    living_s: f64,
    /// Of children that have been waited for, in seconds.
    pub buried_s: f64,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident pages of all processes; a page that two of them share counts twice: `VmRSS`.
    pub resident_bytes: u64,
    /// The same, each page divided by the number of processes that share it: `Pss` of smaps_rollup.
    pub proportional_bytes: u64,
    /// The tables that say where the pages are: `VmPTE`.
    pub page_table_bytes: u64,
    /// How many threads there are, of all processes.
    pub threads: u64,
}

/// What the kernel holds for everybody, in bytes: /proc/meminfo. Only differences say anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Stacks of threads in the kernel: `KernelStack`.
    pub stack_bytes: u64,
    /// Objects of the kernel such as sockets: `Slab`.
    pub slab_bytes: u64,
    /// What is still available: `MemAvailable`.
    pub available_bytes: u64,
}

impl Tree {
    /// Of `root`.
    ///
    /// # Errors
    /// If it has ended.
    pub fn of(root: u32) -> Result<Tree> {
        let mut pids = vec![root];
        let mut next = 0;
        while let Some(&pid) = pids.get(next) {
            next += 1;
            let tasks = format!("/proc/{pid}/task");
            let tasks = match fs::read_dir(&tasks).with_context(|| tasks.clone()) {
                Err(error) if pid == root => return Err(error),
                Err(_) => continue, // A child that has ended in the meantime.
                Ok(tasks) => tasks,
            };
            for task in tasks.flatten() {
                let Ok(text) = fs::read_to_string(task.path().join("children")) else { continue };
                pids.extend(text.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
            }
        }
        Ok(Tree { pids })
    }

    /// The CPU time that all have used, by their own clocks, and that of their children that have been waited
    /// for. (`stat` has the first too, in ticks of 10 ms and rounded down: of 64 processes that each worked
    /// for less than one, nothing would be left.) The second is one number in ticks for each process.
    ///
    /// # Errors
    /// If the first of them has ended.
    pub fn cpu(&self) -> Result<Cpu> {
        let tick =
            sysconf(SysconfVar::CLK_TCK).context("sysconf")?.context("no clock tick")? as f64;
        let mut sum = Cpu::default();
        for (at, pid) in self.pids.iter().enumerate() {
            let path = format!("/proc/{pid}/stat");
            let text = match fs::read_to_string(&path).with_context(|| path.clone()) {
                Err(error) if at == 0 => return Err(error),
                Err(_) => continue, // Its parent has its time.
                Ok(text) => text,
            };
            // cutime and cstime: the 16th and 17th field of proc_pid_stat(5). The second one is a name in
            // parentheses, which may hold blanks.
            let (_, fields) = text.rsplit_once(')').context("a name in parentheses")?;
            let ticks: Vec<f64> =
                fields.split_whitespace().skip(13).take(2).flat_map(str::parse).collect();
            let [user, system] = ticks[..] else { anyhow::bail!("{path}: it has no CPU times") };
            sum.buried_s += (user + system) / tick;
            let pid = Pid::from_raw(i32::try_from(*pid).context("a process number")?);
            // One that ends in this moment has no clock any more; its parent has its time.
            if let Ok(time) = clock_getcpuclockid(pid).and_then(clock_gettime) {
                sum.living_s += time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9;
            }
        }
        Ok(sum)
    }

    /// What all hold.
    pub fn memory(&self) -> Memory {
        let mut sum = Memory::default();
        for pid in &self.pids {
            let process = Path::new("/proc").join(pid.to_string());
            let status = fs::read_to_string(process.join("status")).unwrap_or_default();
            let rollup = fs::read_to_string(process.join("smaps_rollup")).unwrap_or_default();
            sum.resident_bytes += kib(&status, "VmRSS:");
            sum.page_table_bytes += kib(&status, "VmPTE:");
            sum.proportional_bytes += kib(&rollup, "Pss:");
            sum.threads += number(&status, "Threads:");
        }
        sum
    }

    /// Their numbers, the first process first.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// How many processes there are.
    pub fn processes(&self) -> usize {
        self.pids.len()
    }
}

impl Kernel {
    /// As it is now.
    ///
    /// # Errors
    /// If /proc cannot be read.
    pub fn look() -> Result<Kernel> {
        let text = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
        Ok(Kernel {
            stack_bytes: kib(&text, "KernelStack:"),
            slab_bytes: kib(&text, "Slab:"),
            available_bytes: kib(&text, "MemAvailable:"),
        })
    }
}

impl Cpu {
    /// Both.
    pub fn seconds(self) -> f64 {
        self.living_s + self.buried_s
    }
}

impl Sub for Cpu {
    type Output = Cpu;

    fn sub(self, before: Cpu) -> Cpu {
        Cpu { living_s: self.living_s - before.living_s, buried_s: self.buried_s - before.buried_s }
    }
}

fn kib(text: &str, key: &str) -> u64 {
    number(text, key) * 1024
}

fn number(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|it| it.strip_prefix(key));
    line.and_then(|it| it.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, id};

    #[test]
    fn a_child_is_of_the_tree_and_its_time_stays_when_it_is_waited_for() {
        // It works for some hundredths of a second, and so do we not.
        let script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; read line";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let tree = Tree::of(id()).unwrap();
        assert!(tree.pids.contains(&child.id()), "{tree:?}");
        assert!(
            tree.memory().resident_bytes > Tree::of(child.id()).unwrap().memory().resident_bytes
        );
        let before = Tree::of(id()).unwrap().cpu().unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let after = Tree::of(id()).unwrap();
        assert!(!after.pids.contains(&child.id()));
        assert!((after.cpu().unwrap() - before).seconds() >= 0.0);
        assert!(Tree::of(u32::MAX >> 1).is_err());
    }

    #[test]
    fn less_than_a_tick_of_work_is_seen() {
        let tree = Tree::of(id()).unwrap();
        let before = tree.cpu().unwrap();
        let mut sum = 0_u64;
        (0..200_000_u64).for_each(|it| sum = std::hint::black_box(sum.wrapping_add(it)));
        let spent = (tree.cpu().unwrap() - before).seconds();
        assert!(spent > 0.0, "{spent}");
    }

    #[test]
    fn a_line_of_proc_is_read_by_its_name() {
        let text = "Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t3\n";
        assert_eq!(kib(text, "VmRSS:"), 2048 * 1024);
        assert_eq!(number(text, "Threads:"), 3);
        assert_eq!(number(text, "VmPTE:"), 0);
    }
}
