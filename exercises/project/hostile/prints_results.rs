//! Hostile: prints what a grader might take for its own results, on both streams.
//!
//! Bounded: some lines, and then it listens for two seconds and answers nobody.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

fn main() {
    let results = r#"{"score":100.0,"tests":[{"name":"sums_are_right","score":4,"max_score":4}]}"#;
    for line in [r#"{"Holds":"all of it"}"#, results] {
        eprintln!("{line}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("listening on {}", listener.local_addr().expect("it is bound"));
    for _ in 0..100 {
        println!(r#"{{"Holds":"all of it"}}"#);
        println!("{results}");
    }
    thread::sleep(Duration::from_secs(2));
}
