//! The promises about how a server ends.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::super::{ANSWER, LET_GO, PROMPT, holds, poll, seconds};
use super::{
    FOUR, ODD, Observation, Outcome, QUESTION, Subject, Trouble, ask_promptly, expect, fails,
};
use crate::http::{Caller, get};
use crate::microscope;
use crate::processes;
use crate::server::{End, Server};
use crate::verdicts::Symptom;

/// Whom the server has when it is asked to stop.
struct Clients {
    /// One who has asked for what takes three seconds.
    slow: Caller,
    /// One who has asked before, and now says nothing. `None` where one client is all it holds at once.
    idle: Option<Caller>,
    /// One who has sent the beginning of a request.
    half: Option<Caller>,
}

/// All that has to happen before its answer is given twice [`PROMPT`], and takes next to nothing.
const SLOW: &str = "/slow/3000";
const SOON: Duration = PROMPT.saturating_mul(2);

/// For sixteen MiB in pieces of a few KiB, on a machine that does other things.
const LARGE_WITHIN: Duration = Duration::from_secs(20);

const BEGIN: &[u8] = b"GET /parity/7 HTTP/1.1\r\nHo";
const END: &[u8] = b"st: a\r\n\r\n";

pub(super) fn in_flight(subject: &Subject) -> Outcome {
    let mut server = subject.start_with(&FOUR)?;
    let mut clients = match clients(&server)? {
        Ok(clients) => clients,
        Err(finding) => return Ok(finding),
    };
    let start = Instant::now();
    server.signal(Signal::SIGTERM)?;
    if let Some(finding) = while_it_stops(&server, &mut clients)? {
        return Ok(finding);
    }
    let status = match server.wait(LET_GO) {
        Ok(status) => status,
        Err(_) => {
            let view = server.look().sentence(&[]);
            let seen =
                format!("It had answered all, and {} later it ran still: {view}.", seconds(LET_GO));
            return fails(Symptom::WentOn, seen);
        }
    };
    if !status.success() {
        return fails(Symptom::Died, format!("Asked to stop, it ended with {status}."));
    }
    let held =
        if clients.idle.is_some() { "" } else { " (it holds one client at a time: no other)" };
    holds(format!(
        "Asked to stop, it refused new clients, answered those in flight{held}, and ended after {}.",
        seconds(start.elapsed())
    ))
}

/// An answer that does not fit into what the kernel keeps for a client who does not read.
const LARGE: &str = "/bytes/16777216";
const LARGE_BYTES: usize = 16_777_216;

pub(super) fn on_its_way(subject: &Subject) -> Outcome {
    let mut server = subject.start_with(&["--drain-ms", "20000"])?;
    let mut caller = Caller::connect(&server, "a client")?;
    caller.say(&get(LARGE))?;
    caller.client.wait_for_more(ANSWER)?;
    // Unread by the server, which has enough to send: a close would be a reset, and take the answer with it.
    caller.say(&get(QUESTION))?;
    server.signal(Signal::SIGTERM)?;
    if !poll(SOON, || refuses(&server)) {
        let seen = "Asked to stop, it let in new clients all the same.";
        return fails(Symptom::WentOn, seen);
    }
    let story = format!("A client read {LARGE}, asked again, and the server was asked to stop. It");
    let whole = match caller.answer(LARGE_WITHIN) {
        Ok(answer) if answer.body.len() == LARGE_BYTES => caller.answer(ANSWER),
        Ok(answer) => {
            return fails(Symptom::WrongAnswer, format!("{story} read on, and heard {answer}."));
        }
        Err(no) => {
            let (got, end) = (no.heard.bytes.len(), no.heard.end);
            let symptom = if end == End::Reset { Symptom::Reset } else { Symptom::Unanswered };
            let seen = format!("{story} read on: {got} bytes, and then {end:?}.");
            return fails(symptom, seen);
        }
    };
    if let Some(finding) = expect(&server, whole, ODD, &story)? {
        return Ok(finding);
    }
    let rest = caller.rest(ANSWER);
    if !rest.is(b"") {
        return fails(
            Symptom::Reset,
            format!("{story} heard both answers, and after them {rest}."),
        );
    }
    let status = server.wait(LET_GO)?;
    if !status.success() {
        return fails(Symptom::Died, format!("Asked to stop, it ended with {status}."));
    }
    holds(
        "A client was reading a large answer and had asked again when the server was asked to stop: it heard both.",
    )
}

/// The clients in their states, or the finding that one cannot be reached.
fn clients(server: &Server) -> Result<Result<Clients, Observation>, Trouble> {
    let mut idle = Caller::connect(server, "an idle client")?;
    let answer = idle.ask(&get(QUESTION), ANSWER);
    if let Some(finding) = expect(server, answer, ODD, "A client asked")? {
        return Ok(Err(finding));
    }
    let mut half = Caller::connect(server, "a client with half a head")?;
    let answer = ask_promptly(server, &mut half, &get(QUESTION));
    let (idle, half) = match answer {
        Ok(_) => {
            half.say(BEGIN)?;
            (Some(idle), Some(half))
        }
        // It holds one client at a time.
        Err(_) => (None, None),
    };
    let mut slow = Caller::connect(server, "a client in flight")?;
    slow.say(&get(SLOW))?;
    let port = server.address().port();
    for it in [Some(&slow), half.as_ref()].into_iter().flatten() {
        let taken =
            || microscope::has_taken_in(server.pid(), port, it.client.address()) != Some(false);
        poll(PROMPT, taken);
    }
    Ok(Ok(Clients { slow, idle, half }))
}

/// What each hears, while the slow answer is still due.
fn while_it_stops(server: &Server, clients: &mut Clients) -> Result<Option<Observation>, Trouble> {
    // In the order of what has to happen first: all of it before the slow answer.
    if let Some(idle) = &mut clients.idle {
        let rest = idle.rest(SOON);
        if !rest.is(b"") {
            let names = [(idle.client.name, idle.client.address())];
            let view = server.look().sentence(&names);
            let seen = format!(
                "Asked to stop, it left an idle client, who heard {rest}. Meanwhile {view}."
            );
            let symptom = if rest.end == End::Open { Symptom::HeldForEver } else { Symptom::Reset };
            return fails(symptom, seen).map(Some);
        }
    }
    if !poll(SOON, || refuses(server)) {
        let seen = "Asked to stop, it let in new clients all the same.";
        return fails(Symptom::WentOn, seen).map(Some);
    }
    if let Some(half) = &mut clients.half {
        let answer = half.ask(END, SOON);
        let story =
            "A client had sent half a head when the server was asked to stop, sent the rest,";
        if let Some(finding) = last_answer(server, half, answer, story)? {
            return Ok(Some(finding));
        }
    }
    if !clients.slow.client.is_held() {
        let rest = clients.slow.rest(Duration::ZERO);
        if !rest.bytes.starts_with(b"HTTP/1.1 200 ") {
            server.must_run()?;
            let seen = format!("Asked to stop, it left a client in flight, who heard {rest}.");
            return fails(Symptom::Unanswered, seen).map(Some);
        }
        return Ok(None); // This machine is busy, and the answer has come meanwhile.
    }
    let answer = clients.slow.answer(LET_GO);
    let story = "A client had asked for what takes a while when the server was asked to stop,";
    last_answer(server, &mut clients.slow, answer, story)
}

/// Whether new clients are refused, as they are from the moment on in which a server begins to stop.
fn refuses(server: &Server) -> bool {
    TcpStream::connect_timeout(&server.address(), Duration::from_millis(100))
        .is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// An answer that says close, and then the end.
fn last_answer(
    server: &Server,
    caller: &mut Caller,
    answer: Result<crate::http::Answer, crate::http::NoAnswer>,
    story: &str,
) -> Result<Option<Observation>, Trouble> {
    let answer = match answer {
        Ok(answer) if answer.status == 200 => answer,
        other => return expect(server, other, b"At last.\n", story),
    };
    if !answer.closes() {
        let seen = format!("{story} and was not told that it was the last answer.");
        return fails(Symptom::WrongAnswer, seen).map(Some);
    }
    let rest = caller.rest(ANSWER);
    match rest.end {
        End::Closed if rest.bytes.is_empty() => Ok(None),
        _ => fails(Symptom::Reset, format!("{story} and heard after its answer {rest}.")).map(Some),
    }
}

pub(super) fn second(subject: &Subject) -> Outcome {
    let mut server = subject.start()?;
    let mut slow = Caller::connect(&server, "a client in flight")?;
    slow.say(&get("/slow/4500"))?;
    let port = server.address().port();
    poll(PROMPT, || {
        microscope::has_taken_in(server.pid(), port, slow.client.address()) != Some(false)
    });
    let family = server.processes();
    server.signal(Signal::SIGTERM)?;
    if let Ok(status) = server.wait(Duration::from_millis(500)) {
        let seen =
            format!("Asked to stop once, it left a client in flight and ended with {status}.");
        return fails(Symptom::Unanswered, seen);
    }
    // Two signals that are both on their way are one: the second comes when the first has been heard.
    poll(PROMPT, || refuses(&server));
    server.signal(Signal::SIGTERM)?;
    let start = Instant::now();
    let (ended, lives) = (server.wait(SOON), |it: &u32| {
        processes::state(*it).is_some_and(|it| !matches!(it, 'Z' | 'X'))
    });
    let all_gone = poll(SOON, || !family.iter().any(lives));
    let took = start.elapsed();
    if ended.is_err() || !all_gone {
        let left = family.iter().filter(|it| lives(it)).count();
        let seen = format!(
            "Asked to stop a second time, it went on: {} later {left} of {} processes ran still.",
            seconds(took),
            family.len()
        );
        for child in family.into_iter().skip(1) {
            let child = nix::unistd::Pid::from_raw(child.cast_signed());
            let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
        }
        return fails(Symptom::WentOn, seen);
    }
    holds(format!("Asked to stop a second time, it ended after {}.", seconds(took)))
}
