//! The promises about many clients at once: those who ask, those who wait, and those who only stay.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll as wait_for};

use super::super::{ANSWER, PROMPT, holds, poll, seconds};
use super::resources::spins;
use super::{
    MOMENT, ODD, Observation, Outcome, PATIENT, QUESTION, Subject, Trouble, answer_promptly,
    ask_promptly, expect, fails, is_polite, meanwhile, settle, still_serves, symptom,
};
use crate::http::{Caller, NoAnswer, crowd, get, get_and_close};
use crate::microscope;
use crate::server::{End, Server};
use crate::verdicts::Symptom;

/// How many clients come at once: as many as the shortest queue that is allowed holds.
const BURST: usize = 1024;

pub(super) fn burst(subject: &Subject) -> Outcome {
    must_queue(BURST)?;
    // On a machine so busy that it drops packets, they come again later, and say nothing of the queue.
    for _ in 0..3 {
        if let Some(observation) = burst_once(subject)? {
            return Ok(observation);
        }
    }
    Err(Trouble::Broken(anyhow::anyhow!(
        "three times some of {BURST} clients did not get in though the server's queue had room: is this \
         machine very busy?"
    )))
}

/// Demands that the kernel lets a queue be so long, whatever a server asks for.
fn must_queue(length: usize) -> Result<(), Trouble> {
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    match most.trim().parse::<usize>() {
        Ok(most) if most < length => Err(Trouble::Needs(format!(
            "a queue of {length}, and net.core.somaxconn is {most} (sysctl -w net.core.somaxconn=4096, as root)"
        ))),
        _ => Ok(()),
    }
}

fn burst_once(subject: &Subject) -> Result<Option<Observation>, Trouble> {
    let server = subject.start()?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(Some(finding));
    }
    // Stopped, it accepts nobody: who gets in now is in the kernel's queue.
    settle(&server);
    server.stop()?;
    let mut callers = crowd(server.address(), BURST, PROMPT, "a client of the burst")?;
    let count = callers.len();
    if count < BURST && microscope::has_room(server.pid(), server.address().port()) == Some(true) {
        return Ok(None);
    }
    for caller in &mut callers {
        caller.say(&get_and_close(QUESTION))?;
    }
    server.resume()?;
    // Nothing else comes that could wake it for those whom it forgets.
    if let Some(finding) = all_answered(&server, callers)? {
        return Ok(Some(finding));
    }
    if count < BURST {
        let seen = format!("Of {BURST} clients that connected at once, {count} got in.");
        return fails(Symptom::QueueOverflowed, seen).map(Some);
    }
    holds(format!("{BURST} clients connected at once, got in at once, and were answered."))
        .map(Some)
}

/// Reads one answer for each caller, who then leaves. The finding, unless all were right.
fn all_answered(server: &Server, callers: Vec<Caller>) -> Result<Option<Observation>, Trouble> {
    let all = callers.len();
    let mut waiting = callers;
    let mut progress_last = Instant::now();
    while !waiting.is_empty() {
        if progress_last.elapsed() > ANSWER {
            server.must_run()?;
            let asleep = meanwhile(server, End::Open);
            let seen = format!("Of {all} clients, {} had no answer.{asleep}", waiting.len());
            return fails(Symptom::Unanswered, seen).map(Some);
        }
        let ready = ready(&waiting)?;
        let mut at = 0;
        let mut wrong = None;
        waiting.retain_mut(|caller| {
            at += 1;
            if !ready[at - 1] {
                return true;
            }
            progress_last = Instant::now();
            match caller.answer(Duration::ZERO) {
                Ok(answer) if answer.is(ODD) => false,
                Err(no) if no.heard.end == End::Open && no.wrong.is_none() => true,
                other => {
                    wrong = Some(other);
                    false
                }
            }
        });
        if let Some(answer) = wrong {
            let story = format!("Of {all} clients, {} waited still when one asked", waiting.len());
            return expect(server, answer, ODD, &story);
        }
    }
    Ok(None)
}

/// Of which of `callers` there is something to hear; it waits a little for the first.
fn ready(callers: &[Caller]) -> anyhow::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = callers
        .iter()
        .map(|it| PollFd::new(it.client.stream().as_fd(), PollFlags::POLLIN))
        .collect();
    wait_for(&mut polled, PollTimeout::from(50u8)).context("poll")?;
    Ok(polled.iter().map(|it| it.any().unwrap_or(false)).collect())
}

pub(super) fn three_hundred(subject: &Subject) -> Outcome {
    at_once(subject, 300)
}

pub(super) fn a_thousand(subject: &Subject) -> Outcome {
    at_once(subject, 1000)
}

/// So many connect first, and then ask in the same moment.
fn at_once(subject: &Subject, count: usize) -> Outcome {
    must_queue(count)?;
    let server = subject.start()?;
    let mut callers = crowd(server.address(), count, ANSWER, "one of a crowd")?;
    if callers.len() < count {
        server.must_run()?;
        let seen = format!("Of {count} clients, {} got in.", callers.len());
        return fails(Symptom::QueueOverflowed, seen);
    }
    // Whoever reads for each of them has begun to, and whoever does not let them in has not.
    thread::sleep(MOMENT);
    poll(ANSWER, || server.is_asleep());
    for caller in &mut callers {
        let _ = caller.say(&get(QUESTION));
    }
    if let Some(finding) = all_answered(&server, callers)? {
        return Ok(finding);
    }
    match still_serves(&server, "the crowd")? {
        Some(finding) => Ok(finding),
        None => holds(format!("{count} clients asked at the same moment, and each was answered.")),
    }
}

/// How many the server may hold, and how many more come.
const PLACES: usize = 8;
const MORE: usize = 20;

pub(super) fn full(subject: &Subject) -> Outcome {
    let server = subject.start_with(&[&["--max-connections", "8"], &PATIENT[..]].concat())?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    let request = get_and_close(QUESTION);
    let (begin, end) = request.split_at(20);
    let holders = hold(&server, begin)?;
    // Whoever comes has asked before the server finds that there is no place.
    server.stop()?;
    let mut more = crowd(server.address(), MORE, PROMPT, "one too many")?;
    for caller in &mut more {
        caller.say(&request)?;
    }
    server.resume()?;
    settle(&server);
    let time = Duration::from_millis(800);
    let (cpu, spun) = spins(&server, time, time / 5)?;
    if spun {
        let seen = format!(
            "With {PLACES} clients as the most it may have, and {MORE} more at the door, it used {} ms of \
             CPU time in {}.",
            cpu.as_millis(),
            seconds(time)
        );
        return fails(Symptom::Spun, seen);
    }
    for mut holder in holders {
        let answer = holder.ask(end, ANSWER);
        let story = "A client had its place, asked in it,";
        if let Some(finding) = expect(&server, answer, ODD, story)? {
            return Ok(finding);
        }
    }
    let (mut served, mut refused) = (0, 0);
    for caller in &mut more {
        match caller.answer(ANSWER) {
            Ok(answer) if answer.is(ODD) => served += 1,
            Ok(answer) if is_polite(&answer) => refused += 1,
            other => {
                let story = format!("{PLACES} were in, one more came, asked");
                if let Some(finding) = expect(&server, other, ODD, &story)? {
                    return Ok(finding);
                }
            }
        }
        let rest = caller.rest(ANSWER);
        if !rest.is(b"") {
            let seen = format!("One too many was answered, and heard after it {rest}.");
            return fails(Symptom::Reset, seen);
        }
    }
    holds(format!(
        "{PLACES} were in and {MORE} more came: {served} waited and were answered, {refused} were refused."
    ))
}

/// As many as there are places, who have said `begin`.
fn hold(server: &Server, begin: &[u8]) -> anyhow::Result<Vec<Caller>> {
    let mut holders = Vec::new();
    for _ in 0..PLACES {
        let mut holder = Caller::connect(server, "a holder")?;
        holder.say(begin)?;
        holders.push(holder);
    }
    let (pid, port) = (server.pid(), server.address().port());
    for holder in &holders {
        // One that serves fewer than that at once takes in no more of them: then it sleeps.
        poll(ANSWER, || {
            microscope::has_taken_in(pid, port, holder.client.address()) != Some(false)
                || server.is_asleep()
        });
    }
    Ok(holders)
}

/// How many stay, in steps, and after which it is first looked at what they cost.
const IDLE: usize = 10_000;
const STEP: usize = 500;
const FIRST_LOOK: usize = 1000;

/// What each may cost of the server's memory: a socket's is the kernel's and not counted here.
const EACH_BYTES: usize = 2048;

/// Longer than the slowest machine takes for all of this.
const LONG: [&str; 2] = ["--idle-ms", "600000"];

pub(super) fn idle(subject: &Subject) -> Outcome {
    raise_descriptors(IDLE + STEP)?;
    let server = subject.start_with(&LONG)?;
    // So that what is allocated once is there.
    for _ in 0..20 {
        if let Some(finding) = still_serves(&server, "its start")? {
            return Ok(finding);
        }
    }
    let before = server.resident_bytes()?;
    let mut callers: Vec<Caller> = Vec::new();
    let found = fill(&server, &mut callers, IDLE, |count| match count {
        FIRST_LOOK | IDLE => costs(&server, count, before),
        _ => Ok(None),
    });
    let outcome = match found {
        Ok(Some(finding)) => Ok(finding),
        Ok(None) => asked(&server, &mut callers, before),
        Err(trouble) => Err(trouble),
    };
    all_leave(&mut callers);
    outcome
}

/// Room for so many clients, or what is lacking.
fn raise_descriptors(count: usize) -> Result<(), Trouble> {
    let limit = crate::sys::raise_descriptors();
    if limit >= u64::try_from(count)? {
        return Ok(());
    }
    Err(Trouble::Needs(format!("{count} descriptors, and the hard limit is {limit} (ulimit -Hn)")))
}

/// By a reset: the kernel is not to remember thousands of connections for a minute.
fn all_leave(callers: &mut Vec<Caller>) {
    for caller in callers.drain(..) {
        let _ = caller.client.reset();
    }
}

/// Connects clients until there are `count`, each of whom asks once and stays. A finding when that goes wrong, or
/// `look` has one, which is told how many there are after each step.
fn fill(
    server: &Server,
    callers: &mut Vec<Caller>,
    count: usize,
    look: impl Fn(usize) -> Result<Option<Observation>, Trouble>,
) -> Result<Option<Observation>, Trouble> {
    while callers.len() < count {
        let mut step = crowd(server.address(), STEP, ANSWER, "one who stays")?;
        let begin = callers.len();
        for caller in &mut step {
            let _ = caller.say(&get(QUESTION));
        }
        let arrived = step.len();
        callers.append(&mut step);
        for caller in &mut callers[begin..] {
            match answer_promptly(server, caller) {
                Ok(answer) if answer.is(ODD) => {}
                Err(no) if no.heard.end == End::Open && no.wrong.is_none() => {
                    return one_waits(server, callers, begin).map(Some);
                }
                other => return expect(server, other, ODD, "One who was to stay asked"),
            }
        }
        if arrived < STEP {
            let seen = format!("With {begin} idle clients, {arrived} of {STEP} more got in.");
            return fails(Symptom::QueueOverflowed, seen).map(Some);
        }
        if let Some(finding) = look(callers.len())? {
            return Ok(Some(finding));
        }
    }
    Ok(None)
}

/// How many stay while another one asks, and how often it does.
const BESIDE: usize = 2000;
const QUESTIONS: u32 = 500;

/// How much more CPU time an answer may take beside those who stay. Where a list of them is gone through for each
/// wait, it is ten times as much and more.
const TIMES_MAX: f64 = 4.0;

pub(super) fn idle_slow(subject: &Subject) -> Outcome {
    raise_descriptors(BESIDE + STEP)?;
    let server = subject.start_with(&LONG)?;
    let mut callers = vec![Caller::connect(&server, "client A")?];
    let outcome = costs_as_much(&server, &mut callers);
    all_leave(&mut callers);
    outcome
}

/// The first of `callers` asks alone, beside others, and alone again.
fn costs_as_much(server: &Server, callers: &mut Vec<Caller>) -> Outcome {
    let mut costs = [Duration::ZERO; 3];
    for (at, cost) in costs.iter_mut().enumerate() {
        if at == 1
            && let Some(finding) = fill(server, callers, BESIDE + 1, |_| Ok(None))?
        {
            return Ok(finding);
        }
        let mut others = callers.split_off(1);
        if at == 2 {
            all_leave(&mut others);
        }
        match cost_of_an_answer(server, &mut callers[0])? {
            Ok(found) => *cost = found,
            Err(finding) => return Ok(finding),
        }
        callers.append(&mut others);
    }
    let [before, beside, afterwards] = costs.map(|it| it.as_secs_f64() * 1e6);
    let times = beside / before.max(afterwards);
    let seen = format!(
        "An answer took {beside:.1} us of CPU time beside {BESIDE} idle clients, {before:.1} before they came and \
         {afterwards:.1} when they had left."
    );
    if times <= TIMES_MAX { holds(seen) } else { fails(Symptom::CostGrew, seen) }
}

/// The CPU time of the server for one answer, the least of three tries.
fn cost_of_an_answer(
    server: &Server,
    caller: &mut Caller,
) -> Result<Result<Duration, Observation>, Trouble> {
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let before = server.run_time()?;
        for _ in 0..QUESTIONS {
            let answer = caller.ask(&get(QUESTION), ANSWER);
            if let Some(finding) = expect(server, answer, ODD, "A client that stayed asked")? {
                return Ok(Err(finding));
            }
        }
        least = least.min(server.run_time()?.saturating_sub(before) / QUESTIONS);
    }
    Ok(Ok(least))
}

/// Somebody was not answered beside those who stay: until they leave?
fn one_waits(server: &Server, callers: &mut Vec<Caller>, answered: usize) -> Outcome {
    let view = server.look().sentence(&[]);
    let mut b = callers.pop().context("a client")?;
    let story = format!(
        "Beside a few idle clients (of {} who came), one had no answer {} later: {view}.",
        answered.max(callers.len()),
        seconds(PROMPT)
    );
    all_leave(callers);
    if b.answer(ANSWER).is_ok_and(|it| it.is(ODD)) {
        return fails(Symptom::StalledForEver, format!("{story} All left, and it was answered."));
    }
    fails(Symptom::Unanswered, format!("{story} All left, and it was not answered."))
}

/// The finding when `count` idle clients cost more memory than they may.
fn costs(server: &Server, count: usize, before: usize) -> Result<Option<Observation>, Trouble> {
    let each = server.resident_bytes()?.saturating_sub(before) / count;
    if each <= EACH_BYTES {
        return Ok(None);
    }
    let seen = format!(
        "{count} idle clients cost {each} bytes of memory each, of {} processes and {} threads.",
        server.processes().len(),
        server.threads()?
    );
    fails(Symptom::MemoryGrew, seen).map(Some)
}

/// All are there: one of them asks, and one who comes.
fn asked(server: &Server, callers: &mut [Caller], before: usize) -> Outcome {
    let count = callers.len();
    let answer = ask_promptly(server, &mut callers[count / 2], &get(QUESTION));
    let story = format!("One of {count} idle clients asked");
    if let Some(finding) = expect(server, answer, ODD, &story)? {
        return Ok(finding);
    }
    let mut b = Caller::connect(server, "client B")?;
    let answer = ask_promptly(server, &mut b, &get_and_close(QUESTION));
    let story = format!("Beside {count} idle clients a new one asked");
    if let Some(finding) = expect(server, answer, ODD, &story)? {
        return Ok(finding);
    }
    let lost = |caller: &mut Caller| !caller.client.is_held();
    if let Some(at) = callers.iter_mut().position(lost) {
        let no = NoAnswer { heard: callers[at].rest(Duration::ZERO), wrong: None };
        let seen = format!("Of {count} idle clients, number {at} heard {no}.");
        return fails(symptom(&no), seen);
    }
    let each = server.resident_bytes()?.saturating_sub(before) / count;
    holds(format!(
        "{count} idle clients cost {each} bytes of memory each; one of them and a new one were answered."
    ))
}
