//! What the models do with what they inherit, when no process can be made, and beside others of their kind.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use contract::inject::{Fault, Injection};
use contract::server::{Program, Server};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long may be waited for what has to come.
const SERVED: Duration = Duration::from_secs(10);

/// How long a server waits, which is asked to stop and has nobody to wait for, is a part of this.
const DRAIN_MS: &str = "60000";

/// As in `prefork.rs`: so long it takes until another child is tried to make.
const PAUSE: Duration = Duration::from_millis(250);

const LAST_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// A server whose parent had `habit` with a signal: env(1) of GNU coreutils 8.31 has options for that.
fn started_by_one_who(habit: &str, model: &str) -> Server {
    let arguments = [habit, env!("CARGO_BIN_EXE_ch07"), "--model", model];
    let program = Program::new(Path::new("env"), &arguments).with(&[
        "--drain-ms",
        DRAIN_MS,
        "--max-connections",
        "4",
        "--workers",
        "2",
    ]);
    Server::start_program(&program).expect("it starts")
}

fn ask(server: &Server) -> bool {
    let mut client = server.connect("a client").expect("a handshake");
    client.ask(LAST_REQUEST, SERVED).bytes.starts_with(b"HTTP/1.1 200 ")
}

/// Then nobody is told that a child has ended, and the dead ones would be counted as living.
#[test]
fn who_was_started_by_one_who_ignores_sigchld_reaps_its_children() {
    for model in ["fork", "prefork"] {
        let mut server = started_by_one_who("--ignore-signal=CHLD", model);
        for client in 1..=9 {
            assert!(ask(&server), "{model}: client {client} is not answered");
        }
        server.signal(Signal::SIGTERM).expect("a signal");
        let status = server.wait(SERVED).unwrap_or_else(|error| panic!("{model}: {error:#}"));
        assert!(status.success(), "{model}: {status}");
    }
}

/// Then nobody who sleeps would hear that the server stops.
#[test]
fn who_was_started_by_one_who_blocks_signals_hears_them() {
    let models = ["iterative", "fork", "prefork", "thread-per-connection", "thread-pool"];
    for model in models {
        let mut server = started_by_one_who("--block-signal=ALRM,TERM", model);
        let _idle = server.connect("an idle client").expect("a handshake");
        assert!(model == "iterative" || ask(&server), "{model}: not answered");
        server.signal(Signal::SIGTERM).expect("a signal");
        let status = server.wait(SERVED).unwrap_or_else(|error| panic!("{model}: {error:#}"));
        assert!(status.success(), "{model}: {status}");
    }
}

/// One child is made, and then none.
fn barren() -> Server {
    let program = Program::new(
        Path::new(env!("CARGO_BIN_EXE_ch07")),
        &["--model", "prefork", "--workers", "1"],
    );
    let mut faults = vec![Fault::Fail(Errno::EAGAIN); 10_000];
    faults[0] = Fault::Pass;
    let injection = Injection::new().on(libc::SYS_clone, &faults);
    Server::launch(&program, "127.0.0.1:0", Some(injection), None)
        .expect("it starts, and seccomp user notification is there")
}

#[test]
fn a_pool_without_processes_tries_again_and_does_not_spin() {
    let server = barren();
    let child = *server.processes().iter().find(|&&it| it != server.pid()).expect("a child");
    let killed_at = Instant::now();
    kill(Pid::from_raw(child.cast_signed()), Signal::SIGKILL).expect("a signal");
    thread::sleep(PAUSE * 4);
    let tries = server.injector().expect("an injector").made(libc::SYS_clone) - 1;
    let pauses = killed_at.elapsed().as_millis() / PAUSE.as_millis();
    assert!(tries > 0, "nothing was tried in {pauses} pauses");
    assert!(tries as u128 <= pauses + 1, "{tries} tries in {pauses} pauses");
}

#[test]
fn who_waits_at_a_stop_is_refused_when_no_process_can_be_made() {
    let mut server = barren();
    // Half a head: the only child is busy with it.
    let mut busy = server.connect("a busy client").expect("a handshake");
    busy.send(b"GET").expect("room for it");
    let mut waits = server.connect("one who waits").expect("a handshake");
    waits.send(LAST_REQUEST).expect("room for it");
    server.signal(Signal::SIGTERM).expect("a signal");
    let heard = waits.hear(SERVED);
    assert!(heard.bytes.starts_with(b"HTTP/1.1 503 "), "the one who waits heard {heard}");
    drop(busy);
    assert!(server.wait(SERVED).expect("it ends").success());
}

/// Half of the clients would go to a server that nobody knows to run still.
#[test]
fn who_shares_an_address_says_with_whom() {
    for model in ["multireactor", "io-uring"] {
        let program = Program::new(
            Path::new(env!("CARGO_BIN_EXE_ch07")),
            &["--model", model, "--workers", "2"],
        );
        let first = match Server::start_program(&program) {
            Err(error) if format!("{error:#}").contains("io_uring is ") => {
                eprintln!("{model} was NOT tried here: NEEDS io_uring: {error:#}");
                continue;
            }
            first => first.expect("it starts"),
        };
        let address = first.address().to_string();
        let second = Server::start_program_at(&program, &address).expect("it starts too");
        let named = format!("this address is shared with ch07 (process {})", first.pid());
        let asked_at = Instant::now();
        while !second.stderr().contains(&named) {
            assert!(asked_at.elapsed() < SERVED, "{model} said {:?}", second.stderr());
            thread::sleep(PAUSE / 25);
        }
    }
}
