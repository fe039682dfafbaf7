//! The promises about what a server uses: descriptors, threads, processes, memory, CPU time, its port.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;

use super::super::resources::{must_remember, own_address};
use super::super::{ANSWER, LET_GO, TO_SLEEP, holds, poll, seconds};
use super::{Outcome, QUESTION, Subject, fails, is_taken_in, settle, still_serves};
use crate::http::{Caller, get, get_and_close};
use crate::processes;
use crate::server::{Client, Server, connect_soon};
use crate::verdicts::Symptom;

/// How many clients come and go, or as many as do so in the time.
const CLIENTS: usize = 1000;
const CLIENTS_TIME: Duration = Duration::from_secs(3);

/// What is left of memory that is not given back, in bytes: what an allocator keeps.
const KEPT_MAX: usize = 4 * 1024 * 1024;

pub(super) fn leaks(subject: &Subject) -> Outcome {
    let server = subject.start()?;
    // So that what is allocated once is there.
    mixed(&server, 60)?;
    if let Some(finding) = still_serves(&server, "sixty mixed clients")? {
        return Ok(finding);
    }
    let used = || {
        let family = server.processes();
        let zombies = family.iter().filter(|&&it| processes::state(it) == Some('Z')).count();
        let (descriptors, threads) = (server.descriptors()?, server.threads()?);
        Ok::<_, anyhow::Error>([descriptors, threads, family.len(), zombies])
    };
    // The last of them may still be there.
    thread::sleep(Duration::from_millis(200));
    settle(&server);
    let (before, resident) = (used()?, server.resident_bytes()?);
    let clients = mixed(&server, CLIENTS)?;
    if let Some(finding) = still_serves(&server, "many mixed clients")? {
        return Ok(finding);
    }
    let is_back = || used().is_ok_and(|now| now.iter().zip(before).all(|(now, then)| *now <= then));
    if !poll(LET_GO, is_back) {
        let seen = format!(
            "After {clients} clients of all kinds had left, it had {:?}, and {before:?} before: descriptors, \
             threads, processes, zombies.",
            used()?
        );
        return fails(Symptom::Leaked, seen);
    }
    let grown = server.resident_bytes()?.saturating_sub(resident);
    if grown > KEPT_MAX {
        let seen = format!("After {clients} clients had left, {} KiB were not back.", grown / 1024);
        return fails(Symptom::Leaked, seen);
    }
    holds(format!("{clients} clients of all kinds left, and left nothing behind."))
}

/// Clients of all kinds that leave by themselves, `most` of them or as many as come and go in the time.
/// How many there were.
fn mixed(server: &Server, most: usize) -> anyhow::Result<usize> {
    let start = Instant::now();
    for at in 0..most {
        if start.elapsed() > CLIENTS_TIME {
            return Ok(at);
        }
        let mut client = server.connect("a client")?;
        match at % 7 {
            0 => client.reset()?,
            1 => drop(client.ask(&get_and_close(QUESTION), ANSWER)),
            2 => client.send(b"GET / HT")?,
            3 => client.send(&get("/bytes/1000000"))?, // It is not read.
            4 => {
                client.send(&get("/bytes/1000000"))?;
                client.reset()?;
            }
            5 => {
                // More than the server may have read when it has closed already.
                let _ = client.send(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n");
            }
            _ => {
                client.half_close()?;
                client.hear(ANSWER);
            }
        }
    }
    Ok(most)
}

pub(super) fn idle(subject: &Subject) -> Outcome {
    let server = subject.start()?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    // Whoever has gone, in whatever way, must not be asked about for ever.
    server.connect("a client")?.reset()?;
    let mut gone = server.connect("a client")?;
    gone.send(b"GET / HT")?;
    gone.reset()?;
    // Who has had an answer larger than a socket holds is not waited for to be writable any more.
    let mut large = Caller::connect(&server, "a client")?;
    if large.ask(&get_and_close("/bytes/4194304"), ANSWER).is_err() {
        return fails(Symptom::Unanswered, "It did not answer with 4 MiB.");
    }
    drop(large);
    if let Some(finding) = still_serves(&server, "two resets and a large answer")? {
        return Ok(finding);
    }
    let mut woke_up = 0;
    for said in
        [Vec::new(), vec![b"".to_vec(), b"GET / HT".to_vec(), get(QUESTION), get("/slow/5000")]]
    {
        let mut holders: Vec<Client> = Vec::new();
        let held = said.len();
        for bytes in said {
            let mut holder = server.connect("a holder")?;
            let _ = holder.send(&bytes);
            holders.push(holder);
        }
        if let Some(last) = holders.last() {
            is_taken_in(&server, last);
        }
        settle(&server);
        // Somebody leaves whose answer is not due: ERR and HUP come with no interest at all.
        if let Some(last) = holders.pop() {
            last.reset()?;
        }
        // What it does about that is not what it does while nobody asks.
        thread::sleep(TO_SLEEP);
        settle(&server);
        let time = Duration::from_millis(1200);
        let sleeps = server.sleeps()?;
        let (cpu, spun) = spins(&server, time, time / 20)?;
        let sleeps = server.sleeps()?.saturating_sub(sleeps);
        woke_up += sleeps;
        // A twentieth of a core, or a wake-up each fortieth of a second.
        if spun || sleeps > 60 {
            let seen = format!(
                "With {held} silent clients it used {} ms of CPU time in {} and woke up {sleeps} times.",
                cpu.as_millis(),
                seconds(time)
            );
            return fails(Symptom::Spun, seen);
        }
    }
    holds(format!("While nobody asked anything, it woke up {woke_up} times."))
}

pub(super) fn restart(subject: &Subject) -> Outcome {
    let program = subject.program.with(&["--drain-ms", "500"]);
    let mut server = Server::start_program_at(&program, &format!("{}:0", own_address()))?;
    let address = server.address();
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGINT] {
        for _ in 0..5 {
            // The server closes first, so that the kernel remembers the port.
            if let Some(finding) = still_serves(&server, "its start")? {
                return Ok(finding);
            }
        }
        let mut held = server.connect("a client")?;
        held.send(b"GET / HT")?;
        let children = server.processes().split_off(1);
        server.signal(signal)?;
        let Ok(status) = server.wait(LET_GO) else {
            let seen = format!("{signal} did not end it within {}.", seconds(LET_GO));
            return fails(Symptom::WentOn, seen);
        };
        if signal != Signal::SIGKILL && !status.success() {
            return fails(Symptom::Died, format!("At {signal} it ended with {status}."));
        }
        // Children that outlive it have the port.
        let lives = |it: &u32| processes::state(*it).is_some_and(|it| !matches!(it, 'Z' | 'X'));
        let left = || children.iter().filter(|it| lives(it)).count();
        let gone = poll(LET_GO, || left() == 0);
        let restarted = Server::start_program_at(&program, &address.to_string());
        if !gone {
            let seen =
                format!("{} after {signal}, {} of its children went on.", seconds(LET_GO), left());
            for child in children.into_iter().filter(lives) {
                let child = nix::unistd::Pid::from_raw(child.cast_signed());
                let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
            }
            return fails(Symptom::WentOn, seen);
        }
        server = match restarted {
            Ok(server) => server,
            Err(error) => {
                let seen = format!("Started again on {address} at once, it said: {error:#}.");
                return fails(Symptom::AddressTaken, seen);
            }
        };
    }
    must_remember()?;
    match still_serves(&server, "three restarts")? {
        Some(finding) => Ok(finding),
        None => holds("Three times it was ended and started again on the same port at once."),
    }
}

/// How many descriptors the server has left, and how many silent clients come.
const SPARE: usize = 12;
const SILENT: usize = 60;

pub(super) fn out_of_descriptors(subject: &Subject) -> Outcome {
    // Too few from the start, which it may know of; and fewer than it has been told to hold.
    let open = u64::try_from(subject.start()?.descriptors_of_one()? + SPARE)?;
    let at = "127.0.0.1:0";
    let few = Server::launch(&subject.program, at, None, Some(open)).context("few descriptors")?;
    let program = subject.program.with(&["--max-connections", "4096"]);
    // It may also refuse to begin with so few: then it has said so.
    let fewer = Server::launch(&program, at, None, Some(open)).ok();
    let mut told = Vec::new();
    for server in [Some(few), fewer].into_iter().flatten() {
        if let Some(finding) = still_serves(&server, "its start")? {
            return Ok(finding);
        }
        let said_before = server.stderr_lines();
        let silent: Vec<_> =
            (0..SILENT).map(|_| connect_soon(server.address())).collect::<Result<_, _>>()?;
        thread::sleep(TO_SLEEP * 3);
        // A fifth of a core.
        let time = Duration::from_millis(1500);
        let (cpu, spun) = spins(&server, time, time / 5)?;
        let said = server.stderr_lines() - said_before;
        let story = format!(
            "With {open} descriptors and {SILENT} silent clients it used {} ms of CPU time in {} and \
             wrote {said} lines.",
            cpu.as_millis(),
            seconds(time)
        );
        // Or a line for each attempt.
        if spun || said > 2 * SILENT {
            return fails(Symptom::Spun, story);
        }
        drop(silent);
        let after = "sixty clients had held its descriptors and left";
        if let Some(finding) = still_serves(&server, after)? {
            return Ok(finding);
        }
        told.push(story);
    }
    holds(told.join(" "))
}

/// The CPU time that it uses in `time`, and whether that is more than `most`, or one of its threads wanted most
/// of the time. With many processes, what all of them want together says nothing on a busy machine. And a
/// thread that wakes up for a moment may want a core for long where there is none: then it has run for next to
/// nothing of it.
pub(super) fn spins(
    server: &Server,
    time: Duration,
    most: Duration,
) -> anyhow::Result<(Duration, bool)> {
    let run_times = || server.processes().into_iter().flat_map(processes::run_times);
    let before: BTreeMap<u32, [Duration; 2]> = run_times().collect();
    let cpu = server.cpu_time()?;
    thread::sleep(time);
    let cpu = server.cpu_time()?.saturating_sub(cpu);
    let wants = |(thread, now): (u32, [Duration; 2])| {
        let then = before.get(&thread).copied().unwrap_or_default();
        let [ran, waited] = [0, 1].map(|it| now[it].saturating_sub(then[it]));
        ran + waited > time * 2 / 3 && ran > time / 400
    };
    Ok((cpu, cpu > most || run_times().any(wants)))
}
