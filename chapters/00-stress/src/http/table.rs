//! The report of a run over HTTP on a terminal, in plain text.

use super::report::{Report, Spread};
use crate::{
    latency::Summary,
    record::{Outcome, Phase},
    report::{ErrorRow, percent},
};
use std::fmt::Write;

/// The report as plain text, without colours, some 120 columns wide.
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_all(&mut text, report);
    text
}

fn write_all(text: &mut String, report: &Report) -> std::fmt::Result {
    requests(text, report)?;
    latencies(text, report)?;
    connections(text, report)?;
    conclusion(text, report)
}

fn requests(text: &mut String, report: &Report) -> std::fmt::Result {
    let share = |count| percent(count, report.scheduled);
    let plan = &report.plan;
    let at = match plan.qps() {
        Some(qps) => format!("{qps} requests per second"),
        None => "as fast as the answers come".to_owned(),
    };
    writeln!(
        text,
        "=== GET {}: {}, {at}; {} connections, pipeline {} (n={}) ===",
        plan.path, report.mode, plan.connections, plan.pipeline, report.scheduled
    )?;
    let wrong = report.wrong.statuses.values().sum::<u64>() + report.wrong.malformed;
    let counts = [
        ("Correct", report.correct),
        ("Wrong", wrong),
        ("Errors", report.errors + report.not_sent),
        ("Never sent", report.backlog.never_sent),
    ];
    for (label, count) in counts {
        writeln!(text, "  {label:<10}: {count:>10}  ({:>5.1}%)", share(count))?;
    }
    for (status, count) in &report.wrong.statuses {
        writeln!(
            text,
            "    {:<62} {count:>8}  ({:>5.1}%)",
            format!("status {status}"),
            share(*count)
        )?;
    }
    if report.wrong.unasked > 0 {
        writeln!(text, "    {:<62} {:>8}", "not asked for: a connection", report.wrong.unasked)?;
    }
    for row in &report.rows {
        let mut words = format!("{}, while {}", row.outcome.words(), row.phase.words());
        if !row.errno_name.is_empty() {
            let _ = write!(words, " ({})", row.errno_name);
        }
        // An attempt to connect is no request, and so no share of them.
        if is_a_request(row) {
            writeln!(text, "    {words:<62} {:>8}  ({:>5.1}%)", row.count, share(row.count))?;
        } else {
            writeln!(text, "    {words:<62} {:>8}", row.count)?;
        }
    }
    writeln!(text)
}

/// Whether the row counts requests, and not connections that could not be opened.
fn is_a_request(row: &ErrorRow) -> bool {
    match row.phase {
        Phase::Connect => false,
        Phase::Open => row.outcome == Outcome::NotSent,
        _ => true,
    }
}

fn latencies(text: &mut String, report: &Report) -> std::fmt::Result {
    let from = match report.latency {
        Some(_) => "from the scheduled moment",
        None => "from sending: in a closed loop nobody is on time, and no client's latency is seen",
    };
    writeln!(text, "=== Latency in ms, {from} ===")?;
    writeln!(
        text,
        "{:<40} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "count", "min", "mean", "p50", "p90", "p99", "p99.9", "max"
    )?;
    if let Some(latency) = &report.latency {
        latency_row(text, "total      scheduled to end, correct", latency)?;
    }
    latency_row(text, "from sent  (as a closed loop counts)", &report.from_sent)?;
    if report.latency.is_some() {
        latency_row(text, "late       scheduled to noticed", &report.lateness)?;
    }
    writeln!(text)
}

fn latency_row(text: &mut String, name: &str, summary: &Summary) -> std::fmt::Result {
    let Summary { count, min_ms, mean_ms, p50_ms, p90_ms, p99_ms, p999_ms, max_ms } = summary;
    writeln!(
        text,
        "{name:<40} {count:>9} {min_ms:>9.3} {mean_ms:>9.3} {p50_ms:>9.3} {p90_ms:>9.3} {p99_ms:>9.3} \
         {p999_ms:>9.3} {max_ms:>9.3}"
    )
}

fn connections(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(text, "=== Connections beside each other ===")?;
    writeln!(text, "{:<40} {:>12} {:>12} {:>12}", "", "min", "median", "max")?;
    let mut row = |name: &str, spread: &Spread, digits: usize| {
        let Spread { min, median, max } = spread;
        writeln!(text, "{name:<40} {min:>12.digits$} {median:>12.digits$} {max:>12.digits$}")
    };
    row("answers", &report.fairness.answers, 0)?;
    row("longest wait, ms", &report.fairness.longest_wait_ms, 3)?;
    if report.latency.is_some() {
        row("backlog at the end of the schedule", &report.backlog.per_connection, 0)?;
    }
    writeln!(
        text,
        "  {} opened, {} of them again; {} requests sent once more after the server had closed\n",
        report.connects, report.reconnects, report.resent
    )
}

fn conclusion(text: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(
        text,
        "Throughput: {:.1} correct answers per second, over {:.3} s",
        report.answers_per_s, report.elapsed_s
    )?;
    let cost = &report.cost;
    let per = |cost: Option<f64>| match cost {
        Some(seconds) => format!("{seconds:.3} s per million answers"),
        None => "–".into(),
    };
    writeln!(
        text,
        "CPU:        {:.3} s here, {} (busiest thread {:.0} %)",
        cost.own_cpu_s,
        per(cost.own_cpu_s_per_million),
        cost.busiest_share * 100.0
    )?;
    if let Some(server) = cost.server_cpu_s {
        let each = per(cost.server_cpu_s_per_million);
        writeln!(text, "            {server:.3} s in the server, {each}")?;
    }
    if let Some(because) = &report.client_bound_because {
        writeln!(text, "CLIENT-BOUND: {because}")?;
    }
    for warning in &report.warnings {
        writeln!(text, "Warning: {warning}")?;
    }
    if report.interrupted {
        writeln!(text, "Interrupted: this is what there was until then.")?;
    }
    Ok(())
}
