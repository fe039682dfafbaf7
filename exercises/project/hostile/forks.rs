//! Hostile: starts itself twice, and so on.
//!
//! Bounded: five generations, which are 63 processes at most, and each ends by itself after three
//! seconds.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const GENERATIONS: u32 = 5;

fn main() {
    // As a server it has an address and a number here.
    let first = std::env::args().nth(1).unwrap_or_default();
    let generation: u32 = first.strip_prefix("generation-").map_or(0, |it| it.parse().unwrap_or(9));
    if generation < GENERATIONS {
        for _ in 0..2 {
            let mut command = Command::new("/proc/self/exe");
            command.arg(format!("generation-{}", generation + 1));
            command.stdout(Stdio::null()).stderr(Stdio::null());
            drop(command.spawn());
        }
    }
    thread::sleep(Duration::from_secs(3));
}
