//! Hostile: ends the process that started it, and the one that started that.
//!
//! Bounded: two signals, and never to process 1.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

fn main() {
    let parent = getppid();
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    let field = stat.rsplit_once(')').and_then(|it| it.1.split_whitespace().nth(1)?.parse().ok());
    for pid in [Some(parent.as_raw()), field].into_iter().flatten() {
        if pid > 1 {
            eprintln!("kill({pid}): {:?}", kill(Pid::from_raw(pid), Signal::SIGKILL));
        }
    }
}
