//! What can be seen of the servers from outside, beyond what their clients notice: flags of their
//! descriptors, and how many system calls an answer takes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use contract::build;
use contract::inject::{Fault, Injection};
use contract::server::{Client, Server};
use contract::verdicts;
use libtest_mimic::{Arguments, Completion, Trial};
use nix::errno::Errno;

fn main() -> ExitCode {
    let plain = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = vec![
        plain("an_event_loop_blocks_on_nothing_but_its_wait", event_loops_do_not_block),
        plain("every_socket_is_closed_on_exec", closed_on_exec),
        Trial::ignorable_test("an_answer_is_one_send", || Ok(one_send())),
        Trial::ignorable_test("who_may_not_be_pinned_serves_unpinned", || Ok(unpinned())),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

const LONG: Duration = Duration::from_secs(10);

/// A listener that blocks would freeze an event loop whose client has gone between the event and the
/// accept; a client that blocks would freeze one that waits for nobody. Chapter 03's clients block,
/// which is what it is there to show.
fn event_loops_do_not_block() {
    for column in verdicts::columns() {
        let chapter = &column.name[..4];
        let expected = match chapter {
            "ch01" | "ch02" => continue, // No event loop.
            "ch06" => continue, // The kernel waits, in its own time, and nobody is held up.
            "ch03" => (true, false),
            _ => (true, true),
        };
        let server = start(column.name);
        let listeners = sockets(&server);
        let client = connect(server.address());
        let accepted = wait_for_one_more(&server, listeners.len());
        let nonblocking = (
            listeners.iter().all(|it| is_nonblocking(&server, *it)),
            is_nonblocking(&server, accepted),
        );
        assert_eq!(nonblocking, expected, "{}: (listener, client) is O_NONBLOCK", column.name);
        drop(client);
    }
}

/// Whatever a server starts must not hold its clients open.
fn closed_on_exec() {
    for column in verdicts::columns() {
        let server = start(column.name);
        let listeners = sockets(&server);
        let _client = connect(server.address());
        wait_for_one_more(&server, listeners.len());
        for descriptor in sockets(&server) {
            let inherited = flags(&server, descriptor) & libc::O_CLOEXEC == 0;
            assert!(!inherited, "{}: descriptor {descriptor} is inherited", column.name);
        }
    }
}

/// Two small sends would meet Nagle's algorithm and the delayed acknowledgement of the other side.
fn one_send() -> Completion {
    // A ring makes no such calls: what it hands in is not seen from outside.
    for column in verdicts::columns().filter(|it| !it.name.starts_with("ch06")) {
        let exe = build::program(column.name).unwrap();
        let injection = Injection::new().on(libc::SYS_sendto, &[]);
        let server = match Server::start_with(Path::new(&exe), injection) {
            Ok(server) => server,
            Err(error) => {
                start(column.name); // It is the filter that this machine refuses, not the server.
                let needs = format!("NEEDS seccomp user notification: {error:#}");
                return Completion::ignored_with(needs);
            }
        };
        for request in ["7\n", "100\n", "x\n"].iter().cycle().take(12) {
            let heard = connect(server.address()).ask(request.as_bytes(), LONG);
            assert!(!heard.bytes.is_empty(), "{}: {heard}", column.name);
        }
        let sends = server.injector().unwrap().made(libc::SYS_sendto);
        assert_eq!(sends, 12, "{}: sends for twelve answers", column.name);
    }
    Completion::Completed
}

/// A container may forbid `sched_setaffinity`: the servers that pin their threads say so, and serve.
fn unpinned() -> Completion {
    for name in ["ch05", "ch06"] {
        let exe = build::program(name).unwrap();
        if let Err(error) = Server::start(&exe) {
            return Completion::ignored_with(format!("NEEDS what {name} needs: {error:#}"));
        }
        let forbidden = [Fault::Fail(Errno::EPERM); 64];
        let injection = Injection::new().on(libc::SYS_sched_setaffinity, &forbidden);
        let server = match Server::start_with(&exe, injection) {
            Ok(server) => server,
            Err(error) => {
                let needs = format!("NEEDS seccomp user notification: {error:#}");
                return Completion::ignored_with(needs);
            }
        };
        let heard = connect(server.address()).ask(b"7\n", LONG);
        assert!(heard.is(b"Odd\n"), "{name}: {heard}");
        // What it wrote may still be on its way to us.
        let begin = Instant::now();
        while !server.stderr().contains("served unpinned") && begin.elapsed() < LONG {
            thread::sleep(Duration::from_millis(5));
        }
        let said = server.stderr();
        assert!(said.contains("EPERM") && said.contains("served unpinned"), "{name} said {said:?}");
    }
    Completion::Completed
}

fn start(name: &str) -> Server {
    Server::start(&build::program(name).unwrap()).unwrap()
}

fn connect(server: SocketAddr) -> Client {
    Client::connect(server, "a client", LONG).unwrap()
}

/// The descriptors of `server` that are sockets, all of which are listeners while nobody is connected.
fn sockets(server: &Server) -> Vec<i32> {
    let mut sockets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().flatten() {
        let is_socket =
            fs::read_link(entry.path()).is_ok_and(|it| it.to_string_lossy().starts_with("socket:"));
        if is_socket {
            sockets.push(entry.file_name().to_string_lossy().parse().unwrap());
        }
    }
    sockets.sort_unstable();
    sockets
}

/// The socket that the server has when it has accepted one more client.
fn wait_for_one_more(server: &Server, before: usize) -> i32 {
    for _ in 0..1000 {
        let now = sockets(server);
        if now.len() > before {
            return now[now.len() - 1];
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{} accepted nobody", server.exe().display());
}

fn is_nonblocking(server: &Server, descriptor: i32) -> bool {
    flags(server, descriptor) & libc::O_NONBLOCK != 0
}

/// The `flags` line of `/proc/PID/fdinfo/N`, which is octal: proc(5).
fn flags(server: &Server, descriptor: i32) -> i32 {
    let path = format!("/proc/{}/fdinfo/{descriptor}", server.pid());
    let text = fs::read_to_string(path).unwrap();
    let flags = text.lines().find_map(|it| it.strip_prefix("flags:")).unwrap();
    i32::from_str_radix(flags.trim(), 8).unwrap()
}
