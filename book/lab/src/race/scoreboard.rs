//! The scoreboard: what came of the race, to be read on a terminal.

use crate::{
    experiment::Scale,
    race::{KINDS, STALL_SHARE, stalled::Demonstration},
    records::Record,
    servers::short,
};
use contract::verdicts::Column;
use std::fmt::Write;
use stress::StallKind;

/// Across a link that loses packets, a step is climbed if so many of a hundred are answered.
pub const CLIMBED_PERCENT: f64 = 99.0;

/// One staircase of one server, added up.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// Requests that were due.
    pub scheduled: u64,
    /// Answered right.
    pub correct: u64,
    /// The highest rate at which everybody was answered right, at all lower ones too.
    pub sustained_qps: Option<f64>,
    /// The same with at least [`CLIMBED_PERCENT`] answered right: where the air loses packets, now and then
    /// a client is lost with them at any rate.
    pub climbed_qps: Option<f64>,
    /// The first rate at which at most half were answered right.
    pub knee_qps: Option<f64>,
    /// The first rate at which anybody was not answered right, unless that may be the load generator's
    /// fault.
    pub first_failure_qps: Option<f64>,
    /// The row of the first step.
    pub first: Record,
    /// The row of the knee; without one, of the last step.
    pub knee: Record,
    /// Whether the load generator was the limit in any step.
    pub client_bound: bool,
    /// How many steps were completed.
    pub steps: usize,
}

impl Tally {
    /// Adds up the staircase of `server` with `stall` clients. `None` if it has no row.
    pub fn of(records: &[Record], server: &str, stall: &str) -> Option<Tally> {
        let mine = |record: &&Record| {
            record.experiment != "race-stalled-client"
                && record.server == server
                && record.stall == stall
        };
        let mut rows: Vec<&Record> = records.iter().filter(mine).collect();
        rows.sort_by(|one, other| one.target_qps.total_cmp(&other.target_qps));
        let good = rows.iter().take_while(|row| row.correct == row.scheduled);
        let climbed = rows.iter().take_while(|row| row.success_percent() >= CLIMBED_PERCENT);
        let fallen = rows.iter().find(|row| 2 * row.correct <= row.scheduled);
        let failed = rows.iter().find(|row| {
            // A late generator loses a few; it does not explain more than one in ten.
            row.correct < row.scheduled
                && (!row.client_bound || 10 * row.correct < 9 * row.scheduled)
        });
        Some(Tally {
            scheduled: rows.iter().map(|row| row.scheduled).sum(),
            correct: rows.iter().map(|row| row.correct).sum(),
            sustained_qps: good.last().map(|row| row.target_qps),
            climbed_qps: climbed.last().map(|row| row.target_qps),
            knee_qps: fallen.map(|row| row.target_qps),
            first_failure_qps: failed.map(|row| row.target_qps),
            first: (*rows.first()?).clone(),
            knee: (*fallen.or(rows.last())?).clone(),
            client_bound: rows.iter().any(|row| row.client_bound),
            steps: rows.len(),
        })
    }

    /// Answered right of what was scheduled.
    pub fn percent(&self) -> f64 {
        100.0 * self.correct as f64 / self.scheduled.max(1) as f64
    }
}

/// The scoreboard as text.
pub fn scoreboard(
    servers: &[Column],
    records: &[Record],
    demonstrations: &[Demonstration],
    scale: &Scale,
) -> String {
    let mut text = stalled_table(servers, demonstrations);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\nTHE STAIRCASE: {}", scale.words());
    let (mut bound, mut early) = (false, false);
    for kind in KINDS {
        let tallies: Vec<(Column, Option<Tally>)> =
            servers.iter().map(|it| (*it, Tally::of(records, it.name, kind.name()))).collect();
        for tally in tallies.iter().filter_map(|(_, tally)| tally.as_ref()) {
            bound |= tally.client_bound;
            early |= tally.steps < scale.rates.len();
        }
        text += "\n";
        text += &table(kind, &tallies, scale);
    }
    text += "\n";
    text += DEFINITIONS;
    if bound {
        text += BOUND;
    }
    if early {
        text += EARLY;
    }
    text
}

fn stalled_table(servers: &[Column], demonstrations: &[Demonstration]) -> String {
    let mut text = format!(
        "{:<16} {:<29} {:<32} {}\n",
        "WHO STALLED WHOM",
        "the next client waited",
        "meanwhile the server slept in",
        "in the queue"
    );
    for server in servers {
        let _ = writeln!(text, "{}  {}", short(server.name), server.about);
        for seen in demonstrations.iter().filter(|it| it.server == server.name) {
            let _ = writeln!(
                text,
                "  {:<14} {:<29} {:<32} {}",
                kind_words(seen.kind),
                seen.waited_briefly(),
                seen.meanwhile.asleep,
                seen.meanwhile.queue.map_or_else(|| "unseen".into(), |length| length.to_string()),
            );
        }
    }
    text
}

/// What the words of the table mean.
const DEFINITIONS: &str = "\
sustained  the highest step with 100 % answered right, and all steps below it too
knee       the first step with at most 50 % answered right
answered   of what was scheduled: who was never sent, or gave up, is not answered
p50 / p99  of those answered, counted from the moment for which a request was scheduled
";

const BOUND: &str = "\
*          the load generator was late in some step (is the machine busy?): latencies of some
           milliseconds and losses of a few percent are not the server's
";

const EARLY: &str = "\
†          ended early: only the steps that were completed are counted
";

fn table(kind: StallKind, tallies: &[(Column, Option<Tally>)], scale: &Scale) -> String {
    let who = match kind {
        StallKind::Silent => "connect and say nothing",
        StallKind::HalfLine => "say half a line and stop",
        StallKind::Drip => "drip",
        StallKind::Deaf => "never read the answer",
    };
    let (lowest, highest) = ends(scale);
    let mut text = format!("{} % of the clients {who}\n", STALL_SHARE * 100.0);
    let width = tallies.iter().map(|(it, _)| short(it.name).len()).max().unwrap_or(0).max(6);
    let _ = writeln!(
        text,
        "  {:<width$}  {:>9} {:>7} {:>16}   {:<19}   {}",
        "server",
        "sustained",
        "knee",
        "answered",
        format!("p50 / p99 at {lowest}/s"),
        format_args!("at the knee, else at {highest}/s"),
    );
    for (server, tally) in tallies {
        let name = short(server.name);
        let Some(tally) = tally else {
            let _ = writeln!(text, "  {name:<width$}  not measured");
            continue;
        };
        let rate = |qps: Option<f64>| qps.map_or_else(|| "none".into(), |qps| format!("{qps}/s"));
        let row = format!(
            "  {name:<width$}  {:>9} {:>7} {:>8} {:>5.1} %   {:<19}   {}{}",
            rate(tally.sustained_qps),
            rate(tally.knee_qps),
            thousands(tally.correct),
            tally.percent(),
            latencies(&tally.first),
            latencies(&tally.knee),
            match (tally.client_bound, tally.steps < scale.rates.len()) {
                (true, true) => " * †",
                (true, false) => " *",
                (false, true) => " †",
                (false, false) => "",
            },
        );
        let _ = writeln!(text, "{row}");
    }
    let scheduled = tallies.iter().filter_map(|(_, it)| it.as_ref()).map(|it| it.scheduled).max();
    let _ = writeln!(text, "  of {} scheduled", thousands(scheduled.unwrap_or(0)));
    text
}

/// Which server failed first, for the reader who made a guess.
pub fn answer(servers: &[Column], records: &[Record], demonstrations: &[Demonstration]) -> String {
    if !records.iter().any(|it| it.experiment == "race-staircase") {
        return "the staircase was not measured".into();
    }
    let worst = |server: &Column| {
        let tallies = KINDS.into_iter().filter_map(|kind| {
            let tally = Tally::of(records, server.name, kind.name())?;
            Some((tally.first_failure_qps?, tally.percent(), kind))
        });
        let (qps, percent, kind) = tallies
            .min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)))?;
        Some((*server, qps, percent, kind))
    };
    let fallen = servers.iter().filter_map(worst);
    let first =
        fallen.min_by(|one, other| one.1.total_cmp(&other.1).then(one.2.total_cmp(&other.2)));
    let Some((server, qps, percent, kind)) = first else {
        return "no server failed anybody in the steps that were measured".into();
    };
    let mut sentence = format!(
        "{} ({}) failed first: at {qps}/s with {kind} clients, and answered {percent:.1} % in all",
        short(server.name),
        server.about
    );
    let seen = demonstrations.iter().find(|it| it.server == server.name && it.kind == kind);
    if let Some(seen) = seen.filter(|it| !it.meanwhile.asleep.is_empty()) {
        sentence += &format!(". With one such client, it slept in {}", seen.meanwhile.asleep);
    }
    sentence
}

/// The lowest and the highest rate.
fn ends(scale: &Scale) -> (f64, f64) {
    let rates = scale.rates.iter().copied();
    (rates.clone().fold(f64::INFINITY, f64::min), rates.fold(0.0, f64::max))
}

fn kind_words(kind: StallKind) -> &'static str {
    match kind {
        StallKind::HalfLine => "half a line",
        StallKind::Silent => "silent",
        StallKind::Drip => "drip",
        StallKind::Deaf => "deaf",
    }
}

fn latencies(record: &Record) -> String {
    match (record.p50_ms, record.p99_ms) {
        (Some(p50), Some(p99)) => format!("{} / {}", ms(p50), ms(p99)),
        _ => "nobody answered".into(),
    }
}

/// A latency with two digits or more: `0.25 ms`, `43 ms`, `4.4 s`.
pub fn ms(ms: f64) -> String {
    match ms {
        ..9.995 => format!("{ms:.2} ms"),
        ..999.5 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1e3),
    }
}

/// `3,300` for 3300.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
