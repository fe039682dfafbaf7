//! System calls, counted by `perf stat`: a tracepoint of the kernel costs a server some per cent, and
//! ptrace, which `cargo lab trace` uses, stops it twice at each call.

use super::tree::Tree;
use anyhow::{Context, Result, bail};
use contract::sys;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    io::Read,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// How long perf may take until it counts: it says nothing when it does.
const ATTACH: Duration = Duration::from_millis(300);

/// A count that goes on.
#[derive(Debug)]
pub struct Calls {
    perf: Child,
}

impl Calls {
    /// Counts the calls of all processes of `tree`, and of those that they make from now on.
    ///
    /// # Errors
    /// If there is no perf, or it may not count: the sentence says what to do.
    pub fn count(tree: &Tree) -> Result<Calls> {
        let pids: Vec<String> = tree.pids().iter().map(u32::to_string).collect();
        let mut command = Command::new("perf");
        sys::heed_signals(&mut command); // We wait for them in a thread, and perf is ended by one.
        let perf = command
            .args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", &pids.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("perf cannot be started: apt-get install linux-perf")?;
        thread::sleep(ATTACH);
        Ok(Calls { perf })
    }

    /// How many there were.
    ///
    /// # Errors
    /// If perf did not count: its own words, and what to do.
    pub fn end(mut self) -> Result<u64> {
        let pid = i32::try_from(self.perf.id()).context("a process number")?;
        // It may have ended by itself, and then says why.
        let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
        let mut text = String::new();
        if let Some(mut stderr) = self.perf.stderr.take() {
            stderr.read_to_string(&mut text).context("read: perf's words")?;
        }
        self.perf.wait().context("waitpid: perf")?;
        counted(&text)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// The first field of the line about the calls.
fn counted(text: &str) -> Result<u64> {
    let line = text.lines().find(|it| it.contains("raw_syscalls:sys_enter"));
    match line.and_then(|it| it.split(',').next()?.parse().ok()) {
        Some(count) => Ok(count),
        None => bail!(
            "perf does not count system calls here: as root, or with kernel.perf_event_paranoid at -1 \
             and a readable /sys/kernel/tracing, it does. It says: {}",
            text.trim()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_first_field() {
        assert_eq!(
            counted("# started\n\n1234,,raw_syscalls:sys_enter,99,100.00,,\n").unwrap(),
            1234
        );
        assert!(counted("event syntax error: 'raw_syscalls:sys_enter'\n").is_err());
        assert!(counted("<not counted>,,raw_syscalls:sys_enter,0,0.00,,\n").is_err());
    }
}
