//! The promises about what goes wrong on the way: resets and interruptions.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::super::errors::ACCEPT_ERRORS;
use super::super::{ANSWER, PROMPT, TO_SLEEP, holds, poll};
use super::{
    FOUR, ODD, Observation, Outcome, QUESTION, Subject, Trouble, expect, fails, still_serves,
};
use crate::http::{Caller, get, get_and_close};
use crate::inject::{Fault, Injection};
use crate::server::Server;
use crate::verdicts::Symptom;

pub(super) fn resets(subject: &Subject) -> Outcome {
    let server = subject.start()?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    let count =
        |server: &Server| Ok::<_, anyhow::Error>((server.threads()?, server.descriptors()?));
    thread::sleep(TO_SLEEP);
    let before = count(&server)?;

    // Gone before they are accepted: the server finds a connection without a peer.
    server.stop()?;
    for _ in 0..10 {
        server.connect("a client")?.reset()?;
    }
    server.resume()?;
    if let Some(finding) = still_serves(&server, "resets before the accept")? {
        return Ok(finding);
    }
    let start = Instant::now();
    for at in 0..200 {
        if start.elapsed() > Duration::from_secs(2) && at >= 40 {
            break;
        }
        server.connect("a client")?.reset()?;
        if at % 20 == 19
            && let Some(finding) = still_serves(&server, "resets after the connect")?
        {
            return Ok(finding);
        }
    }
    let large = get("/bytes/16777216");
    let (one, two) = (get(QUESTION), get(QUESTION).repeat(3));
    let said: [&[u8]; 5] = [b"GET / HT", &one, &two, &large, b"\r\r\r\xff\xff\n\n"];
    for bytes in said.into_iter().cycle().take(60) {
        let mut client = server.connect("a client")?;
        if client.send(bytes).is_ok() {
            // Some have read a part of what they asked for.
            let _ = client.hear_some(Duration::ZERO, &mut Vec::new());
            client.reset()?;
        }
    }
    if let Some(finding) = still_serves(&server, "resets in the middle of requests and answers")? {
        return Ok(finding);
    }
    if let Some(line) = server.stderr().lines().find(|it| it.contains("panicked")) {
        return fails(Symptom::Died, format!("A part of the server panicked: {line}."));
    }
    let is_back = || count(&server).is_ok_and(|it| it.0 <= before.0 && it.1 <= before.1);
    if !poll(ANSWER, is_back) {
        let now = count(&server)?;
        let seen = format!(
            "Before the resets it had {} threads and {} descriptors, and {} and {} later.",
            before.0, before.1, now.0, now.1
        );
        return fails(Symptom::Leaked, seen);
    }
    holds("Clients reset before the accept, after it, and in the middle of requests and answers.")
}

/// How often the server is stopped and let go on.
const STOPS: usize = 50;

pub(super) fn interrupted(subject: &Subject) -> Outcome {
    if let Some(finding) = injected(subject)? {
        return Ok(finding);
    }
    let server = subject.start_with(&FOUR)?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    // One who is in the middle of a request each time.
    let mut caller = Caller::connect(&server, "a client")?;
    let request = get(QUESTION);
    for at in 0..STOPS {
        let (begin, end) = request.split_at(1 + at % (request.len() - 1));
        let _ = caller.say(begin);
        thread::sleep(Duration::from_millis(2));
        server.stop()?;
        server.resume()?;
        let answer = caller.ask(end, ANSWER);
        let story = format!("A client was in the middle of a request at stop number {at},");
        if let Some(finding) = expect(&server, answer, ODD, &story)? {
            return Ok(finding);
        }
    }
    drop(caller);
    under_load(&server)
}

/// Others ask all the time, while the server is stopped and let go on.
fn under_load(server: &Server) -> Outcome {
    let (goes_on, answered) = (AtomicBool::new(true), AtomicUsize::new(0));
    let found: Mutex<Option<Result<Observation, Trouble>>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while goes_on.load(Ordering::Relaxed) {
                    let outcome = Caller::connect(server, "a client").map_err(Trouble::from);
                    let outcome = outcome.and_then(|mut it| {
                        let answer = it.ask(&get_and_close(QUESTION), ANSWER);
                        expect(server, answer, ODD, "A client asked while the server was stopped,")
                    });
                    answered.fetch_add(1, Ordering::Relaxed);
                    if let Some(outcome) = outcome.transpose() {
                        goes_on.store(false, Ordering::Relaxed);
                        *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
                    }
                }
            });
        }
        for _ in 0..STOPS {
            if server.stop().and_then(|()| server.resume()).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(4));
        }
        goes_on.store(false, Ordering::Relaxed);
    });
    server.must_run()?;
    if let Some(outcome) = found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return outcome;
    }
    let answered = answered.into_inner();
    holds(format!(
        "{STOPS} times it was stopped and let go on, twice; {answered} clients were answered."
    ))
}

/// How often accept fails where it always does: more often than a second of patient trying takes, and not nearly as
/// often as one without a pause.
const FOR_LONG: usize = 2000;

pub(super) fn accepts(subject: &Subject) -> Outcome {
    let faults = ACCEPT_ERRORS.map(Fault::Fail);
    let server = start_failing(subject, Injection::new().on(libc::SYS_accept4, &faults))?;
    for _ in 0..2 * ACCEPT_ERRORS.len() {
        if let Some(finding) = still_serves(&server, "failed accepts")? {
            return Ok(finding);
        }
    }
    if !server.injector().is_some_and(|it| it.is_used_up()) {
        if server.has_a_ring() {
            return holds(
                "These errors cannot be given to a ring from outside. The one that the kernel gives by \
                 itself, no descriptor, is a row of its own.",
            );
        }
        return Err(Trouble::Broken(anyhow::anyhow!(
            "the server did not meet the errors that were prepared for its accept4"
        )));
    }
    drop(server);

    let always = [Fault::Fail(Errno::EPROTO); FOR_LONG];
    let server = start_failing(subject, Injection::new().on(libc::SYS_accept4, &always))?;
    let _waiting = Caller::connect(&server, "a client whom nobody can accept")?;
    thread::sleep(PROMPT);
    server.must_run()?;
    let made = server.injector().map_or(0, |it| it.made(libc::SYS_accept4));
    if made >= FOR_LONG {
        let seen = format!("Accept failed all the time, and was tried {made} times in a second.");
        return fails(Symptom::Spun, seen);
    }
    holds(format!(
        "Accept failed in {} ways, and the clients after each were served. Where it failed all the time, it \
         was tried {made} times in a second.",
        ACCEPT_ERRORS.len()
    ))
}

/// The server, with few workers, each of which asks by itself.
fn start_failing(subject: &Subject, injection: Injection) -> Result<Server, Trouble> {
    let few = Subject { program: subject.program.with(&FOUR), ..subject.clone() };
    start_injected(&few, injection)
}

/// Each kind of call fails with EINTR three times, and nobody is lost.
///
/// Simplified: a server with a ring makes none of these calls, and is only stopped and let go on. `sendmsg`
/// cannot be among them: the filter's own descriptor is handed over by it.
fn injected(subject: &Subject) -> Result<Option<Observation>, Trouble> {
    let interrupted = [Fault::Fail(Errno::EINTR); 3];
    let mut injection = Injection::new();
    for call in [
        libc::SYS_accept4,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_sendto,
        libc::SYS_writev,
    ] {
        injection = injection.on(call, &interrupted);
    }
    let server = start_injected(subject, injection)?;
    for _ in 0..8 {
        if let Some(finding) = still_serves(&server, "interrupted system calls")? {
            return Ok(Some(finding));
        }
    }
    let mut caller = Caller::connect(&server, "a client")?;
    let answer = caller.ask(&get("/bytes/100000"), ANSWER);
    let seen = match answer {
        Ok(answer) if answer.body.len() == 100_000 => return Ok(None),
        Ok(answer) => answer.to_string(),
        Err(no) => format!("{} bytes and then {:?}", no.heard.bytes.len(), no.heard.end),
    };
    fails(Symptom::WrongAnswer, format!("After interrupted calls, 100000 bytes were {seen}."))
        .map(Some)
}

/// The server among whose calls some fail.
fn start_injected(subject: &Subject, injection: Injection) -> Result<Server, Trouble> {
    let error = match subject.start_injected(injection) {
        Ok(server) => return Ok(server),
        Err(error) => error,
    };
    match subject.start() {
        Ok(_) => Err(Trouble::Needs(format!(
            "seccomp user notification (Linux 5.5; in a container, run it with \
             `--security-opt seccomp=unconfined`): {error:#}"
        ))),
        Err(error) => Err(Trouble::Broken(error)),
    }
}
