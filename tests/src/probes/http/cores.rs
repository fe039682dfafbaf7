//! The promise about cores: all of them serve.

use std::collections::{BTreeMap, VecDeque};

use super::super::reactors::cores;
use super::super::{ANSWER, holds};
use super::{ODD, Outcome, QUESTION, Subject, Trouble, expect, fails, settle};
use crate::http::{Caller, get};
use crate::processes;
use crate::server::Server;
use crate::verdicts::Symptom;

/// How many stay connected while the next one asks: fewer than any pool has workers.
const KEPT: usize = 1;

pub(super) fn every_core(subject: &Subject) -> Outcome {
    let cores = cores()?;
    if cores < 2 {
        return Err(Trouble::Needs(
            "2 cores: this process may use one only (see `taskset -p $$`)".into(),
        ));
    }
    let server = subject.start()?;
    settle(&server); // Whoever has only just begun sleeps for the first time, and not for a client.
    let clients = 128.max(32 * cores);
    let mut slept: BTreeMap<u32, u64> = BTreeMap::new();
    let before = sleeps(&server);
    // One after the other: nobody is served beside another because the first one is busy. Each stays until
    // the next one has come, so that a thread of its own is seen before it ends.
    let mut kept = VecDeque::new();
    for _ in 0..clients {
        let mut caller = Caller::connect(&server, "a client")?;
        let answer = caller.ask(&get(QUESTION), ANSWER);
        if let Some(finding) = expect(&server, answer, ODD, "A client asked")? {
            if !kept.is_empty() {
                let seen = "It serves one client at a time, so that one core is all it uses.";
                return fails(Symptom::OneCore, seen);
            }
            return Ok(finding);
        }
        kept.push_back(caller);
        if kept.len() > KEPT {
            kept.pop_front();
        }
        slept.extend(sleeps(&server));
    }
    // Whoever serves a client has slept until it came: one that serves its share often, one of a crowd now
    // and then. A thread that was made for this client alone is a new one, whether it has slept or not: the
    // question may have been there before it began.
    let own = slept.keys().filter(|&id| !before.contains_key(id)).count();
    let old = slept.iter().filter_map(|(id, sleeps)| Some(sleeps.saturating_sub(*before.get(id)?)));
    let mut grown: Vec<u64> = old.filter(|it| *it > 0).collect();
    grown.sort_unstable_by(|a, b| b.cmp(a));
    let share = (clients / (8 * cores)) as u64;
    let busy = grown.iter().filter(|it| **it >= share).count();
    let most: Vec<String> = grown.iter().take(8).map(u64::to_string).collect();
    let seen = format!(
        "Of {clients} requests, one after the other, on {cores} cores: {own} threads were made for them, and {} that were there had slept, the first of them {} times.",
        grown.len(),
        most.join(", ")
    );
    // Each of a pool serves some of them, whichever it is that the kernel wakes.
    let is_a_crowd = own + grown.len() >= clients / 4;
    if busy >= cores || is_a_crowd { holds(seen) } else { fails(Symptom::OneCore, seen) }
}

/// How often each thread has gone to sleep of its own will.
fn sleeps(server: &Server) -> BTreeMap<u32, u64> {
    let family = server.processes().into_iter();
    let tasks = family.flat_map(|pid| processes::tasks(pid).into_iter().map(move |id| (pid, id)));
    tasks.filter_map(|(pid, id)| Some((id, processes::sleeps(pid, id)?))).collect()
}
