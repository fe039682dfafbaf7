//! A burst of clients against queues of several lengths, while the server is busy with something else for
//! half a second: who gets in at once, who when the kernel sends their SYN again, and who later.
//!
//! [`burst`] is one of them.

pub mod burst;

use crate::{
    experiment::{Bench, Experiment, Form, Namespaces, Outcome, Scale},
    pool::{self, Task},
    race::scoreboard::thousands,
    records::Table,
};
use anyhow::Result;
use burst::Seen;
use contract::verdicts::Column;
use serde::{Deserialize, Serialize};
use std::{fmt::Write, fs, time::Duration};

/// What is asked of `listen`.
const BACKLOGS: [usize; 4] = [1, 16, 128, 4_096];

/// How many connect at once.
const BURSTS: [usize; 4] = [10, 100, 1_000, 5_000];
const BURSTS_SMOKE: [usize; 1] = [100];

/// `cargo lab backlog`
pub struct Backlog;

/// One burst against one queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `backlog`
    pub experiment: String,
    /// `listener`: it is none of the chapters, and accepts nobody for half a second.
    pub server: String,
    /// `loopback`
    pub link: String,
    /// Which of the equal runs, from 1.
    pub seed: u64,
    /// Which burst, from 1.
    pub step: u32,
    /// What was asked of `listen`.
    pub backlog: usize,
    /// What the kernel makes of it: not more than net.core.somaxconn.
    pub backlog_allowed: usize,
    /// How many connect.
    pub burst: usize,
    /// Of them, those who got in while the server was busy.
    pub at_once: usize,
    /// The same, as the length of the queue predicts it: its limit and one.
    pub predicted_at_once: usize,
    /// Those who got in after that, within 1.5 s of the burst: the kernel sends a SYN again after 1 s.
    pub at_first_retry: usize,
    /// Those who got in later.
    pub later: usize,
    /// Those who had not got in when it was given up.
    pub never: usize,
    /// When the last one got in.
    pub last_in_ms: Option<f64>,
    /// How much the kernel's counters grew: ListenOverflows.
    pub listen_overflows: Option<u64>,
    /// ListenDrops.
    pub listen_drops: Option<u64>,
    /// TCPReqQFullDoCookies.
    pub syn_cookies: Option<u64>,
    /// Whether the counters are of this burst alone, and not of the whole machine.
    pub own_namespace: bool,
}

impl Experiment for Backlog {
    fn name(&self) -> &'static str {
        "backlog"
    }

    fn question(&self) -> &'static str {
        "A burst of clients comes while the server is busy: how many get in, and what do the others wait for?"
    }

    fn prediction(&self) -> &'static str {
        "At once backlog + 1, at most somaxconn + 1; the others when their SYN is sent again: 1 s, 2 s, …"
    }

    fn servers(&self) -> Vec<Column> {
        Vec::new()
    }

    fn namespaces(&self) -> Namespaces {
        Namespaces::Wanted
    }

    fn about(&self, scale: &Scale, _: usize) -> Duration {
        let bursts = BACKLOGS.len() * bursts(scale).len() * repeats(scale) as usize;
        Duration::from_millis(1_500) * bursts as u32
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let most = bench.machine.descriptors_max as usize;
        let mut tasks = Vec::new();
        for seed in 1..=repeats(bench.scale) {
            for (index, &clients) in bursts(bench.scale).iter().enumerate() {
                for backlog in BACKLOGS {
                    let part = format!("{clients} against {backlog} #{seed}");
                    tasks.push(Task { part, job: (backlog, clients, seed, 1 + index as u32) });
                }
            }
        }
        let bar = bench.screen.bar("backlog");
        let (all, begun) = (tasks.len() as f64, std::sync::atomic::AtomicUsize::new(0));
        // One at a time: how quickly a burst comes is a part of it.
        let done = pool::all(
            bench,
            &tasks,
            1,
            |&(backlog, clients, seed, step)| {
                let at = begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                bar.at(at as f64 / all, &format!("{clients} against listen(…, {backlog})"));
                anyhow::ensure!(
                    clients + 512 <= most,
                    "{clients} clients need as many descriptors, and RLIMIT_NOFILE is {most}: allow more \
                     (ulimit -Hn {}, as root)",
                    clients + 1_000
                );
                let seen = burst::burst(backlog, clients, bench.stop)?;
                Ok(row(&seen, backlog, clients, seed, step))
            },
            |_| true,
        );
        bar.end();
        let mut outcome = Outcome::default();
        let rows = crate::experiment::rows(done, &mut outcome);
        if rows.iter().any(|it| !it.own_namespace) {
            outcome.findings.push(
                "the counters are the whole machine's: a network namespace takes root, or a kernel that \
                 lets users have user namespaces"
                    .into(),
            );
        }
        outcome.scoreboard = board(&rows);
        outcome.table = Table::of(&rows)?;
        Ok(outcome)
    }
}

fn bursts(scale: &Scale) -> &'static [usize] {
    if scale.form == Form::Smoke { &BURSTS_SMOKE } else { &BURSTS }
}

fn repeats(scale: &Scale) -> u64 {
    if scale.form == Form::Smoke { 1 } else { 3 }
}

fn row(seen: &Seen, backlog: usize, clients: usize, seed: u64, step: u32) -> Row {
    let somaxconn = fs::read_to_string("/proc/sys/net/core/somaxconn");
    let somaxconn = somaxconn.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(usize::MAX);
    let allowed = backlog.min(somaxconn);
    let within = |from: Duration, to: Duration| {
        seen.in_after.iter().filter(|it| (from..to).contains(it)).count()
    };
    let first_retry = Duration::from_millis(1_500);
    let at_once = within(Duration::ZERO, burst::BUSY);
    let at_first_retry = within(burst::BUSY, first_retry);
    let later = within(first_retry, Duration::MAX);
    let last = seen.in_after.iter().max();
    let grown = |index: usize| Some(seen.after?[index].saturating_sub(seen.before?[index]));
    Row {
        experiment: "backlog".into(),
        server: "listener".into(),
        link: "loopback".into(),
        seed,
        step,
        backlog,
        backlog_allowed: allowed,
        burst: clients,
        at_once,
        predicted_at_once: clients.min(allowed + 1),
        at_first_retry,
        later,
        never: clients - at_once - at_first_retry - later,
        last_in_ms: last.map(|it| crate::records::round(it.as_secs_f64() * 1e3)),
        listen_overflows: grown(0),
        listen_drops: grown(1),
        syn_cookies: grown(2),
        own_namespace: seen.own_namespace,
    }
}

fn board(rows: &[Row]) -> String {
    let mut text = format!(
        "{:>8} {:>7} {:>4} {:>9} {:>10} {:>8} {:>7} {:>6} {:>9} {:>10} {:>8} {:>8}\n",
        "clients",
        "backlog",
        "run",
        "at once",
        "predicted",
        "in 1.5 s",
        "later",
        "never",
        "last in",
        "overflows",
        "drops",
        "cookies"
    );
    for row in rows {
        let count = |it: Option<u64>| it.map_or_else(|| "–".into(), thousands);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>8} {:>7} {:>4} {:>9} {:>10} {:>8} {:>7} {:>6} {:>9} {:>10} {:>8} {:>8}",
            row.burst,
            row.backlog,
            row.seed,
            row.at_once,
            row.predicted_at_once,
            row.at_first_retry,
            row.later,
            row.never,
            row.last_in_ms.map_or_else(|| "–".into(), crate::race::scoreboard::ms),
            count(row.listen_overflows),
            count(row.listen_drops),
            count(row.syn_cookies),
        );
    }
    text
}
