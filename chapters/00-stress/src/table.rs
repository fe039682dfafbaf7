//! The report on a terminal, in plain text.

use crate::{
    latency::Summary,
    plan::{Arrivals, Load},
    record::Outcome,
    report::{Report, StallReport, Totals, percent},
};
use std::fmt::Write;

/// What the two words mean. Printed with every result.
const DEFINITIONS: &str = concat!(
    "  sustained = the highest step with 100 % correct, all steps below it too\n",
    "  knee      = the first step at or below 50 % correct\n",
    "  Percentages are of what was scheduled; latencies count from the scheduled moment.\n",
);

/// The report as a table of plain text, without colours, some 120 columns wide.
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_all(&mut text, report);
    text
}

fn write_all(text: &mut String, report: &Report) -> std::fmt::Result {
    for step in report.steps.iter().filter(|step| step.phase == "warmup") {
        phase(text, "Warm-up", &step.totals)?;
    }
    let staircase = matches!(report.plan.load, Load::Staircase { .. });
    phase(text, if staircase { "All steps" } else { "Steady phase" }, &report.totals)?;
    latencies(text, &report.totals)?;
    steps(text, report)?;
    stalled(text, report)?;
    conclusion(text, report)
}

fn phase(text: &mut String, name: &str, totals: &Totals) -> std::fmt::Result {
    let share = |count| percent(count, totals.scheduled);
    writeln!(text, "=== {name} (n={}) ===", totals.scheduled)?;
    for (label, count) in
        [("Correct", totals.correct), ("Wrong", totals.wrong), ("Errors", totals.errors)]
    {
        writeln!(text, "  {label:<8}: {count:>8}  ({:>5.1}%)", share(count))?;
    }
    for row in &totals.rows {
        let mut words = format!("{}, while {}", row.outcome.words(), row.phase.words());
        if matches!(row.outcome, Outcome::Wrong | Outcome::AnsweredThenReset | Outcome::NotSent) {
            words = row.outcome.words().to_owned();
        }
        if !row.errno_name.is_empty() {
            let _ = write!(words, " ({})", row.errno_name);
        }
        writeln!(text, "    {words:<62} {:>8}  ({:>5.1}%)", row.count, share(row.count))?;
    }
    writeln!(text)
}

fn latencies(text: &mut String, totals: &Totals) -> std::fmt::Result {
    let latency = &totals.latency;
    writeln!(text, "=== Latency in ms, from the scheduled moment ===")?;
    writeln!(
        text,
        "{:<40} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "count", "min", "mean", "p50", "p90", "p99", "p99.9", "max"
    )?;
    let rows = [
        ("queue       scheduled to start", &latency.queue),
        ("connect     scheduled to connected", &latency.connect),
        ("first byte  scheduled to first byte", &latency.first_byte),
        ("total       scheduled to end, correct", &latency.total),
        ("any end     scheduled to end, all sent", &latency.any_end),
        ("from start  (as a closed loop counts)", &latency.from_start),
    ];
    for (name, summary) in rows {
        let Summary { count, min_ms, mean_ms, p50_ms, p90_ms, p99_ms, p999_ms, max_ms } = summary;
        writeln!(
            text,
            "{name:<40} {count:>7} {min_ms:>9.3} {mean_ms:>9.3} {p50_ms:>9.3} {p90_ms:>9.3} \
             {p99_ms:>9.3} {p999_ms:>9.3} {max_ms:>9.3}"
        )?;
    }
    writeln!(text)
}

fn steps(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "=== Steps ===")?;
    writeln!(
        text,
        "{:>9} {:>9} {:>9} {:>8} {:>7} {:>10} {:>10} {:>8} {:>9} {:>9}",
        "req/s",
        "issued/s",
        "scheduled",
        "correct",
        "%",
        "p50 ms",
        "p99 ms",
        "at once",
        "late p99",
        "CPU"
    )?;
    for step in &report.steps {
        let totals = &step.totals;
        let ramp = if step.phase == "warmup" { "0→" } else { "" };
        let mark = if step.client_bound { "  CLIENT-BOUND" } else { "" };
        writeln!(
            text,
            "{:>9} {:>9.1} {:>9} {:>8} {:>7.1} {:>10} {:>10} {:>8} {:>9.3} {:>8.0}%{mark}",
            format!("{ramp}{}", step.target_qps),
            totals.achieved_qps,
            totals.scheduled,
            totals.correct,
            totals.success_percent,
            dash(&totals.latency.total, |summary| summary.p50_ms),
            dash(&totals.latency.total, |summary| summary.p99_ms),
            step.concurrency_max,
            totals.lateness.p99_ms,
            step.cpu_share * 100.0,
        )?;
    }
    writeln!(text)
}

fn dash(summary: &Summary, value: fn(&Summary) -> f64) -> String {
    if summary.count == 0 { "–".into() } else { format!("{:.1}", value(summary)) }
}

fn stalled(text: &mut String, report: &Report) -> std::fmt::Result {
    if report.stalled.is_empty() {
        return Ok(());
    }
    writeln!(text, "=== Stalled clients (counted apart) ===")?;
    for stalled in &report.stalled {
        let StallReport { kind, share, tried, opened, let_go_after, .. } = stalled;
        writeln!(text, "  {kind}, {:.2} %: {tried} came, {opened} were connected", share * 100.0)?;
        let ends = [
            (stalled.not_connected, "had no connection"),
            (stalled.never_accepted, "still waited for a connection"),
            (stalled.let_go, "were let go by the server"),
            (stalled.reset, "were reset by the server"),
            (stalled.hung_up, "went by themselves after their hold time"),
            (stalled.held, "were still held at the end"),
            (stalled.answered, "were sent an answer"),
        ];
        for (count, words) in ends.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(text, "    {count:>6} {words}")?;
        }
        if let_go_after.count > 0 {
            writeln!(
                text,
                "           the server let go after {:.1} s (min {:.1}, max {:.1})",
                let_go_after.p50_ms / 1e3,
                let_go_after.min_ms / 1e3,
                let_go_after.max_ms / 1e3
            )?;
        }
    }
    writeln!(text)
}

fn conclusion(text: &mut String, report: &Report) -> std::fmt::Result {
    let rate = |rate: Option<f64>, none: &str| match rate {
        Some(qps) => format!("{qps} requests per second"),
        None => none.to_owned(),
    };
    writeln!(text, "Sustained: {}", rate(report.sustained_qps, "none of the steps"))?;
    writeln!(text, "Knee:      {}", rate(report.knee_qps, "not reached"))?;
    text.push_str(DEFINITIONS);
    let totals = &report.totals;
    writeln!(
        text,
        "Answered:  {} of {} scheduled ({:.1} %)",
        totals.correct, totals.scheduled, totals.success_percent
    )?;
    let arrivals = match report.plan.arrivals {
        Arrivals::Uniform => "uniform".to_owned(),
        Arrivals::Poisson => format!("Poisson (seed {})", report.plan.seed),
    };
    writeln!(
        text,
        "Achieved issue rate: {:.1} requests per second, {arrivals} arrivals",
        totals.achieved_qps
    )?;
    let cost = &report.cost;
    let mut line = format!("CPU seconds per 100,000 requests: {:.2} here", cost.own_cpu_s_per_100k);
    match cost.server_cpu_s_per_100k {
        Some(server) => line += &format!(", {server:.2} in the server"),
        None => line += " (the server's: --server-pid)",
    }
    writeln!(text, "{line}")?;
    for warning in &report.warnings {
        writeln!(text, "Note: {warning}.")?;
    }
    if report.interrupted {
        writeln!(text, "Interrupted: this is what there was until then.")?;
    }
    verdict(text, report)
}

fn verdict(text: &mut String, report: &Report) -> std::fmt::Result {
    if !report.client_bound {
        return Ok(());
    }
    writeln!(text, "\nCLIENT-BOUND: this generator was the limit, not the server, in")?;
    for step in report.steps.iter() {
        if let Some(because) = &step.client_bound_because {
            writeln!(text, "  the {} step of {}/s: {because}", step.phase, step.target_qps)?;
        }
    }
    writeln!(
        text,
        "  Its rows say little about the server. Take a lower rate, more --threads, or a quieter machine."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{Mark, Seen},
        plan::{Plan, Stall, StallKind},
        record::{NEVER, Phase, Record, StallEnd, StallRecord},
        report::Measured,
    };
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    /// Two steps of ten and of four requests; the first is all right, and the second is not.
    fn report() -> Report {
        let target = "127.0.0.1:8080".parse().unwrap();
        let plan = Plan::steps(target, vec![10.0, 4.0], Duration::from_secs(1))
            .with_stall(Stall { share: 0.1, kind: StallKind::HalfLine });
        let mut records: Vec<Record> = (1..=10).map(|id| good(id, 0)).collect();
        let failed = |id, outcome, phase, errno| Record { outcome, phase, errno, ..good(id, 1) };
        records.push(good(11, 1));
        records.push(failed(12, Outcome::Refused, Phase::Connect, 111));
        records.push(failed(13, Outcome::TimedOutWaiting, Phase::FirstByte, 0));
        let late = failed(14, Outcome::NotSent, Phase::Open, 0);
        records.push(Record {
            started_ns: NEVER,
            connected_ns: NEVER,
            first_byte_ns: NEVER,
            ..late
        });
        let stalled = StallRecord {
            stall: 0,
            step: 0,
            started_ns: 900 * MS,
            connected_ns: 901 * MS,
            ended_ns: 2901 * MS,
            end: StallEnd::Closed,
            bytes: 0,
        };
        let mark = |step, ms: u64| Mark { step, wall_ns: ms * MS, cpu_ns: ms * MS / 10 };
        let marks = vec![mark(0, 0), mark(1, 1000), mark(u16::MAX, 2000)];
        let seen = vec![Seen { records, stalled: vec![stalled], marks }];
        let measured = Measured {
            seen,
            origin_ns: 0,
            interrupted: false,
            server_cpu_ns: Some(7 * MS),
            warnings: Vec::new(),
        };
        Report::new(&plan, measured)
    }

    fn good(id: u32, step: u16) -> Record {
        let scheduled_ns = u64::from(id - 1) * 100 * MS;
        Record {
            id,
            step,
            outcome: Outcome::Correct,
            phase: Phase::Done,
            errno: 0,
            scheduled_ns,
            noticed_ns: scheduled_ns,
            started_ns: scheduled_ns + MS,
            connected_ns: scheduled_ns + 2 * MS,
            first_byte_ns: scheduled_ns + 50 * MS,
            closed_ns: scheduled_ns + 150 * MS,
            bytes: 4,
            closed_first: false,
        }
    }

    #[test]
    fn the_table_says_all_of_it() {
        insta::assert_snapshot!(table(&report()));
    }

    #[test]
    fn sustained_and_knee_go_by_rate_and_not_by_time() {
        // The step of 4 per second came last and failed: nothing above it counts as sustained.
        let report = report();
        assert_eq!(report.sustained_qps, None);
        assert_eq!(report.knee_qps, Some(4.0));
        assert!(
            report.client_bound && report.steps[1].client_bound && !report.steps[0].client_bound
        );
    }

    #[test]
    fn requests_that_overlap_are_under_way_at_once() {
        // Each takes 149 ms, and one comes each 100 ms.
        assert_eq!(report().steps[0].concurrency_max, 2);
        let mean = report().steps[0].concurrency_mean;
        assert!((1.3..1.5).contains(&mean), "{mean}");
    }
}
