//! The promises about clients that stall, that take, and that do not read.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::super::{ANSWER, LET_GO, PROMPT, poll, seconds};
use super::super::{fails, holds};
use super::{
    IMPATIENT, ODD, Observation, Outcome, QUESTION, Subject, Trouble, answer_promptly,
    ask_promptly, expect, is_polite, is_taken_in, settle,
};
use crate::http::{Caller, get, get_and_close};
use crate::server::{Client, End, Server};
use crate::verdicts::Symptom;

/// How many clients are silent at once: more than there are workers.
const POOL: usize = 64;

/// Whoever is silent has much longer than whoever waits for a place: that one is turned away when the first
/// have been let go, and long before the second are, so that what becomes of it is not a matter of a moment.
const FULL: [&str; 6] = ["--workers", "4", "--patience-ms", "750", "--idle-ms", "2500"];

pub(super) fn silent(subject: &Subject) -> Outcome {
    observe(subject, 1, b"", &IMPATIENT, "connected and said nothing")
}

pub(super) fn half_a_head(subject: &Subject) -> Outcome {
    observe(subject, 1, b"GET / HTTP/1.1\r\nHos", &IMPATIENT, "sent half a head and stopped")
}

pub(super) fn pool_full(subject: &Subject) -> Outcome {
    observe(subject, POOL, b"", &FULL, "connected and said nothing")
}

/// How often it is tried whether this machine gives everybody a core in time.
const TRIES: usize = 10;

/// So many clients stall; client B asks; they let go.
fn observe(subject: &Subject, count: usize, said: &[u8], options: &[&str], did: &str) -> Outcome {
    // On a machine that is too busy, they may be let go before B has had its time, and then B's answer
    // says nothing: once more, with others.
    for _ in 0..TRIES {
        if let Some(observation) = observe_once(subject, count, said, options, did)? {
            return Ok(observation);
        }
    }
    Err(Trouble::Broken(anyhow::anyhow!(
        "{TRIES} times client A was let go before client B could be observed: is this machine very busy, \
         or the server's patience much shorter than two seconds?"
    )))
}

fn observe_once(
    subject: &Subject,
    count: usize,
    said: &[u8],
    options: &[&str],
    did: &str,
) -> Result<Option<Observation>, Trouble> {
    let server = subject.start_with(options)?;
    let mut holders = Vec::new();
    for _ in 0..count {
        let mut holder = server.connect("client A")?;
        let _ = holder.send(said);
        holders.push(holder);
    }
    // The state is reached when the server has accepted the first and read what it said. A server that
    // never does is observed all the same.
    let taken_in = is_taken_in(&server, &holders[0]);
    let who = if count == 1 { "Client A".to_owned() } else { format!("{count} clients") };
    let unread = if taken_in { "" } else { " (it was not seen that the server took it in)" };
    let story = format!("{who} {did}{unread}.");
    let mut b = Caller::connect(&server, "client B")?;
    let _ = b.say(&get_and_close(QUESTION));
    // Whoever comes so late has not had its time when the first are let go, and may have its turn with them.
    if holders[0].age() > PROMPT {
        return Ok(None);
    }
    match answer_promptly(&server, &mut b) {
        Err(no_answer) if no_answer.heard.end == End::Open && no_answer.wrong.is_none() => {
            who_had_to_go(&server, holders, b, &story).map(Some)
        }
        Ok(answer) if is_polite(&answer) => {
            fails(Symptom::TurnedAway, format!("{story} Client B heard {answer}.")).map(Some)
        }
        answer => {
            let story = format!("{story} Client B asked for {QUESTION}");
            if let Some(finding) = expect(&server, answer, ODD, &story)? {
                return Ok(Some(finding));
            }
            if !holders.iter_mut().all(Client::is_held) {
                return Ok(None);
            }
            holds(format!("{who} {did}; client B was served while all were still held.")).map(Some)
        }
    }
}

/// B was not served promptly: who had to go before it was?
fn who_had_to_go(server: &Server, mut holders: Vec<Client>, mut b: Caller, story: &str) -> Outcome {
    let mut names = vec![(b.client.name, b.client.address())];
    if let [a] = &holders[..] {
        names.push((a.name, a.address()));
    }
    let view = server.look().sentence(&names);
    let story = format!(
        "{story} Client B asked for {QUESTION} and had heard nothing {} later: {view}.",
        seconds(PROMPT)
    );
    let answer = b.answer(LET_GO);
    let waited = seconds(b.client.age());
    // Whoever was let go had no more patience to get; of many, those who were served first.
    let gone = holders.iter_mut().filter_map(|it| (!it.is_held()).then_some(())).count();
    let in_turn = match holders.len() {
        1 => "when the server's patience with A ran out; A had not let go".to_owned(),
        all => format!("when its patience had run out with {gone} of the {all}"),
    };
    match answer {
        Ok(answer) if answer.is(ODD) && gone > 0 => fails(
            Symptom::StalledForItsPatience,
            format!("{story} B was served after {waited}, {in_turn}."),
        ),
        Ok(answer) if answer.is(ODD) => fails(
            Symptom::Late,
            format!("{story} B was served after {waited}; all others were still held."),
        ),
        Ok(answer) if is_polite(&answer) => {
            fails(Symptom::TurnedAway, format!("{story} At last B heard {answer}."))
        }
        Ok(answer) => fails(Symptom::WrongAnswer, format!("{story} At last B heard {answer}.")),
        Err(no_answer) if no_answer.heard.end != End::Open => {
            fails(Symptom::Unanswered, format!("{story} At last B heard {no_answer}."))
        }
        Err(_) => {
            drop(holders);
            match b.answer(ANSWER) {
                Ok(answer) if answer.is(ODD) && gone > 0 => {
                    let seen = format!(
                        "{story} {waited} later its patience had run out with {gone} of them, and B \
                         still waited; all let go, and B was served."
                    );
                    fails(Symptom::StalledForItsPatience, seen)
                }
                Ok(answer) if answer.is(ODD) => {
                    let seen =
                        format!("{story} They let go after {waited}, and only then was B served.");
                    fails(Symptom::StalledForEver, seen)
                }
                Ok(answer) if is_polite(&answer) => {
                    fails(Symptom::TurnedAway, format!("{story} At last B heard {answer}."))
                }
                Ok(answer) => {
                    fails(Symptom::WrongAnswer, format!("{story} At last B heard {answer}."))
                }
                Err(no_answer) => {
                    let seen = format!("{story} They let go, and still B heard {no_answer}.");
                    fails(Symptom::Unanswered, seen)
                }
            }
        }
    }
}

pub(super) fn silent_let_go(subject: &Subject) -> Outcome {
    let server = subject.start_impatient()?;
    let mut told = Vec::new();
    for asks_first in [false, true] {
        let mut a = Caller::connect(&server, "client A")?;
        let did = if asks_first { "asked once and then said nothing" } else { "said nothing" };
        if asks_first {
            let answer = a.ask(&get(QUESTION), ANSWER);
            if let Some(finding) = expect(&server, answer, ODD, "A client asked")? {
                return Ok(finding);
            }
        }
        let heard = a.rest(LET_GO);
        if heard.end == End::Open {
            let view = server.look().sentence(&[(a.client.name, a.client.address())]);
            let seen =
                format!("A client that {did} was still held after {}: {view}.", seconds(LET_GO));
            return fails(Symptom::HeldForEver, seen);
        }
        // It may say 408 to who has said nothing, and nothing but that.
        if !heard.bytes.is_empty() && !heard.bytes.starts_with(b"HTTP/1.1 408 ") {
            return fails(Symptom::WrongAnswer, format!("A client that {did} heard {heard}."));
        }
        told.push(format!("A client that {did} was let go after {}.", seconds(heard.after)));
    }
    holds(told.join(" "))
}

pub(super) fn dripping_let_go(subject: &Subject) -> Outcome {
    let server = subject.start_impatient()?;
    let mut a = server.connect("client A")?;
    // A byte each half second: always more of a head, and never its end.
    let every = Duration::from_millis(500);
    let _ = a.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: ");
    while a.age() < LET_GO {
        if a.send(b"1").is_err() {
            break;
        }
        let heard = a.hear(every);
        if heard.end != End::Open || heard.bytes.starts_with(b"HTTP/1.1 408 ") {
            return holds(format!("A head that dripped was let go after {}.", seconds(a.age())));
        }
        if !heard.bytes.is_empty() {
            return fails(Symptom::WrongAnswer, format!("Half a head was answered with {heard}."));
        }
    }
    // Its end may be on the way.
    if a.hear(every).end != End::Open {
        return holds(format!("A head that dripped was let go after {}.", seconds(a.age())));
    }
    let view = server.look().sentence(&[(a.name, a.address())]);
    let story = format!(
        "A client that sent a byte of a head each half second was still held after {}: {view}.",
        seconds(a.age())
    );
    // Was it the bytes that renewed the patience, or is there none?
    if a.hear(LET_GO).end == End::Open {
        return fails(Symptom::HeldForEver, format!("{story} When it stopped, it was held still."));
    }
    let seen =
        format!("{story} When it stopped, it was let go: each byte had renewed the patience.");
    fails(Symptom::PatienceRenewed, seen)
}

/// How much a client asks for that then does not read, and how much of it a server may keep.
const LARGE: &str = "/bytes/16777216";
const KEPT_MAX: usize = 8 * 1024 * 1024;

/// How long it takes to read all of that, at most: a receive buffer that is small makes many round trips.
const READ_ALL: Duration = Duration::from_secs(20);

pub(super) fn slow_reader(subject: &Subject) -> Outcome {
    // On a machine that is too busy, A may be let go before it begins to read: once more, with another.
    for _ in 0..TRIES {
        if let Some(observation) = slow_reader_once(subject)? {
            return Ok(observation);
        }
    }
    Err(Trouble::Broken(anyhow::anyhow!(
        "{TRIES} times client A was let go before client B could be observed: is this machine very busy, \
         or the server's patience much shorter than two seconds?"
    )))
}

fn slow_reader_once(subject: &Subject) -> Result<Option<Observation>, Trouble> {
    let server = subject.start_impatient()?;
    if let Some(finding) = super::still_serves(&server, "its start")? {
        return Ok(Some(finding));
    }
    let before = server.resident_bytes()?;
    let grown = || server.resident_bytes().map(|it| it.saturating_sub(before));
    let mut a = Caller::connect_small(&server, "client A")?;
    a.say(&get_and_close(LARGE))?;
    is_taken_in(&server, &a.client);
    settle(&server);
    let story = format!("Client A asked for {LARGE} and did not read.");
    let mut b = Caller::connect(&server, "client B")?;
    let answer = ask_promptly(&server, &mut b, &get_and_close(QUESTION));
    let grown = grown()?;
    if grown > KEPT_MAX {
        let seen = format!("{story} The server's memory grew by {} KiB.", grown / 1024);
        return fails(Symptom::MemoryGrew, seen).map(Some);
    }
    match answer {
        Err(no_answer) if no_answer.heard.end == End::Open && no_answer.wrong.is_none() => {
            // It reads nothing and holds nothing: as far as B can see, it stalls.
            return who_had_to_read(&server, a, b, &story).map(Some);
        }
        answer => {
            let story = format!("{story} Client B asked for {QUESTION}");
            if let Some(finding) = expect(&server, answer, ODD, &story)? {
                return Ok(Some(finding));
            }
        }
    }
    // The patience with A ends two seconds after it was asked to read, and not before.
    let is_late = a.client.age() > PROMPT * 3 / 2;
    match a.answer(READ_ALL) {
        Ok(answer) if answer.body.len() == 16 * 1024 * 1024 => holds(format!(
            "{story} Client B was served, the server's memory grew by {} KiB, and then A read all of it.",
            grown / 1024
        )),
        Ok(answer) => fails(Symptom::WrongAnswer, format!("{story} Then it read {answer}.")),
        Err(_) if is_late => return Ok(None),
        Err(no) => fails(
            super::symptom(&no),
            format!(
                "{story} Then it read {} bytes, and no more came ({:?}).",
                no.heard.bytes.len(),
                no.heard.end
            ),
        ),
    }
    .map(Some)
}

/// B was not served promptly while A did not read.
fn who_had_to_read(server: &Server, a: Caller, mut b: Caller, story: &str) -> Outcome {
    let names = [(a.client.name, a.client.address()), (b.client.name, b.client.address())];
    let view = server.look().sentence(&names);
    let story = format!("{story} {} after B had asked: {view}.", seconds(PROMPT));
    // What went into the kernel's buffers was progress: the patience may begin with that.
    if b.answer(2 * LET_GO).is_ok_and(|it| it.is(ODD)) {
        let seen = format!("{story} B was served when the server's patience with A had run out.");
        return fails(Symptom::StalledForItsPatience, seen);
    }
    drop(a);
    if b.answer(ANSWER).is_ok_and(|it| it.is(ODD)) {
        return fails(
            Symptom::StalledForEver,
            format!("{story} A left, and only then B was served."),
        );
    }
    fails(Symptom::Unanswered, format!("{story} A left, and still B heard nothing."))
}

/// How many others ask while one asks without end.
const OTHERS: usize = 10;

pub(super) fn greedy(subject: &Subject) -> Outcome {
    let server = subject.start()?;
    if let Some(finding) = super::still_serves(&server, "its start")? {
        return Ok(finding);
    }
    let greedy = server.connect("client A")?;
    let socket = greedy.stream().try_clone().context("dup")?;
    let (answered, goes_on) = (AtomicUsize::new(0), AtomicBool::new(true));
    let batch = get(QUESTION).repeat(512);
    thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on.load(Ordering::Relaxed) {
                if (&socket).write_all(&batch).is_err() {
                    break;
                }
            }
        });
        scope.spawn(|| {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(1..) = greedy.stream().read(&mut bytes) {
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        let found = beside_greedy(&server, &greedy, &answered, || {
            goes_on.store(false, Ordering::Relaxed);
            let _ = socket.shutdown(Shutdown::Both);
        });
        goes_on.store(false, Ordering::Relaxed);
        let _ = socket.shutdown(Shutdown::Both);
        found
    })
}

/// Others ask, one after the other, while `greedy` is answered all the time; `stop` ends that.
fn beside_greedy(
    server: &Server,
    greedy: &Client,
    answered: &AtomicUsize,
    stop: impl Fn(),
) -> Outcome {
    poll(PROMPT, || answered.load(Ordering::Relaxed) > 8);
    let before = answered.load(Ordering::Relaxed);
    let mut slowest = Duration::ZERO;
    let story = "Client A asked without end";
    for _ in 0..OTHERS {
        let start = Instant::now();
        let mut b = Caller::connect(server, "client B")?;
        let asked = b.ask(&get_and_close(QUESTION), PROMPT);
        if let Err(no) = &asked
            && no.heard.end == End::Open
        {
            let names = [(greedy.name, greedy.address()), (b.client.name, b.client.address())];
            let view = server.look().sentence(&names);
            let story = format!("{story}; {} after B had asked: {view}.", seconds(PROMPT));
            if b.answer(LET_GO).is_ok_and(|it| it.is(ODD)) {
                return fails(Symptom::Late, format!("{story} B was served later."));
            }
            stop();
            if b.answer(ANSWER).is_ok_and(|it| it.is(ODD)) {
                let seen = format!("{story} A stopped, and only then B was served.");
                return fails(Symptom::StalledForEver, seen);
            }
            return fails(Symptom::Unanswered, format!("{story} A stopped, and B heard nothing."));
        }
        if let Some(finding) = expect(server, asked, ODD, &format!("{story}; client B asked"))? {
            return Ok(finding);
        }
        slowest = slowest.max(start.elapsed());
    }
    if !poll(ANSWER, || answered.load(Ordering::Relaxed) > before) {
        // Then nobody was greedy while the others asked.
        let seen = format!("{story}, and was not answered while {OTHERS} others were.");
        return fails(Symptom::Unanswered, seen);
    }
    holds(format!(
        "{story} and was answered all the time; {OTHERS} others were each answered, the slowest after {}.",
        seconds(slowest)
    ))
}
