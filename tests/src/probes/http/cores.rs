//! The promise about cores: all of them serve.

use std::collections::{BTreeMap, VecDeque};

use super::super::reactors::cores;
use super::super::{ANSWER, holds};
use super::{ODD, Outcome, QUESTION, Subject, Trouble, expect, fails};
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
    let clients = 128.max(32 * cores);
    let mut slept: BTreeMap<u32, u64> = BTreeMap::new();
    let before = sleeps(&server);
    // One after the other: nobody is served beside another because the first one is busy. Some stay for a
    // while, so that a thread of their own is seen before it ends.
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
    // Whoever serves a client has slept until it came. A thread that serves its share has slept often; one
    // that is there for one client alone, once.
    let grown = slept.iter().map(|(id, sleeps)| sleeps - before.get(id).copied().unwrap_or(0));
    let mut grown: Vec<u64> = grown.filter(|it| *it > 0).collect();
    grown.sort_unstable_by(|a, b| b.cmp(a));
    let share = (clients / (8 * cores)) as u64;
    let busy = grown.iter().filter(|it| **it >= share).count();
    let most: Vec<String> = grown.iter().take(8).map(u64::to_string).collect();
    let seen = format!(
        "Of {clients} requests, one after the other, on {cores} cores: {} threads slept, the first of them {} times.",
        grown.len(),
        most.join(", ")
    );
    let has_own = grown.len() >= clients / 2;
    if busy >= cores || has_own { holds(seen) } else { fails(Symptom::OneCore, seen) }
}

/// How often each thread has gone to sleep of its own will.
fn sleeps(server: &Server) -> BTreeMap<u32, u64> {
    let family = server.processes().into_iter();
    let tasks = family.flat_map(|pid| processes::tasks(pid).into_iter().map(move |id| (pid, id)));
    tasks.filter_map(|(pid, id)| Some((id, processes::sleeps(pid, id)?))).collect()
}
