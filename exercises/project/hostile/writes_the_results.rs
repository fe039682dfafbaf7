//! Hostile: looks for the file of results on the grader's command line, and writes its own there.
//!
//! Bounded: for three seconds, ten times a second, a file of one line, below the name that it found or
//! the one that is known.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("listening on {}", listener.local_addr().expect("it is bound"));
    for _ in 0..30 {
        for path in places() {
            let _ = fs::remove_file(&path);
            let written = fs::write(&path, r#"{"score":100.0,"tests":[]}"#);
            eprintln!("{path}: {written:?}");
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// What follows `--out` on somebody's command line and is called as results are.
fn places() -> Vec<String> {
    let mut places = vec!["/autograder/results/results.json".to_owned()];
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<String> =
            line.split(|it| *it == 0).map(|it| String::from_utf8_lossy(it).into_owned()).collect();
        let outs =
            words.windows(2).filter(|it| it[0] == "--out" && it[1].ends_with("results.json"));
        places.extend(outs.map(|it| it[1].clone()));
    }
    places
}
