//! Hostile: says that it listens where somebody else does, so that another server is graded.
//!
//! Bounded: it says so once, for a port of loopback that it finds in /proc, and sleeps for ten seconds.

use std::fs;
use std::thread;
use std::time::Duration;

fn main() {
    // The test of the grader lets a right server listen meanwhile, at this port.
    let text = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let mut ports = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, "0A", ..] = fields[..] else { return None };
        u16::from_str_radix(local.strip_prefix("0100007F:")?, 16).ok()
    });
    let wanted = "@PORT@".parse().ok();
    let port = ports.find(|it| wanted.is_none_or(|wanted: u16| wanted == *it));
    println!("listening on 127.0.0.1:{}", port.unwrap_or(1));
    thread::sleep(Duration::from_secs(10));
}
