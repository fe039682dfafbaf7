//! The staircases: some servers at a time, each with its own clients.

use crate::{
    binaries::Binary,
    experiment::{Bench, Scale},
    race::{
        KINDS, STALL_SHARE,
        scoreboard::{Tally, ms, thousands},
    },
    records::{Record, round},
    screen::Bar,
    servers::short,
};
use anyhow::{Context, Result, anyhow};
use contract::server::Server;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use stress::{Outcome, Plan, Progress, Report, Stall, StallKind, StepReport};

/// What one server is to be put through.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The server.
    pub server: &'a Binary,
    /// What 0.5 % of the clients do; `None` is the highest step alone, and nobody stalls.
    pub kind: Option<StallKind>,
    /// What its rows are called in the record.
    pub name: &'static str,
    /// The number of its first row.
    pub first_step: u32,
}

/// What came of a [`Job`].
#[derive(Debug)]
pub struct Run {
    /// The binary.
    pub server: String,
    /// What its stalled clients did.
    pub kind: Option<StallKind>,
    /// The steps that were completed.
    pub records: Vec<Record>,
    /// Why it ended early, if it did and not by the reader's wish.
    pub failure: Option<String>,
    /// What the load generator warns of.
    pub warnings: Vec<String>,
}

/// Descriptors that a staircase may need at once: everybody who is due within one patience, and every
/// stalled client.
pub fn descriptors(scale: &Scale) -> usize {
    let highest = scale.rates.iter().copied().fold(0.0, f64::max);
    let waiting = highest * scale.timeout.as_secs_f64();
    (waiting + scale.requests() as f64 * STALL_SHARE).ceil() as usize + KINDS.len() + 64
}

/// Runs all `jobs` at once, each with a server of its own.
pub fn run_all(bench: &Bench<'_>, jobs: &[Job<'_>]) -> Vec<Result<Run>> {
    thread::scope(|scope| {
        let spawn = |job| scope.spawn(move || run(bench, job));
        let threads: Vec<_> = jobs.iter().map(spawn).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the staircase panicked")))
        };
        threads.into_iter().map(join).collect()
    })
}

/// The server is started by the thread that drives it: the kernel ends it with this thread.
fn run(bench: &Bench<'_>, job: &Job<'_>) -> Result<Run> {
    let name = job.server.column.name;
    let mut server =
        Server::start(&job.server.path).with_context(|| format!("{} cannot run", short(name)))?;
    let plan = plan(&server, job, bench.scale);
    let label = match job.kind {
        Some(kind) => format!("{} {kind}", short(name)),
        None => short(name).to_owned(),
    };
    let bar = bench.screen.bar(&label);
    let stop = AtomicBool::new(false);
    let mut death = None;
    let mut progress = |now: &Progress| {
        show(&bar, now);
        if death.is_none() && matches!(server.ended(), Ok(Some(_)) | Err(_)) {
            death = Some(now.step);
        }
        if death.is_some() || bench.stop.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let report = stress::run(&plan, &mut progress, &stop);
    bar.end();
    let report = report.with_context(|| format!("{}: the clients cannot run", short(name)))?;
    let steps: Vec<&StepReport> = report.steps.iter().filter(|it| it.phase == "steady").collect();
    let until = death.map_or(steps.len(), |noticed| died_in(&steps).unwrap_or(noticed));
    let failure = death.is_some().then(|| {
        let qps = steps.get(until).map_or(0.0, |step| step.target_qps);
        epitaph(&mut server, job, until + 1, qps)
    });
    let complete = steps.iter().take(until).enumerate().filter(|(_, step)| is_complete(step));
    let records =
        complete.map(|(index, step)| record(job, bench.scale, index as u32, step)).collect();
    let warnings = warnings(job, &report);
    Ok(Run { server: name.into(), kind: job.kind, records, failure, warnings })
}

/// The first step in which somebody met a server that was no more.
fn died_in(steps: &[&StepReport]) -> Option<usize> {
    let gone = [Outcome::Refused, Outcome::Reset, Outcome::ClosedEarly, Outcome::Interrupted];
    steps.iter().position(|it| it.totals.rows.iter().any(|row| gone.contains(&row.outcome)))
}

/// How a server ended that should not have, in a sentence.
fn epitaph(server: &mut Server, job: &Job<'_>, step: usize, qps: f64) -> String {
    let status = match server.ended() {
        Ok(Some(status)) => status.to_string(),
        _ => "its status is unknown".into(),
    };
    let words = server.stderr();
    let words = words.lines().last().map(|last| format!("; its last words: {last}"));
    format!(
        "{} ended in the middle of its run ({}, step {step}, {qps} requests per second): {status}{}",
        short(job.server.column.name),
        crowd(job.kind),
        words.unwrap_or_default(),
    )
}

fn plan(server: &Server, job: &Job<'_>, scale: &Scale) -> Plan {
    let highest = scale.rates.iter().copied().fold(0.0, f64::max);
    let plan = match job.kind {
        // Long enough to be seen, whatever the length of the staircase.
        None => {
            Plan::steps(server.address(), vec![highest], scale.hold.min(Duration::from_secs(3)))
        }
        Some(kind) => Plan::steps(server.address(), scale.rates.clone(), scale.hold)
            .with_stall(Stall { share: STALL_SHARE, kind }),
    };
    // The stalled clients hold on until the end. If they left when the others' patience ends, a server
    // that waits for each of them would be seen to answer everybody, late.
    plan.with_timeout(scale.timeout).with_stall_hold(scale.staircase_length())
}

fn show(bar: &Bar, now: &Progress) {
    let words = if now.fraction < 1.0 {
        // No latency is what there is when nobody was answered since the last look.
        let p99 = if now.p99_ms > 0.0 { format!("p99 {}", ms(now.p99_ms)) } else { "–".into() };
        format!(
            "{:>3}/s  {} answered, {} not, {} wait; {p99}",
            now.target_qps, now.correct, now.failed, now.in_flight
        )
    } else {
        format!("the last {} wait; {} answered, {} not", now.in_flight, now.correct, now.failed)
    };
    bar.at(now.fraction, &words);
}

/// Whether all its requests came to an end of their own.
fn is_complete(step: &StepReport) -> bool {
    step.totals.scheduled > 0
        && step.totals.rows.iter().all(|row| row.outcome != Outcome::Interrupted)
}

fn record(job: &Job<'_>, scale: &Scale, index: u32, step: &StepReport) -> Record {
    let latency = &step.totals.latency.total;
    let seen = |ms: f64| (latency.count > 0).then_some(ms);
    Record {
        experiment: job.name.into(),
        server: job.server.column.name.into(),
        link: "loopback".into(),
        stall: stall_name(job.kind).into(),
        stall_percent: if job.kind.is_some() { STALL_SHARE * 100.0 } else { 0.0 },
        step: job.first_step + index,
        target_qps: step.target_qps,
        achieved_qps: round(step.totals.achieved_qps),
        hold_s: step.length_s,
        timeout_s: scale.timeout.as_secs_f64(),
        scheduled: step.totals.scheduled,
        correct: step.totals.correct,
        wrong: step.totals.wrong,
        errors: step.totals.errors,
        p50_ms: seen(latency.p50_ms).map(round),
        p90_ms: seen(latency.p90_ms).map(round),
        p99_ms: seen(latency.p99_ms).map(round),
        max_ms: seen(latency.max_ms).map(round),
        client_bound: step.client_bound,
        ..Record::default()
    }
}

fn warnings(job: &Job<'_>, report: &Report) -> Vec<String> {
    // Clients that lose patience close first, always: that is what is measured here, not a warning.
    let bound = report.steps.iter().filter_map(|step| {
        let because = step.client_bound_because.as_ref()?;
        Some(format!(
            "{}, {}: the load generator was the limit at {}/s ({because})",
            short(job.server.column.name),
            crowd(job.kind),
            step.target_qps
        ))
    });
    bound.collect()
}

fn stall_name(kind: Option<StallKind>) -> &'static str {
    kind.map_or("none", StallKind::name)
}

fn crowd(kind: Option<StallKind>) -> String {
    kind.map_or_else(|| "nobody stalls".into(), |kind| format!("{kind} clients"))
}

impl Run {
    /// How it went, for people.
    pub fn sentence(&self) -> String {
        let tally = Tally::of(&self.records, &self.server, stall_name(self.kind));
        let result = tally.map_or_else(
            || "no step was completed".into(),
            |it| {
                format!(
                    "{} of {} answered ({:.1} %)",
                    thousands(it.correct),
                    thousands(it.scheduled),
                    it.percent()
                )
            },
        );
        let ended = if self.failure.is_some() { ", then it ended" } else { "" };
        format!("{}, {}: {result}{ended}", short(&self.server), crowd(self.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_of_a_staircase_are_those_who_wait_and_those_who_stall() {
        assert_eq!(descriptors(&Scale::short()), 2_070 + 17 + 2 + 64);
        assert_eq!(descriptors(&Scale::full()), 6_900 + 118 + 2 + 64);
    }

    #[test]
    fn the_scales_are_those_of_the_story() {
        assert_eq!(Scale::full().requests(), 23_500);
        assert_eq!(Scale::short().requests(), 3_300);
        assert_eq!(Scale::short().staircase_length(), Duration::from_millis(19_500));
    }
}
