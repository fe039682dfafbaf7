//! A name that is resolved for each request, against an address that is resolved once.
//!
//! The blog's name was answered by mDNS, which failed a part of the look-ups under load. Here the resolver
//! is one of our own ([`resolver`]): it takes a set time for an answer and lets only so many wait, so that
//! what it can serve is known before the run.

pub mod client;
pub mod resolver;

use crate::{
    experiment::{Bench, Experiment, Form, Outcome, Scale},
    pool::{self, Task},
    race::scoreboard::ms,
    records::Table,
    servers::{named, short},
};
use anyhow::Result;
use client::{Lookup, Plan, Step};
use contract::verdicts::Column;
use resolver::Resolver;
use serde::{Deserialize, Serialize};
use std::{fmt::Write, time::Duration};

const SERVERS: [&str; 1] = ["ch04"];

/// How long the resolver works on one question; it works on one at a time.
const WORK: Duration = Duration::from_millis(8);

/// So many questions wait at most: the next one is dropped.
const WAITING_MAX: usize = 32;

/// `cargo lab names`
pub struct Names;

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `names`
    pub experiment: String,
    /// The binary.
    pub server: String,
    /// `loopback`
    pub link: String,
    /// Which of the equal runs, from 1.
    pub seed: u64,
    /// Which rate, from 1.
    pub step: u32,
    /// When the name is resolved: `per-request` or `once`.
    pub lookup: String,
    /// Requests per second that were planned.
    pub target_qps: f64,
    /// What the resolver can answer in a second, at most.
    pub resolver_qps: f64,
    /// The length of the step.
    pub hold_s: f64,
    /// Patience of a client, with the look-up in it.
    pub timeout_s: f64,
    /// Requests that were due.
    pub scheduled: u64,
    /// Of those, answered right.
    pub correct: u64,
    /// Of the others, those whose name was not resolved in time.
    pub unresolved: u64,
    /// Of the others, those that the server did not answer.
    pub unanswered: u64,
    /// Percent answered right.
    pub success_percent: f64,
    /// The same, as the resolver's limit predicts it.
    pub predicted_percent: f64,
    /// Half of those answered took at most this, with the look-up in it.
    pub p50_ms: Option<f64>,
    /// 99 of 100.
    pub p99_ms: Option<f64>,
    /// Half of the look-ups took at most this; empty where there is none per request.
    pub lookup_p50_ms: Option<f64>,
}

impl Experiment for Names {
    fn name(&self) -> &'static str {
        "names"
    }

    fn question(&self) -> &'static str {
        "What does it cost to resolve the server's name for each request instead of once?"
    }

    fn prediction(&self) -> &'static str {
        "Once: nothing. Per request: above the resolver's rate c only c ÷ rate of the requests are answered."
    }

    fn servers(&self) -> Vec<Column> {
        named(&SERVERS)
    }

    fn about(&self, scale: &Scale, _: usize) -> Duration {
        let plan = plan(scale);
        (plan.hold + plan.timeout) * (plan.rates.len() * 2) as u32 * repeats(scale) as u32
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let mut tasks = Vec::new();
        for seed in 1..=repeats(bench.scale) {
            for server in bench.servers {
                for lookup in [Lookup::Once, Lookup::PerRequest] {
                    let part = format!("{} {} #{seed}", server.column.name, lookup.name());
                    tasks.push(Task { part, job: (server, lookup, seed) });
                }
            }
        }
        let plan = plan(bench.scale);
        // One at a time: latencies of a millisecond are looked at.
        let done = pool::all(
            bench,
            &tasks,
            1,
            |&(server, lookup, seed)| {
                let running = crate::drive::start(server, "127.0.0.1:0")?;
                let resolver = Resolver::start(WORK, WAITING_MAX)?;
                let bar = bench.screen.bar(&format!("{} #{seed}", lookup.name()));
                let steps = client::drive(
                    &plan,
                    lookup,
                    resolver.address(),
                    running.address().port(),
                    &mut |share, words| bar.at(share, words),
                    bench.stop,
                )?;
                bar.end();
                let name = server.column.name;
                Ok(steps.iter().map(|it| row(it, &plan, lookup, name, seed)).collect::<Vec<Row>>())
            },
            |rows| rows.len() == plan.rates.len(),
        );
        let mut outcome = Outcome::default();
        let rows: Vec<Row> =
            crate::experiment::rows(done, &mut outcome).into_iter().flatten().collect();
        outcome.scoreboard = board(&rows);
        outcome.table = Table::of(&rows)?;
        Ok(outcome)
    }
}

fn plan(scale: &Scale) -> Plan {
    let (rates, hold_s) = if scale.form == Form::Smoke {
        (vec![50.0, 250.0], 1.0)
    } else {
        (vec![10.0, 60.0, 110.0, 160.0, 310.0], 4.0)
    };
    Plan {
        rates,
        hold: Duration::from_secs_f64(hold_s),
        timeout: Duration::from_secs_f64(if scale.form == Form::Smoke { 1.0 } else { 2.0 }),
    }
}

fn repeats(scale: &Scale) -> u64 {
    if scale.form == Form::Smoke { 1 } else { 2 }
}

/// What the resolver can answer in a second.
fn resolver_qps() -> f64 {
    1.0 / WORK.as_secs_f64()
}

fn row(step: &Step, plan: &Plan, lookup: Lookup, server: &str, seed: u64) -> Row {
    let predicted = match lookup {
        Lookup::Once => 100.0,
        // Those who wait when the step ends are answered too.
        Lookup::PerRequest => {
            let can = resolver_qps() * plan.hold.as_secs_f64() + WAITING_MAX as f64;
            100.0 * (can / step.scheduled as f64).min(1.0)
        }
    };
    Row {
        experiment: "names".into(),
        server: server.into(),
        link: "loopback".into(),
        seed,
        step: step.number,
        lookup: lookup.name().into(),
        target_qps: step.rate,
        resolver_qps: resolver_qps(),
        hold_s: plan.hold.as_secs_f64(),
        timeout_s: plan.timeout.as_secs_f64(),
        scheduled: step.scheduled,
        correct: step.correct,
        unresolved: step.unresolved,
        unanswered: step.unanswered,
        success_percent: crate::records::round(100.0 * step.correct as f64 / step.scheduled as f64),
        predicted_percent: crate::records::round(predicted),
        p50_ms: step.p50_ms,
        p99_ms: step.p99_ms,
        lookup_p50_ms: step.lookup_p50_ms,
    }
}

fn board(rows: &[Row]) -> String {
    let mut text = format!(
        "a resolver of {} names a second, {WAITING_MAX} of them waiting at most; {}\n{:<12} {:>4} {:>7} {:>10} {:>10} {:>10} {:>10} {:>11}\n",
        resolver_qps(),
        rows.first().map_or("", |it| short(&it.server)),
        "resolved",
        "run",
        "rate",
        "answered",
        "predicted",
        "p50",
        "p99",
        "unresolved"
    );
    for row in rows {
        let seen = |value: Option<f64>| value.map_or_else(|| "–".into(), ms);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<12} {:>4} {:>7} {:>10} {:>10} {:>10} {:>10} {:>11}",
            row.lookup,
            row.seed,
            format!("{}/s", row.target_qps),
            format!("{:.1} %", row.success_percent),
            format!("{:.1} %", row.predicted_percent),
            seen(row.p50_ms),
            seen(row.p99_ms),
            row.unresolved,
        );
    }
    text
}
