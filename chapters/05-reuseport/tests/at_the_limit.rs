//! A stop when there is no descriptor to take in those who wait.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use contract::server::Server;
use nix::sys::signal::Signal;

/// How long may be waited for what has to come.
const SERVED: Duration = Duration::from_secs(10);

/// A part of the patience, which is two seconds.
const PART: Duration = Duration::from_millis(250);

fn start() -> Server {
    Server::start(Path::new(env!("CARGO_BIN_EXE_ch05"))).expect("it starts")
}

#[test]
fn a_stop_ends_though_no_descriptor_becomes_free() {
    let mut server = start();
    // Fewer than are open: no accept can succeed, whoever leaves.
    server.limit_descriptors(1).expect("a limit");
    let _waits = server.connect("a client").expect("a handshake");
    server.signal(Signal::SIGTERM).expect("a signal");
    assert!(server.wait(SERVED).expect("it ends").success());
}

#[test]
fn a_stop_waits_for_a_descriptor() {
    for _ in 0..3 {
        let mut server = start();
        server.limit_descriptors(1).expect("a limit");
        let mut client = server.connect("a client").expect("a handshake");
        client.send(b"7\n").expect("room for it");
        let stopped_at = Instant::now();
        server.signal(Signal::SIGTERM).expect("a signal");
        thread::sleep(PART * 2);
        let _ = server.limit_descriptors(64);
        if stopped_at.elapsed() > PART * 6 {
            continue; // This machine was too busy to come in time.
        }
        let heard = client.hear(SERVED);
        assert!(heard.is(b"Odd\n"), "the client heard {heard}");
        assert!(server.wait(SERVED).expect("it ends").success());
        return;
    }
    panic!("three times this machine slept through a second");
}
