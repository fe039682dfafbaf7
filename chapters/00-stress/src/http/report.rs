//! The report of a run over HTTP.

use super::{
    desk::Tally,
    engine::{Seen, Used},
    plan::{Pace, Plan},
};
use crate::{
    latency::{Summary, http_histogram},
    record::Outcome,
    report::{BUSY_LATE_MS, BUSY_SHARE, ErrorRow, LATE_COUNT, LATE_SHARE, percent, rows_of},
};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// A backlog of this share of the schedule, larger at the end than at half of it, has grown.
const GREW_SHARE: f64 = 0.01;

/// What a run has shown. It serialises to the JSON summary of `--json`.
///
/// A request that was scheduled has one of these fates, and is counted once: `correct`, `wrong`, `errors`,
/// `not_sent`, or `backlog.never_sent`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was to be done.
    pub plan: Plan,
    /// `open loop`, or `closed loop (saturating)`, whose latency is not from a schedule.
    pub mode: &'static str,
    /// Requests that were due; of a closed loop those that ended.
    pub scheduled: u64,
    /// Answers of whatever status.
    pub answers: u64,
    /// Answers with status 200.
    pub correct: u64,
    /// What was answered and was not 200.
    pub wrong: Wrong,
    /// Requests that got no answer: reset, closed on, timed out.
    pub errors: u64,
    /// Requests left out because the generator itself was late.
    pub not_sent: u64,
    /// Correct of scheduled, in percent.
    pub success_percent: f64,
    /// Seconds from the first moment that counts to the last answer, or to the end of the schedule.
    pub elapsed_s: f64,
    /// Correct answers per second of that time: never what was offered.
    pub answers_per_s: f64,
    /// Bytes of all answers, heads included.
    pub bytes: u64,
    /// All that went wrong, by outcome, phase and errno, the most frequent first. A connection that could
    /// not be opened is a row too, and is no request.
    pub rows: Vec<ErrorRow>,
    /// Scheduled moment to the end of the answer, of correct answers; `None` in a closed loop.
    pub latency: Option<Summary>,
    /// Sending to the end of the answer, of correct answers: what a closed loop calls the latency.
    pub from_sent: Summary,
    /// How late the generator noticed that a request was due.
    pub lateness: Summary,
    /// How the connections fared beside each other.
    pub fairness: Fairness,
    /// What was due and not sent.
    pub backlog: Backlog,
    /// Connections opened, those opened again included.
    pub connects: u64,
    /// Connections opened again after the server had closed, reset or not answered.
    pub reconnects: u64,
    /// Requests sent once more: the server closed after an earlier answer of that connection.
    pub resent: u64,
    /// CPU time.
    pub cost: Cost,
    /// Whether the generator was the limit, so that the rate says little about the server.
    pub client_bound: bool,
    /// Why, in words.
    pub client_bound_because: Option<String>,
    /// Whether the run was ended before its time.
    pub interrupted: bool,
    /// What else the reader should know.
    pub warnings: Vec<String>,
    /// Nanoseconds of the monotonic clock at the first moment that counts.
    pub origin_ns: u64,
    /// Latencies in nanoseconds, from the schedule; in a closed loop from sending. Not part of the JSON.
    #[serde(skip)]
    pub histogram: Histogram<u64>,
    /// Every request that was answered, if the plan keeps records. Not part of the JSON.
    #[serde(skip)]
    pub records: Vec<Record>,
}

/// Answers that were not what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// How many answers had which status other than 200.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests whose answer was no HTTP, or of ambiguous length.
    pub malformed: u64,
    /// Connections on which bytes came that nobody had asked for. These are no requests.
    pub unasked: u64,
}

/// The least, the middle and the most of a number that each connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// Half of the connections have at most this.
    pub median: f64,
    /// The most.
    pub max: f64,
}

/// How the connections fared beside each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Fairness {
    /// Answers of a connection, until the end of the schedule.
    pub answers: Spread,
    /// The longest wait of a connection in milliseconds, counted as the latency is. A wait that had not
    /// ended with the run is in it, with what it had lasted.
    pub longest_wait_ms: Spread,
    /// Connections without any answer.
    pub starved: u64,
}

/// What was due and not sent, because its connection waited for earlier answers (or for the server to take
/// the connection). It is always empty in a closed loop. What the warm-up has left is in it, but for
/// `never_sent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Backlog {
    /// Requests, when half of the schedule was over.
    pub at_half: u64,
    /// Requests, at the end of the schedule.
    pub at_end: u64,
    /// The same of each connection.
    pub per_connection: Spread,
    /// Whether it grew: the server did not keep up with the schedule.
    pub grew: bool,
    /// Requests that were not sent either in the time after the schedule. Their latency, which is not among
    /// the latencies, is longer than that of all others.
    pub never_sent: u64,
}

/// CPU time of the part that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// CPU seconds of the engine's threads.
    pub own_cpu_s: f64,
    /// Of those, in the program itself; the rest is the kernel's.
    pub own_user_s: f64,
    /// CPU seconds of the engine's threads per million answers.
    pub own_cpu_s_per_million: Option<f64>,
    /// The most that one of the threads worked, 0 to 1.
    pub busiest_share: f64,
    /// CPU seconds of the server, if its process was named.
    pub server_cpu_s: Option<f64>,
    /// The same per million answers.
    pub server_cpu_s_per_million: Option<f64>,
}

/// One request that was answered. Moments are nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which connection, from 0.
    pub connection: u32,
    /// The status of the answer.
    pub status: u16,
    /// Bytes of the answer, head included.
    pub bytes: u64,
    /// The moment for which it was planned.
    pub scheduled_ns: u64,
    /// The moment before it was sent.
    pub sent_ns: u64,
    /// The moment after the last of its answer was read.
    pub answered_ns: u64,
}

impl Spread {
    /// Of one number of each connection.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_unstable_by(f64::total_cmp);
        match (values.first(), values.last()) {
            (Some(min), Some(max)) => {
                Spread { min: *min, median: values[(values.len() - 1) / 2], max: *max }
            }
            _ => Spread::default(),
        }
    }
}

const HURRIES: &str = "sched_setscheduler: the kernel refuses SCHED_BATCH (a container's filter?). On one core \
                       with the server this client interrupts it, and both cost more";

/// What a run leaves behind, before anything is made of it.
pub(crate) struct Measured {
    pub seen: Vec<Seen>,
    pub window_ns: u64,
    pub interrupted: bool,
    pub server_cpu_ns: Option<u64>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, measured: Measured) -> Report {
        let Measured { mut seen, window_ns, interrupted, server_cpu_ns } = measured;
        let saturate = plan.pace == Pace::Saturate;
        let records = seen.iter_mut().flat_map(|seen| std::mem::take(&mut seen.tally.records));
        let mut records: Vec<Record> = records.collect();
        records.sort_unstable_by_key(|record| record.scheduled_ns);
        let sum = |of: fn(&Tally) -> u64| seen.iter().map(|seen| of(&seen.tally)).sum::<u64>();
        let (answers, correct) = (sum(|tally| tally.answers), sum(|tally| tally.correct));
        let errors = sum(|tally| tally.errors);
        let wrong = wrong(&seen);
        let scheduled = match saturate {
            true => answers + errors + wrong.malformed,
            false => sum(|tally| tally.scheduled),
        };
        let histogram = merged(&seen, |tally| &tally.latency);
        let from_sent = match saturate {
            true => Summary::of_histogram(&histogram),
            false => Summary::of_histogram(&merged(&seen, |tally| &tally.from_sent)),
        };
        let lateness = Summary::of_histogram(&merged(&seen, |tally| &tally.lateness));
        let elapsed_s = elapsed_s(plan, &seen, window_ns, interrupted);
        let cost = Cost::of(&seen, server_cpu_ns, answers);
        let not_sent = sum(|tally| tally.not_sent);
        let because =
            why_client_bound(saturate, (not_sent, sum(|tally| tally.late)), &lateness, &cost);
        let mut report = Report {
            mode: if saturate { "closed loop (saturating)" } else { "open loop" },
            scheduled,
            answers,
            correct,
            errors,
            not_sent,
            success_percent: percent(correct, scheduled),
            elapsed_s,
            answers_per_s: if elapsed_s > 0.0 { correct as f64 / elapsed_s } else { 0.0 },
            bytes: sum(|tally| tally.bytes),
            rows: rows(&seen),
            latency: (!saturate).then(|| Summary::of_histogram(&histogram)),
            from_sent,
            lateness,
            fairness: Fairness::of(&seen),
            backlog: Backlog::of(&seen, sum(|tally| tally.scheduled)),
            connects: sum(|tally| tally.connects),
            reconnects: sum(|tally| tally.reconnects),
            resent: sum(|tally| tally.resent),
            cost,
            client_bound: because.is_some(),
            client_bound_because: because,
            interrupted,
            warnings: Vec::new(),
            origin_ns: window_ns,
            plan: plan.clone(),
            wrong,
            histogram,
            records,
        };
        report.warnings = warnings(&report, sum(|tally| tally.closed_first));
        if seen.iter().any(|seen| seen.hurries) {
            report.warnings.push(HURRIES.into());
        }
        report
    }
}

fn merged(seen: &[Seen], which: fn(&Tally) -> &Histogram<u64>) -> Histogram<u64> {
    let mut all = http_histogram();
    for seen in seen {
        all.add(which(&seen.tally)).expect("all histograms have the same bounds");
    }
    all
}

fn wrong(seen: &[Seen]) -> Wrong {
    let mut all = Wrong::default();
    for wrong in seen.iter().map(|seen| &seen.tally.wrong) {
        for (status, count) in &wrong.statuses {
            *all.statuses.entry(*status).or_default() += count;
        }
        all.malformed += wrong.malformed;
        all.unasked += wrong.unasked;
    }
    all
}

fn rows(seen: &[Seen]) -> Vec<ErrorRow> {
    let mut counts = BTreeMap::new();
    for (key, count) in seen.iter().flat_map(|seen| &seen.tally.rows) {
        *counts.entry(*key).or_default() += count;
    }
    rows_of(counts)
}

/// A schedule takes its planned time at least, and longer if its last answers came later.
fn elapsed_s(plan: &Plan, seen: &[Seen], window_ns: u64, interrupted: bool) -> f64 {
    let ended_ns = seen.iter().map(|seen| seen.end.wall_ns).max().unwrap_or(window_ns);
    let last_ns = seen.iter().map(|seen| seen.tally.last_answer_ns).max().unwrap_or(window_ns);
    let planned_ns = window_ns + plan.length.as_nanos() as u64;
    let end_ns = match (interrupted, plan.pace) {
        (true, _) | (_, Pace::Saturate) => ended_ns,
        _ => planned_ns.max(last_ns),
    };
    end_ns.saturating_sub(window_ns) as f64 / 1e9
}

/// The verdict on the generator itself.
fn why_client_bound(
    saturate: bool,
    (not_sent, late): (u64, u64),
    lateness: &Summary,
    cost: &Cost,
) -> Option<String> {
    let busy = cost.busiest_share >= BUSY_SHARE;
    let share = cost.busiest_share * 100.0;
    if not_sent > 0 {
        return Some(format!("{not_sent} × {}", Outcome::NotSent.words()));
    }
    if saturate && busy {
        return Some(format!(
            "its thread worked {share:.0} % of the time: the rate is what this generator can do, and only \
             the CPU time of an answer compares servers"
        ));
    }
    if late >= LATE_COUNT && late as f64 > LATE_SHARE * lateness.count as f64 {
        return Some(format!("{late} requests were noticed more than 25 ms late"));
    }
    (busy && lateness.p99_ms > BUSY_LATE_MS).then(|| {
        format!("its thread worked {share:.0} % of the time, late by {:.0} ms", lateness.p99_ms)
    })
}

fn warnings(report: &Report, closed_first: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    let (backlog, plan) = (&report.backlog, &report.plan);
    if backlog.grew {
        warnings.push(format!(
            "the backlog grew: {} requests were due and not sent at half of the schedule, {} at its end. \
             The server did not keep up: {:.0} answers per second, of {:.0} planned",
            backlog.at_half,
            backlog.at_end,
            report.answers_per_s,
            plan.qps().unwrap_or(0.0)
        ));
    }
    if backlog.never_sent > 0 {
        warnings.push(format!(
            "{} requests were never sent: their latency would be longer than any that is shown",
            backlog.never_sent
        ));
    }
    if report.connects == 0 {
        warnings.push(format!(
            "no connection could be opened: does a server listen on {}?",
            plan.target
        ));
    }
    if report.fairness.starved > 0 {
        warnings.push(format!("{} connections had no answer at all", report.fairness.starved));
    }
    if closed_first > 0 {
        warnings.push(format!(
            "{closed_first} connections were closed by this side first: each keeps a port for a minute"
        ));
    }
    if plan.server_pid.is_some() && report.cost.server_cpu_s.is_none() {
        warnings.push("the server's process was gone before its CPU time could be read".into());
    }
    warnings
}

impl Fairness {
    fn of(seen: &[Seen]) -> Fairness {
        let each = |of: fn(&Seen) -> &[u64]| -> Vec<u64> {
            seen.iter().flat_map(|seen| of(seen).iter().copied()).collect()
        };
        let answers = each(|seen| &seen.answers);
        let waits = each(|seen| &seen.longest_ns);
        Fairness {
            starved: answers.iter().filter(|count| **count == 0).count() as u64,
            answers: Spread::of(answers.into_iter().map(|count| count as f64).collect()),
            longest_wait_ms: Spread::of(waits.into_iter().map(|ns| ns as f64 / 1e6).collect()),
        }
    }
}

impl Backlog {
    fn of(seen: &[Seen], scheduled: u64) -> Backlog {
        let each: Vec<u64> = seen.iter().flat_map(|seen| seen.backlog.iter().copied()).collect();
        let at_half = seen.iter().map(|seen| seen.backlog_at_half).sum();
        let at_end: u64 = each.iter().sum();
        Backlog {
            at_half,
            at_end,
            per_connection: Spread::of(each.into_iter().map(|count| count as f64).collect()),
            grew: at_end > at_half && at_end as f64 > GREW_SHARE * scheduled as f64,
            never_sent: seen.iter().map(|seen| seen.never_sent).sum(),
        }
    }
}

impl Cost {
    fn of(seen: &[Seen], server_ns: Option<u64>, answers: u64) -> Cost {
        let used = |of: fn(&Used) -> u64| {
            let used = seen.iter().map(|seen| of(&seen.end).saturating_sub(of(&seen.begin)));
            used.sum::<u64>() as f64 / 1e9
        };
        let user_s = used(|used| used.user_ns);
        let cpu_s = user_s + used(|used| used.system_ns);
        let share = |seen: &Seen| {
            let cpu_ns = |used: &Used| (used.user_ns + used.system_ns) as f64;
            let wall_ns = seen.end.wall_ns.saturating_sub(seen.begin.wall_ns).max(1);
            (cpu_ns(&seen.end) - cpu_ns(&seen.begin)) / wall_ns as f64
        };
        let per_million = |seconds: f64| (answers > 0).then(|| seconds * 1e6 / answers as f64);
        let server_cpu_s = server_ns.map(|ns| ns as f64 / 1e9);
        Cost {
            own_cpu_s: cpu_s,
            own_user_s: user_s,
            own_cpu_s_per_million: per_million(cpu_s),
            busiest_share: seen.iter().map(share).fold(0.0, f64::max),
            server_cpu_s,
            server_cpu_s_per_million: server_cpu_s.and_then(per_million),
        }
    }
}
