//! The promises of a server that has a reactor on each core: all of them serve, and it can be replaced
//! while they do.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::resources::own_address;
use super::{ANSWER, LET_GO, Outcome, PROMPT, Trouble, fails, holds, seconds, still_serves};
use crate::server::{Client, End, Server};
use crate::verdicts::Symptom;

pub(super) fn every_core(exe: &Path) -> Outcome {
    let cores = cores()?;
    if cores < 2 {
        return Err(Trouble::Needs(
            "2 cores: this process may use one only (see `taskset -p $$`)".into(),
        ));
    }
    let server = Server::start(exe)?;
    let clients = 256.max(32 * cores);
    let before = sleeps(&server)?;
    // One after the other: nobody is served beside another because the first one is busy.
    for _ in 0..clients {
        if let Some(finding) = still_serves(&server, "a plain request")? {
            return Ok(finding);
        }
    }
    // Whoever serves a client has slept until it came. A thread that serves its share has slept often:
    // the kernel's hash gives each of N listeners about one in N.
    let after = sleeps(&server)?;
    let grown = after.iter().map(|(id, sleeps)| sleeps - before.get(id).copied().unwrap_or(0));
    let mut grown: Vec<u64> = grown.collect();
    grown.sort_unstable_by(|a, b| b.cmp(a));
    let share = (clients / (8 * cores)) as u64;
    let busy = grown.iter().filter(|it| **it >= share).count();
    let seen = format!(
        "Of {clients} requests, one after the other, on {cores} cores: its threads went to sleep {} \
         times.",
        grown.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
    );
    if busy >= cores { holds(seen) } else { fails(Symptom::OneCore, seen) }
}

/// How many cores this process may use, and so the server, which inherits the mask.
pub(super) fn cores() -> anyhow::Result<usize> {
    let mask = sched_getaffinity(Pid::from_raw(0)).context("sched_getaffinity")?;
    Ok((0..CpuSet::count()).filter(|&core| mask.is_set(core) == Ok(true)).count())
}

/// How often each thread has gone to sleep of its own will.
fn sleeps(server: &Server) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut sleeps = BTreeMap::new();
    let path = format!("/proc/{}/task", server.pid());
    for task in fs::read_dir(&path).with_context(|| path.clone())?.flatten() {
        let Ok(text) = fs::read_to_string(task.path().join("status")) else { continue };
        let line = text.lines().find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
        let count = line.and_then(|it| it.trim().parse().ok()).context("a count")?;
        sleeps.insert(task.file_name().to_string_lossy().into_owned(), count);
    }
    Ok(sleeps)
}

/// How many clients connect, steadily, while one process hands over to the next.
const CLIENTS: usize = 200;

pub(super) fn restart(exe: &Path) -> Outcome {
    let mut old = Server::start_at(exe, &format!("{}:0", own_address()))?;
    let address = old.address();
    for rollover in 1..=3 {
        // Two whom the old process has begun with: one will go on, one says nothing.
        let mut half = old.connect("a client with half a line")?;
        let _ = half.send(b"1");
        let silent = (rollover == 1).then(|| old.connect("a silent client")).transpose()?;
        thread::sleep(Duration::from_millis(20));
        let new = match Server::start_at(exe, &address.to_string()) {
            Ok(new) => new,
            Err(error) => {
                let seen = format!(
                    "While it served {address}, its successor could not be started: {error:#}."
                );
                return fails(Symptom::AddressTaken, seen);
            }
        };
        let mut clients = Vec::new();
        come(address, CLIENTS / 4, &mut clients)?;
        // While it is stopped, its share of those who come waits in its queues.
        old.stop()?;
        come(address, CLIENTS / 4, &mut clients)?;
        old.signal(Signal::SIGTERM)?;
        old.signal(Signal::SIGCONT)?;
        let in_time = half.age() < Duration::from_millis(1500);
        let heard = half.ask(b"00\n", PROMPT);
        come(address, CLIENTS / 2, &mut clients)?;
        // Otherwise this machine was so busy that its patience may have run out.
        if in_time && !heard.is(b"Even\n") {
            // Whether it hears the end or a reset is a matter of who was faster.
            let seen = format!("Asked to stop, it left a client in the middle, who heard {heard}.");
            let symptom =
                if heard.bytes.is_empty() { Symptom::Unanswered } else { Symptom::WrongAnswer };
            return fails(symptom, seen);
        }
        for (at, client) in clients.iter_mut().enumerate() {
            let heard = client.hear(ANSWER);
            if !heard.is(b"Odd\n") {
                let seen = format!(
                    "In rollover {rollover}, of {CLIENTS} clients who came while one process handed \
                     over to the next, number {at} heard {heard}."
                );
                let symptom =
                    if heard.end == End::Reset { Symptom::Reset } else { Symptom::Unanswered };
                return fails(symptom, seen);
            }
        }
        let Ok(status) = old.wait(LET_GO) else {
            let seen = format!(
                "Asked to stop, it went on: in rollover {rollover} it was still there {} after its last \
                 client had been answered.",
                seconds(LET_GO)
            );
            return fails(Symptom::WentOn, seen);
        };
        if !status.success() {
            return fails(Symptom::Died, format!("Asked to stop, it ended with {status}."));
        }
        drop(silent);
        old = new;
    }
    match still_serves(&old, "three rollovers")? {
        Some(finding) => Ok(finding),
        None => holds(format!(
            "Three times a process handed over to the next, and {} clients were answered.",
            3 * CLIENTS
        )),
    }
}

/// Clients who connect one after the other, ask, and do not wait for the answer.
fn come(server: SocketAddr, clients: usize, all: &mut Vec<Client>) -> anyhow::Result<()> {
    for _ in 0..clients {
        thread::sleep(Duration::from_micros(500));
        let mut client = Client::connect(server, "a client of the rollover", ANSWER)
            .with_context(|| format!("connect({server})"))?;
        let _ = client.send(b"7\n");
        all.push(client);
    }
    Ok(())
}
