//! The milestones 3 and 4: every reactor serves, a server that is asked to stop finishes, and one call
//! does for many answers.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use contract::server::{End, Server};
use contract::trace;
use nix::sys::signal::Signal;

use crate::grade::caller::{ANSWER, Caller, GRACE, Ground, Lacks, PROMPT};

pub(super) fn every_reactor(ground: &mut Ground) -> anyhow::Result<String> {
    const CLIENTS: usize = 240;
    ground.reactors = 4;
    let server = ground.start()?;
    ground.must_serve(&server, ANSWER)?;
    let before = sleeps(&server)?;
    for _ in 0..CLIENTS {
        ground.must_serve(&server, ANSWER)?;
    }
    // Who serves a client has slept until it came.
    let after = sleeps(&server)?;
    let grown = after.iter().map(|(id, count)| count - before.get(id).copied().unwrap_or(0));
    let mut grown: Vec<u64> = grown.collect();
    grown.sort_unstable_by(|a, b| b.cmp(a));
    let share = (CLIENTS / (8 * ground.reactors)) as u64;
    let busy = grown.iter().filter(|it| **it >= share).count();
    let list = grown.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let seen = format!("{CLIENTS} clients, 4 reactors: its threads went to sleep {list} times");
    ensure!(busy >= ground.reactors, "{seen}");
    Ok(format!("{seen}."))
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

pub(super) fn finishes(ground: &mut Ground) -> anyhow::Result<String> {
    let mut server = ground.start()?;
    ground.must_serve(&server, ANSWER)?;
    let whole = ground.framed("40 2");
    let mut half = Caller::connect(server.address(), ANSWER)?;
    half.send(&whole[..2])?;
    thread::sleep(Duration::from_millis(100));
    server.signal(Signal::SIGTERM)?;
    thread::sleep(Duration::from_millis(100));
    half.send(&whole[2..])?;
    half.must_hear(&ground.framed("42"), PROMPT).context("asked to stop with a client inside")?;
    drop(half);
    let status = server.wait(ground.patience() + GRACE).context("asked to stop, it went on")?;
    ensure!(status.success(), "asked to stop, it ended with {status}");
    Ok("Asked to stop, it answered who was inside, and ended with status 0.".into())
}

/// How many calls an answer may take. One that makes each call for each client takes at least four.
const CALLS_MAX: f64 = 1.0;

pub(super) fn few_calls(ground: &mut Ground) -> anyhow::Result<String> {
    const BATCH: usize = 64;
    if let Err(error) = io_uring::IoUring::new(8) {
        return Err(Lacks(format!("io_uring is not to be had here ({error})")).into());
    }
    ground.reactors = 1;
    let server = ground.start()?;
    ground.must_serve(&server, ANSWER)?;
    // What it asks, `7` and a line feed, is answered by ERR and the end in most variants, at once.
    let trace = match trace::batch(&server, BATCH) {
        Err(error) if error.is::<trace::Refused>() => {
            return Err(Lacks(format!("{error:#}")).into());
        }
        trace => trace?,
    };
    if let Some(heard) = &trace.unanswered {
        let expected = [ground.framed("ERR"), ground.framed("7")];
        let is_right = expected.contains(&heard.bytes) && heard.end == End::Closed;
        ensure!(is_right, "of {} clients at once, one heard {heard}", trace.asked);
    }
    ensure!(trace.late == 0, "{} of {} clients had no answer", trace.late, trace.asked);
    let per_answer = trace.calls.len() as f64 / trace.asked as f64;
    let seen = format!(
        "{} requests at once took {} system calls, {per_answer:.2} each",
        trace.asked,
        trace.calls.len()
    );
    ensure!(per_answer <= CALLS_MAX, "{seen}");
    Ok(format!("{seen}."))
}
