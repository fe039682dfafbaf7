//! How evenly the kernel's hash spreads clients over reactors, and what happens to those of one that does
//! not go on.
//!
//! Which reactor has a client can be seen from outside: each reactor has an epoll of its own, and
//! /proc/PID/fdinfo lists what an epoll watches. So the clients say nothing, and are counted before the
//! server's patience with them ends.
//!
//! A second start goes on trial by trial, and each trial has a server of its own, so that none knows of the
//! others.

use crate::{
    binaries::Binary,
    experiment::{Bench, Experiment, Form, Outcome, Scale},
    records::{Record, Table},
    servers::{named, short},
};
use anyhow::{Context, Result, bail, ensure};
use contract::{
    server::{Client, Server},
    verdicts::Column,
};
use nix::{
    sys::{
        ptrace::{self, Options},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};
use std::{
    fmt::Write,
    fs,
    net::TcpStream,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

/// The server whose reactors are looked at.
pub const SERVER: &str = "ch05";

/// With fewer reactors there is little to spread. A reactor needs no core of its own for this: it is
/// the number of listeners that the hash is about.
const REACTORS_MIN: usize = 4;

/// How many clients come, and in how many trials.
const CROWDS: [(usize, usize); 3] = [(10, 20), (100, 20), (10_000, 1)];
const CROWDS_SMOKE: [(usize, usize); 2] = [(10, 2), (100, 1)];

/// The counts of so many reactors are shown.
const SHOWN_MAX: usize = 8;

/// As many are held at once and counted; a larger crowd comes in several such parts.
const HELD_MAX: usize = 1_000;

/// The clients have to be counted within the server's patience with the first of them.
const COUNTED: Duration = Duration::from_millis(1_500);

/// How many ask while one reactor stands still, and how long they wait.
const ASKERS: usize = 100;
const ASKER_WAITS: Duration = Duration::from_secs(1);

/// How long it takes to find that an answer has come.
const IS_THERE: Duration = Duration::from_millis(20);

/// How long the others wait once it goes on.
const LATE: Duration = Duration::from_secs(10);

/// `cargo lab spread`
pub struct Spread;

impl Experiment for Spread {
    fn name(&self) -> &'static str {
        "spread"
    }

    fn question(&self) -> &'static str {
        "How evenly do clients come to the reactors of 05, and who waits when one of them stands still?"
    }

    fn prediction(&self) -> &'static str {
        "10 clients leave a reactor idle now and then, 10,000 are even; who hashes to the slow one waits."
    }

    fn servers(&self) -> Vec<Column> {
        named(&[SERVER])
    }

    fn about(&self, scale: &Scale, _: usize) -> Duration {
        let trials: usize = crowds(scale).iter().map(|(_, trials)| trials).sum();
        Duration::from_secs(3 + trials as u64 / 4)
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let server = bench.servers.first().context("no server to look at")?;
        let reactors = bench.machine.cores.max(REACTORS_MIN);
        let mut outcome = Outcome::default();
        let mut rows = Vec::new();
        let mut text = format!(
            "CLIENTS PER REACTOR: {reactors} reactors of {}, an even share is {:.1} %\n{HEAD}",
            short(SERVER),
            100.0 / reactors as f64
        );
        for &(clients, trials) in crowds(bench.scale) {
            let mut counted = Vec::new();
            for trial in 1..=trials {
                let part = format!("{clients} clients, {reactors} reactors #{trial}");
                let counts = match bench.journal.get(&part) {
                    Some(kept) => kept,
                    None if bench.stop.load(Ordering::Relaxed) => {
                        outcome.missing += 1;
                        continue;
                    }
                    None => {
                        let counts = crowd(server, reactors, clients)?;
                        bench.journal.keep(&part, &counts)?;
                        counts
                    }
                };
                rows.extend(records(&counts, clients, trial));
                counted.push(counts);
            }
            text += &describe(clients, &counted);
        }
        one_stands_still(bench, server, reactors, &mut text, &mut outcome)?;
        outcome.table = Table::of(&rows)?;
        outcome.scoreboard = text;
        Ok(outcome)
    }
}

/// What happens while one reactor stands still, into `text` and `outcome`.
fn one_stands_still(
    bench: &Bench<'_>,
    server: &Binary,
    reactors: usize,
    text: &mut String,
    outcome: &mut Outcome,
) -> Result<()> {
    let part = format!("one of {reactors} reactors stands still");
    let kept = bench.journal.get::<String>(&part);
    if kept.is_none() && bench.stop.load(Ordering::Relaxed) {
        outcome.missing += 1;
        return Ok(());
    }
    match kept.map_or_else(|| stand_still(server, reactors), Ok) {
        Ok(sentence) => {
            bench.journal.keep(&part, &sentence)?;
            let _ = write!(text, "\nONE REACTOR STANDS STILL\n  {sentence}\n");
            outcome.answer = sentence.replace("\n ", "");
            outcome.findings.push(outcome.answer.clone());
        }
        // A machine without ptrace is no machine that fails.
        Err(error) if error.is::<NoPtrace>() => {
            let _ = write!(text, "\nONE REACTOR STANDS STILL\n  not shown: {error}\n");
            outcome.findings.push(error.to_string());
        }
        Err(error) => {
            outcome.missing += 1;
            outcome.fail(format!("one reactor stands still: {error:#}"));
        }
    }
    Ok(())
}

fn crowds(scale: &Scale) -> &'static [(usize, usize)] {
    if scale.form == Form::Smoke { &CROWDS_SMOKE } else { &CROWDS }
}

fn start(binary: &Binary, reactors: usize) -> Result<Server> {
    let option = reactors.to_string();
    let server = Server::start_with_options(&binary.path, "127.0.0.1:0", &["--reactors", &option])
        .with_context(|| format!("{} cannot run", short(binary.column.name)))?;
    // It says where it listens before all of its reactors have begun.
    let started = Instant::now();
    loop {
        let epolls = watched(server.pid())?.len();
        if epolls == reactors {
            return Ok(server);
        }
        ensure!(
            started.elapsed() < LATE,
            "{epolls} epolls for {reactors} reactors: is this the server that is looked at here?"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// Of `clients` who come one after the other, how many came to each reactor.
fn crowd(binary: &Binary, reactors: usize, clients: usize) -> Result<Vec<usize>> {
    let server = start(binary, reactors)?;
    let mut counts = vec![0; reactors];
    let mut left = clients;
    while left > 0 {
        let held = left.min(HELD_MAX);
        for (count, more) in counts.iter_mut().zip(part(&server, held)?) {
            *count += more;
        }
        left -= held;
    }
    Ok(counts)
}

/// As [`crowd`], for as many as are held at once. They leave when they are counted.
fn part(server: &Server, clients: usize) -> Result<Vec<usize>> {
    let start = Instant::now();
    let mut held = Vec::new();
    for _ in 0..clients {
        held.push(TcpStream::connect(server.address()).context("connect: a client of the crowd")?);
    }
    let counts = loop {
        let counts = watched(server.pid())?;
        if counts.iter().sum::<usize>() == clients {
            break counts;
        }
        ensure!(
            start.elapsed() < COUNTED,
            "{clients} clients were not taken in within {COUNTED:?}: is the machine busy?"
        );
        thread::sleep(Duration::from_millis(5));
    };
    drop(held);
    let gone = Instant::now();
    while watched(server.pid())?.iter().any(|it| *it > 0) {
        ensure!(gone.elapsed() < LATE, "the server has not noticed that its clients have left");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(counts)
}

/// How many clients each epoll of `pid` watches: what it watches, without its listener and the event that
/// stops it.
fn watched(pid: u32) -> Result<Vec<usize>> {
    const NO_CLIENTS: usize = 2;
    let folder = format!("/proc/{pid}/fdinfo");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.clone())? {
        let entry = entry.with_context(|| folder.clone())?;
        // A client may have left since its name was read.
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let watched = text.lines().filter(|it| it.starts_with("tfd:")).count();
        let number: u32 = entry.file_name().to_string_lossy().parse().unwrap_or(u32::MAX);
        if watched >= NO_CLIENTS {
            found.push((number, watched - NO_CLIENTS));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, clients)| clients).collect())
}

fn records(counts: &[usize], clients: usize, trial: usize) -> Vec<Record> {
    let row = |(index, count): (usize, &usize)| Record {
        experiment: "spread".into(),
        server: SERVER.into(),
        link: "loopback".into(),
        stall: "silent".into(),
        stall_percent: 100.0,
        step: u32::try_from(trial).unwrap_or(u32::MAX),
        reactors: Some(counts.len()),
        clients: Some(clients),
        reactor: Some(index + 1),
        reactor_clients: Some(*count),
        ..Record::default()
    };
    counts.iter().enumerate().map(row).collect()
}

const HEAD: &str =
    "  clients  trials  smallest share  largest share  left one idle  one of the trials\n";

/// All trials of one crowd in a line.
fn describe(clients: usize, trials: &[Vec<usize>]) -> String {
    let all = || trials.iter().flatten().copied();
    let (Some(fewest), Some(most)) = (all().min(), all().max()) else { return String::new() };
    let idle = trials.iter().filter(|it| it.contains(&0)).count();
    let percent = |count: usize| format!("{:.1} %", 100.0 * count as f64 / clients as f64);
    let first = trials.first().map_or(&[][..], Vec::as_slice);
    let shown: Vec<String> = first.iter().take(SHOWN_MAX).map(usize::to_string).collect();
    format!(
        "  {clients:>7}  {:>6}  {:>14}  {:>13}  {:>13}  {}{}\n",
        trials.len(),
        percent(fewest),
        percent(most),
        format!("{idle} of {}", trials.len()),
        shown.join(" + "),
        if first.len() > SHOWN_MAX { " + …" } else { "" },
    )
}

/// This machine does not let us stop one thread of a server.
#[derive(Debug)]
struct NoPtrace(nix::errno::Errno);

impl std::error::Error for NoPtrace {}

impl std::fmt::Display for NoPtrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "NEEDS ptrace, to stop one thread and not the process ({}): see kernel.yama.ptrace_scope and the \
             container's seccomp profile",
            self.0
        )
    }
}

/// Stops one reactor, lets some ask, and lets it go on: who waited, and were they answered?
fn stand_still(binary: &Binary, reactors: usize) -> Result<String> {
    let server = start(binary, reactors)?;
    let reactor = last_thread(server.pid())?;
    ptrace::seize(reactor, Options::empty()).map_err(NoPtrace)?;
    ptrace::interrupt(reactor).map_err(NoPtrace)?;
    waitpid(reactor, Some(WaitPidFlag::__WALL)).context("waitpid: the reactor that is to stop")?;
    let mut waiting: Vec<Client> = Vec::new();
    let mut askers = Vec::new();
    for _ in 0..ASKERS {
        let mut client = server.connect("a client")?;
        client.send(b"7\n").context("send")?;
        askers.push(client);
    }
    thread::sleep(ASKER_WAITS);
    for mut client in askers {
        if !client.hear(IS_THERE).is(b"Odd\n") {
            waiting.push(client);
        }
    }
    let late = waiting.len();
    ptrace::detach(reactor, None).context("ptrace(DETACH)")?;
    let lost = waiting.iter_mut().map(|it| it.hear(LATE)).filter(|it| !it.is(b"Odd\n")).count();
    if lost > 0 {
        bail!("of {late} who waited for the reactor that stood still, {lost} were never answered");
    }
    Ok(format!(
        "Of {ASKERS} clients, {late} had no answer after {} s: those who hashed to the one of {reactors} \
         reactors\n  that stood still, while the others had nothing to do. When it went on, all {late} were \
         answered.",
        ASKER_WAITS.as_secs_f64()
    ))
}

/// The youngest thread of `pid`: the main one, which serves nobody, is the eldest.
fn last_thread(pid: u32) -> Result<Pid> {
    let path = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&path).with_context(|| path.clone())?.flatten();
    let ids = tasks.filter_map(|it| it.file_name().to_string_lossy().parse::<i32>().ok());
    ids.max().map(Pid::from_raw).context("a process without threads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_told_in_a_line() {
        let trials = [vec![4, 6, 0, 0], vec![3, 3, 2, 2]];
        let line =
            "       10       2           0.0 %         60.0 %         1 of 2  4 + 6 + 0 + 0\n";
        assert_eq!(describe(10, &trials), line);
        assert_eq!(records(&trials[0], 10, 1)[1].reactor_clients, Some(6));
    }

    #[test]
    fn an_epoll_is_seen_with_what_it_watches() {
        use nix::sys::{
            epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
            eventfd::{EfdFlags, EventFd},
        };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let events: Vec<EventFd> =
            (0..5).map(|_| EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap()).collect();
        for event in &events {
            epoll.add(event, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
        }
        // Other tests of this process may have an epoll as well.
        assert!(watched(std::process::id()).unwrap().contains(&3));
    }
}
