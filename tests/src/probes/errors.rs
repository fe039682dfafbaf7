//! The promises about what goes wrong on the way: resets, failing calls, signals, reused descriptors.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::resources::must_be_full;
use super::stalls::grow;
use super::{ANSWER, Observation, Outcome, TO_SLEEP, Trouble, fails, holds, poll, still_serves};
use crate::inject::Fault::{Fail, NotNow, Part};
use crate::inject::Injection;
use crate::server::{Client, Server};
use crate::verdicts::Symptom;

pub(super) fn resets(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    let threads = server.threads()?;

    // Gone before they are accepted: the server finds a connection without a peer. It is stopped when it
    // sleeps already, so that its wait is interrupted too.
    thread::sleep(TO_SLEEP);
    server.stop()?;
    for _ in 0..10 {
        // A short queue takes two of them, and the others are not let in.
        if let Ok(client) = server.connect_within("a client", Duration::from_millis(50)) {
            client.reset()?;
        }
    }
    server.signal(Signal::SIGCONT)?;
    if let Some(finding) = still_serves(&server, "resets before the accept")? {
        return Ok(finding);
    }

    let start = Instant::now();
    let mut resets = 0;
    for _ in 0..200 {
        // A short queue drops some of their SYNs, which costs them a second each.
        if start.elapsed() > LONG_ENOUGH && resets >= 20 {
            break;
        }
        if let Ok(client) = server.connect_within("a client", ANSWER) {
            client.reset()?;
            resets += 1;
        }
        // In step with it, so that what it does with them is not a matter of its speed.
        if resets % 20 == 0
            && let Some(finding) = still_serves(&server, "resets after the connect")?
        {
            return Ok(finding);
        }
    }
    if let Some(finding) = still_serves(&server, "many resets after the connect")? {
        return Ok(finding);
    }

    let said: [&[u8]; 4] = [b"12", b"7\n", b"7\n8\n9\n", &[b'8'; 1000]];
    for bytes in said.into_iter().cycle().take(40) {
        let mut client = server.connect("a client")?;
        // The server may have answered and closed already.
        if client.send(bytes).is_ok() {
            client.reset()?;
        }
    }
    if let Some(finding) = still_serves(&server, "resets after half a line and after a request")? {
        return Ok(finding);
    }
    if let Some(line) = server.stderr().lines().find(|it| it.contains("panicked")) {
        return fails(Symptom::Died, format!("A part of the server panicked: {line}."));
    }
    // A thread per client may still be ending.
    if !poll(ANSWER, || server.threads().is_ok_and(|it| it <= threads)) {
        let seen =
            format!("It had {threads} threads before the resets, {} later.", server.threads()?);
        return fails(Symptom::Leaked, seen);
    }
    holds(format!("{resets} clients reset after their connect, others before and in between."))
}

/// How long a series is continued where a short queue makes each connect slow.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

/// Starts `exe` with `injection`, or says what this machine lacks for it.
fn start_with(exe: &Path, injection: Injection) -> Result<Server, Trouble> {
    Server::start_with(exe, injection).map_err(|error| {
        // Is it the server that cannot be run, or the filter that cannot be installed?
        match Server::start(exe) {
            Ok(_) => Trouble::Needs(format!(
                "seccomp user notification (Linux 5.5; in a container, run it with \
                 `--security-opt seccomp=unconfined`): {error:#}"
            )),
            Err(error) => Trouble::Broken(error),
        }
    })
}

/// One request after the other, each of which must be answered.
fn ask_all(server: &Server, requests: usize, after: &str) -> Result<Option<Observation>, Trouble> {
    for _ in 0..requests {
        if let Some(finding) = still_serves(server, after)? {
            return Ok(Some(finding));
        }
    }
    Ok(None)
}

/// What accept fails with though the listener is as good as before: accept(2), "Error handling".
pub(super) const ACCEPT_ERRORS: [Errno; 7] = [
    Errno::ECONNABORTED,
    Errno::EPROTO,
    Errno::EINTR,
    Errno::ENETDOWN,
    Errno::EMFILE,
    Errno::ENFILE,
    Errno::ENOBUFS,
];

pub(super) fn accept_errors(exe: &Path) -> Outcome {
    let faults = ACCEPT_ERRORS.map(Fail);
    // Another system has accept(2) alone, and a server may be written for both.
    let calls = [libc::SYS_accept4, libc::SYS_accept];
    for (call, other) in [(calls[0], calls[1]), (calls[1], calls[0])] {
        let injection = Injection::new().on(call, &faults).on(other, &[]);
        let server = start_with(exe, injection)?;
        if let Some(finding) = ask_all(&server, 2 * ACCEPT_ERRORS.len(), "failed accepts")? {
            return Ok(finding);
        }
        if server.injector().is_some_and(|it| it.is_used_up()) {
            return holds("Accept failed in seven ways, and the clients after each were served.");
        }
        if server.has_a_ring() {
            return accept_errors_of_a_ring(exe);
        }
        if server.injector().is_none_or(|it| it.made(other) == 0) {
            break;
        }
    }
    Err(Trouble::Broken(anyhow::anyhow!(
        "the server did not meet the errors that were prepared for its accept4 or accept"
    )))
}

/// The one error of an accept that can be had from the kernel itself: no descriptor is left.
///
/// Seen red with a chapter 06 that asks for no further accept after EMFILE, in `reactor.rs`. There is no
/// wrong server for it, since that would need a ring of its own.
fn accept_errors_of_a_ring(exe: &Path) -> Outcome {
    // What it has open when it has started, and a few for its clients.
    let limit = u64::try_from(Server::start(exe)?.descriptors()? + ROOM)?;
    let server = Server::start_with_descriptors(exe, limit)?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    for round in 1..=3 {
        // So many that there is no room until three times the patience is over.
        let holders: Vec<Client> =
            (0..4 * ROOM).map(|_| server.connect("a holder")).collect::<Result<_, _>>()?;
        let mut client = server.connect("a client")?;
        let _ = client.send(b"7\n");
        if let Some(finding) = must_be_full(&server, limit, Some(client.address()))? {
            return Ok(finding);
        }
        drop(holders);
        let heard = client.hear(ANSWER);
        if !heard.is(b"Odd\n") {
            server.must_run()?;
            let seen = format!(
                "Its accept failed for want of a descriptor (round {round}), then those who had \
                 held them left, and the client that had come meanwhile heard {heard}."
            );
            return fails(Symptom::Unanswered, seen);
        }
    }
    holds(
        "Its accept failed for want of a descriptor, and the clients were served when there was one. The \
         other errors cannot be given to a ring from outside: its chapter's own tests script them.",
    )
}

/// How many clients a server with few descriptors has room for.
const ROOM: usize = 8;

pub(super) fn signals(exe: &Path) -> Outcome {
    let interrupted = [Fail(Errno::EINTR); 3];
    let mut injection = Injection::new();
    for call in [
        libc::SYS_accept4,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_recvfrom,
        libc::SYS_sendto,
    ] {
        injection = injection.on(call, &interrupted);
    }
    let server = start_with(exe, injection)?;
    if let Some(finding) = ask_all(&server, 6, "interrupted system calls")? {
        return Ok(finding);
    }
    drop(server);

    // A stop and a continue interrupt what sleeps: epoll_wait, and recv with a timeout, end in EINTR.
    let server = Server::start(exe)?;
    for round in 1..=20 {
        let mut client = server.connect("a client")?;
        let _ = client.send(b"1");
        thread::sleep(TO_SLEEP);
        server.stop()?;
        server.signal(Signal::SIGWINCH)?;
        server.signal(Signal::SIGCONT)?;
        let heard = client.ask(b"00\n", ANSWER);
        if !heard.is(b"Even\n") {
            if let Some(finding) = still_serves(&server, "a stop and a continue")? {
                return Ok(finding);
            }
            // A server that answers each piece by itself did not need a signal to do so.
            let wrong = !heard.bytes.is_empty();
            let symptom = if wrong { Symptom::WrongAnswer } else { Symptom::Unanswered };
            let seen =
                format!("Stopped and continued for the {round}th time, the client heard {heard}.");
            if !wrong {
                return fails(symptom, seen);
            }
        }
    }
    match still_serves(&server, "twenty stops and continues")? {
        Some(finding) => Ok(finding),
        None => holds("Its calls were interrupted, it was stopped and continued, and lost nobody."),
    }
}

pub(super) fn short_sends(exe: &Path) -> Outcome {
    let faults = [Part(1), NotNow, Part(1), NotNow, Part(2), NotNow, Part(1)];
    let server = start_with(exe, Injection::new().on(libc::SYS_sendto, &faults))?;
    let asked: [(&[u8], &[u8]); 3] =
        [(b"100\n", b"Even\n"), (b"7\n", b"Odd\n"), (b"x\n", b"Invalid\n")];
    for (request, expected) in asked {
        let heard = server.connect("a client")?.ask(request, ANSWER);
        if !heard.is(expected) {
            let symptom = match heard.bytes.as_slice() {
                b"" => Symptom::Unanswered,
                bytes if bytes == expected => Symptom::Reset,
                _ => Symptom::WrongAnswer,
            };
            let seen = format!(
                "The kernel took an answer in parts, and the client heard {heard} instead of {:?}.",
                String::from_utf8_lossy(expected)
            );
            return fails(symptom, seen);
        }
    }
    if server.has_a_ring() {
        return holds(
            "Its answers came whole. A ring cannot be given short sends from outside: its chapter's own \
             tests script them.",
        );
    }
    if !server.injector().is_some_and(|it| it.is_used_up()) {
        return Err(Trouble::Broken(anyhow::anyhow!(
            "the server did not meet the short sends that were prepared for its sendto"
        )));
    }
    holds("The kernel took answers in parts, and the clients heard all of them.")
}

pub(super) fn reused_descriptors(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    for round in 1..=3 {
        if let Some(seen) = churn(&server)? {
            if let Some(finding) = still_serves(&server, "clients that left as others came")? {
                return Ok(finding);
            }
            return fails(Symptom::WrongAnswer, format!("In round {round}, {seen}."));
        }
    }
    // The deadline of a client that has left must not end the one that got its number.
    for _ in 0..3 {
        let heard = server.connect("client A")?.ask(b"7\n", ANSWER);
        if !heard.is(b"Odd\n") {
            return fails(Symptom::Unanswered, format!("Client A asked 7 and heard {heard}."));
        }
        thread::sleep(Duration::from_millis(1200));
        let mut b = server.connect("client B")?;
        let _ = b.send(b"10");
        grow(&b, Duration::from_millis(1300));
        if b.age() > Duration::from_millis(1800) {
            continue; // This machine was too busy to come in time: B may be let go by now.
        }
        let heard = b.ask(b"0\n", ANSWER);
        if heard.is(b"Even\n") {
            return holds("Clients left as others came, and each had its own answer.");
        }
        if !heard.bytes.is_empty() {
            // A server that answers half a line has not mixed anybody up.
            return holds("Clients left as others came; half a line was answered as it was.");
        }
        let seen = format!(
            "Client B got the descriptor of client A, who had left, and was let go {} ms after its \
             connect, when A's patience would have run out: it heard {heard}.",
            b.age().as_millis()
        );
        return fails(Symptom::Unanswered, seen);
    }
    Err(Trouble::Broken(anyhow::anyhow!("three times this machine slept through half a second")))
}

/// In one batch of events, some clients reset, some complete their request, and new ones come, who get
/// the descriptors that have just become free. What went wrong, if anything did.
fn churn(server: &Server) -> anyhow::Result<Option<String>> {
    let mut held = Vec::new();
    // What the one that resets has said would make another's answer `Invalid`.
    for said in [b"x", b"1"] {
        let mut client = server.connect("a client")?;
        let _ = client.send(said);
        held.push(client);
    }
    thread::sleep(TO_SLEEP);
    server.stop()?;
    let mut completing = held.pop();
    for client in held {
        client.reset()?;
    }
    if let Some(client) = &mut completing {
        let _ = client.send(b"00\n");
    }
    let new: Vec<_> = (0..4)
        .map(|at| {
            let address = server.address();
            thread::spawn(move || {
                let client = Client::connect(address, "a new client", ANSWER);
                client.map(|mut it| it.ask(if at % 2 == 0 { b"7\n" } else { b"8\n" }, ANSWER))
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(50));
    server.signal(Signal::SIGCONT)?;
    for (at, thread) in new.into_iter().enumerate() {
        let expected: &[u8] = if at % 2 == 0 { b"Odd\n" } else { b"Even\n" };
        match thread.join() {
            Ok(Ok(heard)) if heard.is(expected) => {}
            Ok(Ok(heard)) => return Ok(Some(format!("a new client heard {heard}"))),
            Ok(Err(error)) => return Ok(Some(format!("a new client could not connect: {error}"))),
            Err(_) => anyhow::bail!("a client panicked"),
        }
    }
    let heard = completing.map(|mut it| it.hear(ANSWER));
    Ok(match heard {
        // A server that answers each piece by itself has answered the first one.
        Some(heard) if heard.bytes == b"Even\n" || heard.bytes == b"Odd\n" => None,
        Some(heard) => Some(format!("a client that completed its request heard {heard}")),
        None => None,
    })
}
