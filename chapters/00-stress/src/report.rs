//! The report: what the records of a run amount to.

use crate::{
    engine::{Mark, Seen},
    latency::{Latency, Summary},
    plan::{Plan, StallKind},
    record::{NEVER, Outcome, Phase, Record, StallEnd, StallRecord},
    schedule::{StepPlan, steps},
};
use nix::errno::Errno;
use serde::Serialize;
use std::collections::BTreeMap;

/// A request noticed later than this was late by the generator's fault.
pub(crate) const LATE_NS: u64 = 25_000_000;
/// More of a step than this, and at least [`LATE_COUNT`], and the step says more of the generator than of the server.
pub(crate) const LATE_SHARE: f64 = 0.01;
pub(crate) const LATE_COUNT: u64 = 3;
/// A thread that works this much of its time has none left.
pub(crate) const BUSY_SHARE: f64 = 0.95;
/// With a thread that is busy, this much lateness at p99 is its own.
pub(crate) const BUSY_LATE_MS: f64 = 5.0;

/// What a run has shown. It serialises to the JSON summary of `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was to be done.
    pub plan: Plan,
    /// Each step, warm-up included.
    pub steps: Vec<StepReport>,
    /// All steps but the warm-up, together.
    pub totals: Totals,
    /// Requests per second of the highest step with 100 % correct, if that holds for all lower steps too.
    /// `None` if the lowest step already failed somebody.
    pub sustained_qps: Option<f64>,
    /// Requests per second of the first step with at most 50 % correct. `None` if there was none.
    pub knee_qps: Option<f64>,
    /// The stalled clients, by kind.
    pub stalled: Vec<StallReport>,
    /// CPU time of the run.
    pub cost: Cost,
    /// Whether any step was limited by the generator, so that it says little about the server.
    pub client_bound: bool,
    /// Whether the run was ended before its schedule was.
    pub interrupted: bool,
    /// Requests that this side closed first: each locks a port for a minute.
    pub closed_first: u64,
    /// What else the reader should know.
    pub warnings: Vec<String>,
    /// Nanoseconds of the monotonic clock at the start of the run.
    pub origin_ns: u64,
    /// Every request, in order of its number. Not part of the JSON.
    #[serde(skip)]
    pub records: Vec<Record>,
    /// Every stalled client. Not part of the JSON.
    #[serde(skip)]
    pub stall_records: Vec<StallRecord>,
}

/// One step. Percentages are of what was scheduled.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// `warmup` or `steady`.
    pub phase: &'static str,
    /// Requests per second that were planned.
    pub target_qps: f64,
    /// Seconds from the start of the run.
    pub start_s: f64,
    /// Seconds that it lasted.
    pub length_s: f64,
    /// Its numbers.
    #[serde(flatten)]
    pub totals: Totals,
    /// How many requests were under way at once, at most, among those of all steps.
    pub concurrency_max: u32,
    /// The same as a mean over the step's time.
    pub concurrency_mean: f64,
    /// Share of its time that the busiest engine thread worked, 0 to 1.
    pub cpu_share: f64,
    /// Whether the generator was the limit.
    pub client_bound: bool,
    /// Why, in words.
    pub client_bound_because: Option<String>,
}

/// Requests of one step or of several.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Requests that were due.
    pub scheduled: u64,
    /// Of those, the ones for which a connection was begun.
    pub issued: u64,
    /// Answered right.
    pub correct: u64,
    /// Answered wrong.
    pub wrong: u64,
    /// All others.
    pub errors: u64,
    /// Correct of scheduled, in percent.
    pub success_percent: f64,
    /// Requests per second that really began, from the first to the last.
    pub achieved_qps: f64,
    /// All that was not correct, by outcome, phase and errno, the most frequent first.
    pub rows: Vec<ErrorRow>,
    /// Latencies.
    pub latency: Latency,
    /// How late the generator noticed that a request was due.
    pub lateness: Summary,
}

/// Requests that failed alike.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorRow {
    /// The row of the taxonomy.
    pub outcome: Outcome,
    /// How far they had come.
    pub phase: Phase,
    /// The error number, 0 if no system call failed.
    pub errno: i32,
    /// Its name, such as `ECONNREFUSED`; empty if no system call failed.
    pub errno_name: String,
    /// How many.
    pub count: u64,
}

/// Stalled clients of one kind, apart from the requests.
#[derive(Clone, Debug, Serialize)]
pub struct StallReport {
    /// What they did.
    pub kind: StallKind,
    /// Their share of the requests, 0 to 1.
    pub share: f64,
    /// How many were tried.
    pub tried: u64,
    /// Of those, how many got a connection (which may still have waited in the server's queue).
    pub opened: u64,
    /// Refused at once, or failed while connecting.
    pub not_connected: u64,
    /// Still waiting for a connection when they gave up.
    pub never_accepted: u64,
    /// Let go by the server: it closed.
    pub let_go: u64,
    /// Reset by the server.
    pub reset: u64,
    /// Went by themselves after their hold time.
    pub hung_up: u64,
    /// Still held when the run ended.
    pub held: u64,
    /// Were sent something by the server, though they had not asked (a deaf one does not see it).
    pub answered: u64,
    /// How long after its connection the server let one go, in milliseconds.
    pub let_go_after: Summary,
}

/// CPU time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cost {
    /// CPU seconds of the engine's threads.
    pub own_cpu_s: f64,
    /// The same per 100,000 requests issued.
    pub own_cpu_s_per_100k: f64,
    /// CPU seconds of the server, if its process was named.
    pub server_cpu_s: Option<f64>,
    /// The same per 100,000 requests issued.
    pub server_cpu_s_per_100k: Option<f64>,
}

/// What a run leaves behind, before anything is made of it.
pub(crate) struct Measured {
    pub seen: Vec<Seen>,
    pub origin_ns: u64,
    pub interrupted: bool,
    pub server_cpu_ns: Option<u64>,
    pub warnings: Vec<String>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, measured: Measured) -> Report {
        let Measured { seen, origin_ns, interrupted, server_cpu_ns, mut warnings } = measured;
        let mut records: Vec<Record> =
            seen.iter().flat_map(|seen| seen.records.iter().copied()).collect();
        records.sort_unstable_by_key(|record| record.id);
        let mut stall_records: Vec<StallRecord> =
            seen.iter().flat_map(|seen| seen.stalled.iter().copied()).collect();
        stall_records.sort_unstable_by_key(|record| record.started_ns);
        let marks: Vec<&[Mark]> = seen.iter().map(|seen| &seen.marks[..]).collect();
        let steps = step_reports(&steps(plan), &records, &marks);
        let steady = records.iter().filter(|record| {
            steps.get(usize::from(record.step)).is_some_and(|step| step.phase == "steady")
        });
        let totals = Totals::of(steady);
        let issued = records.iter().filter(|record| record.started_ns != NEVER).count() as u64;
        let cpu_ns = marks.iter().map(|marks| worked_ns(marks)).sum();
        let closed_first = records.iter().filter(|record| record.closed_first).count() as u64;
        warn(&mut warnings, plan, closed_first, server_cpu_ns);
        Report {
            plan: plan.clone(),
            sustained_qps: sustained(&steps),
            knee_qps: knee(&steps),
            totals,
            stalled: stall_reports(plan, &stall_records),
            cost: Cost::of(cpu_ns, server_cpu_ns, issued),
            client_bound: steps.iter().any(|step| step.client_bound),
            steps,
            interrupted,
            closed_first,
            warnings,
            origin_ns,
            records,
            stall_records,
        }
    }
}

/// The highest step with 100 % correct, all steps below it too.
fn sustained(steps: &[StepReport]) -> Option<f64> {
    let good = by_rate(steps).into_iter().take_while(|step| {
        step.totals.scheduled > 0 && step.totals.correct == step.totals.scheduled
    });
    good.last().map(|step| step.target_qps)
}

/// The first step at or below 50 %.
fn knee(steps: &[StepReport]) -> Option<f64> {
    let fallen = |step: &&StepReport| {
        step.totals.scheduled > 0 && 2 * step.totals.correct <= step.totals.scheduled
    };
    by_rate(steps).into_iter().find(fallen).map(|step| step.target_qps)
}

fn by_rate(steps: &[StepReport]) -> Vec<&StepReport> {
    let mut steady: Vec<&StepReport> = steps.iter().filter(|step| step.phase == "steady").collect();
    steady.sort_by(|one, other| one.target_qps.total_cmp(&other.target_qps));
    steady
}

fn step_reports(steps: &[StepPlan], records: &[Record], marks: &[&[Mark]]) -> Vec<StepReport> {
    let under_way = UnderWay::new(records);
    let report = |(index, step): (usize, &StepPlan)| {
        let mine: Vec<&Record> =
            records.iter().filter(|record| usize::from(record.step) == index).collect();
        let totals = Totals::of(mine.iter().copied());
        let cpu_share = marks.iter().map(|marks| busy_share(marks, index)).fold(0.0, f64::max);
        let because = why_client_bound(&mine, &totals, cpu_share);
        let (concurrency_max, concurrency_mean) =
            under_way.between(step.start_ns, step.start_ns + step.length_ns);
        StepReport {
            phase: step.phase,
            target_qps: step.target_qps,
            start_s: step.start_ns as f64 / 1e9,
            length_s: step.length_ns as f64 / 1e9,
            totals,
            concurrency_max,
            concurrency_mean,
            cpu_share,
            client_bound: because.is_some(),
            client_bound_because: because,
        }
    };
    steps.iter().enumerate().map(report).collect()
}

/// The verdict on the generator itself. What a limit of connections makes wait is not its fault.
fn why_client_bound(mine: &[&Record], totals: &Totals, cpu_share: f64) -> Option<String> {
    let own = |outcome| mine.iter().filter(|record| record.outcome == outcome).count();
    for outcome in [Outcome::NotSent, Outcome::OutOfDescriptors, Outcome::OutOfPorts] {
        match own(outcome) {
            0 => {}
            count => return Some(format!("{count} × {}", outcome.words())),
        }
    }
    let late = |record: &&&Record| record.noticed_ns - record.scheduled_ns > LATE_NS;
    let late = mine.iter().filter(late).count() as u64;
    if late >= LATE_COUNT && late as f64 > LATE_SHARE * mine.len() as f64 {
        return Some(format!("{late} requests were noticed more than 25 ms late"));
    }
    let lateness = totals.lateness.p99_ms;
    (cpu_share >= BUSY_SHARE && lateness > BUSY_LATE_MS).then(|| {
        format!(
            "its thread worked {:.0} % of the time, late by {lateness:.0} ms",
            cpu_share * 100.0
        )
    })
}

fn busy_share(marks: &[Mark], step: usize) -> f64 {
    let Some(index) = marks.iter().position(|mark| usize::from(mark.step) == step) else {
        return 0.0;
    };
    let Some(next) = marks.get(index + 1) else { return 0.0 };
    let wall_ns = next.wall_ns.saturating_sub(marks[index].wall_ns);
    if wall_ns == 0 {
        return 0.0;
    }
    (next.cpu_ns - marks[index].cpu_ns) as f64 / wall_ns as f64
}

fn worked_ns(marks: &[Mark]) -> u64 {
    match marks {
        [first, .., last] => last.cpu_ns - first.cpu_ns,
        _ => 0,
    }
}

fn warn(warnings: &mut Vec<String>, plan: &Plan, closed_first: u64, server_cpu_ns: Option<u64>) {
    if closed_first > 0 {
        warnings.push(format!(
            "{closed_first} requests ended with this side closing first: each keeps a port in TIME_WAIT \
             for a minute, and a client that always does locks itself near 14,000 connections per second"
        ));
    }
    if plan.server_pid.is_some() && server_cpu_ns.is_none() {
        warnings.push("the server's process was gone before its CPU time could be read".into());
    }
    if !plan.stalls.is_empty() && plan.stall_hold <= plan.timeout {
        warnings.push(
            "stalled clients leave no later than the others' patience ends: a server that waits for them \
             then looks slow, not broken. Let them hold longer (--stall-hold)"
                .into(),
        );
    }
}

impl Totals {
    fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Totals {
        let records: Vec<&Record> = records.collect();
        let count =
            |wanted: Outcome| records.iter().filter(|record| record.outcome == wanted).count();
        let scheduled = records.len() as u64;
        let correct = count(Outcome::Correct) as u64;
        let wrong = count(Outcome::Wrong) as u64;
        let starts = || records.iter().map(|record| record.started_ns).filter(|at| *at != NEVER);
        let issued = starts().count() as u64;
        let span_ns = starts().max().unwrap_or(0).saturating_sub(starts().min().unwrap_or(0));
        let achieved = if span_ns == 0 { 0.0 } else { (issued - 1) as f64 * 1e9 / span_ns as f64 };
        Totals {
            scheduled,
            issued,
            correct,
            wrong,
            errors: scheduled - correct - wrong,
            success_percent: percent(correct, scheduled),
            achieved_qps: achieved,
            rows: rows(&records),
            latency: Latency::of(&records),
            lateness: Summary::of(since_scheduled(&records, |record| record.noticed_ns)),
        }
    }
}

impl Latency {
    fn of(records: &[&Record]) -> Latency {
        let correct: Vec<&Record> =
            records.iter().filter(|record| record.outcome == Outcome::Correct).copied().collect();
        let sent: Vec<&Record> =
            records.iter().filter(|record| record.started_ns != NEVER).copied().collect();
        Latency {
            queue: Summary::of(since_scheduled(&sent, |record| record.started_ns)),
            connect: Summary::of(since_scheduled(&sent, |record| record.connected_ns)),
            first_byte: Summary::of(since_scheduled(&sent, |record| record.first_byte_ns)),
            total: Summary::of(since_scheduled(&correct, |record| record.closed_ns)),
            any_end: Summary::of(since_scheduled(&sent, |record| record.closed_ns)),
            from_start: Summary::of(
                correct.iter().map(|record| record.closed_ns - record.started_ns),
            ),
        }
    }
}

fn since_scheduled(records: &[&Record], moment: fn(&Record) -> u64) -> Vec<u64> {
    let reached = records.iter().filter(|record| moment(record) != NEVER);
    reached.map(|record| moment(record).saturating_sub(record.scheduled_ns)).collect()
}

fn rows(records: &[&Record]) -> Vec<ErrorRow> {
    let mut counts: BTreeMap<(Outcome, Phase, i32), u64> = BTreeMap::new();
    for record in records.iter().filter(|record| record.outcome != Outcome::Correct) {
        *counts.entry((record.outcome, record.phase, record.errno)).or_default() += 1;
    }
    rows_of(counts)
}

/// Rows, the most frequent first.
pub(crate) fn rows_of(counts: BTreeMap<(Outcome, Phase, i32), u64>) -> Vec<ErrorRow> {
    let row = |((outcome, phase, errno), count)| ErrorRow {
        outcome,
        phase,
        errno,
        errno_name: match Errno::from_raw(errno) {
            Errno::UnknownErrno => String::new(),
            known => format!("{known:?}"),
        },
        count,
    };
    let mut rows: Vec<ErrorRow> = counts.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn stall_reports(plan: &Plan, records: &[StallRecord]) -> Vec<StallReport> {
    let report = |(index, stall): (usize, &crate::plan::Stall)| {
        let mine: Vec<&StallRecord> =
            records.iter().filter(|record| record.stall == index).collect();
        let count = |end| mine.iter().filter(|record| record.end == end).count() as u64;
        let let_go = mine
            .iter()
            .filter(|record| matches!(record.end, StallEnd::Closed | StallEnd::Reset))
            .filter(|record| record.connected_ns != NEVER);
        StallReport {
            kind: stall.kind,
            share: stall.share,
            tried: mine.len() as u64,
            opened: mine.iter().filter(|record| record.connected_ns != NEVER).count() as u64,
            not_connected: count(StallEnd::NotConnected),
            never_accepted: count(StallEnd::NeverAccepted),
            let_go: count(StallEnd::Closed),
            reset: count(StallEnd::Reset),
            hung_up: count(StallEnd::HungUp),
            held: count(StallEnd::Held),
            answered: mine.iter().filter(|record| record.bytes > 0).count() as u64,
            let_go_after: Summary::of(let_go.map(|record| record.ended_ns - record.connected_ns)),
        }
    };
    plan.stalls.iter().enumerate().map(report).collect()
}

impl Cost {
    fn of(own_ns: u64, server_ns: Option<u64>, issued: u64) -> Cost {
        let per_100k =
            |ns: u64| if issued == 0 { 0.0 } else { ns as f64 / 1e9 / issued as f64 * 1e5 };
        Cost {
            own_cpu_s: own_ns as f64 / 1e9,
            own_cpu_s_per_100k: per_100k(own_ns),
            server_cpu_s: server_ns.map(|ns| ns as f64 / 1e9),
            server_cpu_s_per_100k: server_ns.map(per_100k),
        }
    }
}

/// How many requests were under way, at any moment.
pub(crate) struct UnderWay {
    /// Moments at which the number changed, and what it was from then on.
    changes: Vec<(u64, u32)>,
}

impl UnderWay {
    pub fn new(records: &[Record]) -> UnderWay {
        let mut moments: Vec<(u64, i32)> = Vec::with_capacity(records.len() * 2);
        for record in records.iter().filter(|record| record.started_ns != NEVER) {
            moments.push((record.started_ns, 1));
            moments.push((record.closed_ns, -1));
        }
        moments.sort_unstable();
        let mut now = 0;
        let changes = moments.into_iter().map(|(at, by)| {
            now += by;
            (at, now.max(0) as u32)
        });
        UnderWay { changes: changes.collect() }
    }

    /// The most, and the mean over time, from one moment to another.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> (u32, f64) {
        let begin = self.changes.partition_point(|(at, _)| *at <= from_ns);
        let mut now = if begin == 0 { 0 } else { self.changes[begin - 1].1 };
        let (mut most, mut sum, mut since) = (now, 0.0, from_ns);
        for (at, count) in self.changes[begin..].iter().take_while(|(at, _)| *at < to_ns) {
            sum += f64::from(now) * (at - since) as f64;
            (now, since) = (*count, *at);
            most = most.max(now);
        }
        sum += f64::from(now) * (to_ns - since) as f64;
        (most, sum / (to_ns - from_ns).max(1) as f64)
    }
}
