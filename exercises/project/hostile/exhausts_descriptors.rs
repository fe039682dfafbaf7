//! Hostile: opens files until there are no descriptors.
//!
//! Bounded: at most a hundred thousand attempts, and it ends after six seconds.

use std::fs::File;
use std::thread;
use std::time::Duration;

fn main() {
    let files: Vec<File> = (0..100_000).map_while(|_| File::open("/dev/null").ok()).collect();
    // No descriptor is left for a socket either, and none for a line that asks for one.
    println!("listening on 127.0.0.1:1");
    thread::sleep(Duration::from_secs(6));
    drop(files);
}
