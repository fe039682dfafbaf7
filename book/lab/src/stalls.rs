//! Stalled clients of each kind, few of them and more, on loopback: who is answered, and how late.

use crate::{
    drive::{self, Crowd, Job, Run},
    experiment::{Bench, Experiment, Form, Outcome, Scale},
    pool::{self, Task},
    race::scoreboard::ms,
    records::{Record, Table},
    servers::{named, short},
};
use anyhow::Result;
use contract::verdicts::Column;
use std::{fmt::Write, time::Duration};
use stress::StallKind;

/// The chapters, and those beside them that differ in what a stalled client does to them.
const SERVERS: [&str; 9] = [
    "ch01",
    "ch02",
    "ch02-backlog-only",
    "ch02-patience-only",
    "ch03",
    "ch03-one-recv",
    "ch04",
    "ch05",
    "ch06",
];

/// Stalled clients that come with 100 requests.
const PERCENTS: [f64; 3] = [0.25, 1.0, 2.0];

/// So many runs at once: each makes little load.
const AT_ONCE: usize = 12;

/// `cargo lab stalls`
pub struct Stalls;

impl Experiment for Stalls {
    fn name(&self) -> &'static str {
        "stalls"
    }

    fn question(&self) -> &'static str {
        "How many stalled clients, and which kind, does it take until others go without an answer?"
    }

    fn prediction(&self) -> &'static str {
        "01 stops at the first; 02 keeps up while rate × share × 2 s is below 1; 04 to 06 answer everybody."
    }

    fn servers(&self) -> Vec<Column> {
        named(&SERVERS)
    }

    fn about(&self, scale: &Scale, servers: usize) -> Duration {
        let runs = servers * StallKind::ALL.len() * percents(scale).len() * repeats(scale) as usize;
        crowd(scale, "silent", 1.0).length() * runs.div_ceil(AT_ONCE) as u32
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let tasks = tasks(bench);
        let each = tasks.iter().map(|it| it.job.crowd.descriptors()).max().unwrap_or(1);
        let at_once = bench.machine.runs_at_once(AT_ONCE, each).max(1);
        let done = pool::all(
            bench,
            &tasks,
            at_once,
            |job| {
                let run = drive::on_quiet_loopback(job, bench)?;
                bench.screen.say(&format!("  {} %: {}", job.crowd.stall_percent, run.sentence()));
                Ok(run)
            },
            Run::is_whole,
        );
        let mut outcome = Outcome::default();
        let records = drive::gather(done, &mut outcome);
        outcome.scoreboard = board(&records);
        outcome.table = Table::of(&records)?;
        Ok(outcome)
    }
}

fn percents(scale: &Scale) -> &'static [f64] {
    if scale.form == Form::Smoke { &PERCENTS[2..] } else { &PERCENTS }
}

fn repeats(scale: &Scale) -> u64 {
    if scale.form == Form::Smoke { 1 } else { 3 }
}

/// One rate, long enough for the smallest share to bring two; and patience of more than twice the server's.
fn crowd(scale: &Scale, stall: &str, percent: f64) -> Crowd {
    let (rate, hold_s, timeout_s) =
        if scale.form == Form::Smoke { (60.0, 3.0, 2.5) } else { (120.0, 8.0, 4.5) };
    Crowd {
        rates: vec![rate],
        hold: Duration::from_secs_f64(hold_s),
        timeout: Duration::from_secs_f64(timeout_s),
        stall: stall.into(),
        stall_percent: percent,
        poisson: None,
        kept: None,
    }
}

fn tasks<'a>(bench: &Bench<'a>) -> Vec<Task<Job<'a>>> {
    let mut tasks = Vec::new();
    for seed in 1..=repeats(bench.scale) {
        for kind in StallKind::ALL {
            for &percent in percents(bench.scale) {
                tasks.extend(bench.servers.iter().map(|server| {
                    let job = Job {
                        server,
                        experiment: "stalls",
                        link: "loopback".into(),
                        seed: Some(seed),
                        first_step: 1,
                        crowd: crowd(bench.scale, kind.name(), percent),
                    };
                    Task { part: format!("{} {percent} %", job.label()), job }
                }));
            }
        }
    }
    tasks
}

/// A table for each kind: the share answered and the latency, for each share of stalled clients.
fn board(records: &[Record]) -> String {
    let mut text = String::new();
    let unique = |column: fn(&Record) -> String| {
        let mut values: Vec<String> = Vec::new();
        for value in records.iter().map(column) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    };
    let percents = unique(|it| it.stall_percent.to_string());
    let servers = unique(|it| it.server.clone());
    for stall in unique(|it| it.stall.clone()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:<18}", stall.to_uppercase());
        for percent in &percents {
            let _ = write!(text, "{:>28}", format!("{percent} % of the clients stall"));
        }
        text.push('\n');
        for server in &servers {
            let _ = write!(text, "  {:<16}", short(server));
            for percent in &percents {
                let repeats: Vec<&Record> = records
                    .iter()
                    .filter(|it| {
                        it.server == *server
                            && it.stall == stall
                            && it.stall_percent.to_string() == *percent
                    })
                    .collect();
                let _ = write!(text, "{:>28}", cell(&repeats));
            }
            text.push('\n');
        }
        text.push('\n');
    }
    if !text.is_empty() {
        text += "answered of what was scheduled, and p50 / p99 of those answered; of the repeats the worst\n";
    }
    text
}

/// Of the repeats the one that answered the fewest.
fn cell(repeats: &[&Record]) -> String {
    let Some(worst) = repeats.iter().min_by_key(|it| it.correct) else { return "–".into() };
    match (worst.p50_ms, worst.p99_ms) {
        (Some(p50), Some(p99)) => {
            format!("{:.1} %  {} / {}", worst.success_percent(), ms(p50), ms(p99))
        }
        _ => "0.0 %  nobody".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_clients_outlast_the_patience_of_the_others() {
        for scale in [Scale::short(), Scale::smoke()] {
            let crowd = crowd(&scale, "silent", 2.0);
            let plan = crowd.plan("127.0.0.1:1".parse().unwrap()).unwrap();
            assert!(plan.stall_hold > crowd.timeout, "{plan:?}");
            assert!(crowd.timeout > Duration::from_secs(2), "longer than the patience of 02");
        }
    }

    #[test]
    fn the_board_shows_success_and_latency() {
        let row = |server: &str, percent, correct, p50_ms| Record {
            server: server.into(),
            stall: "silent".into(),
            stall_percent: percent,
            scheduled: 100,
            correct,
            p50_ms,
            p99_ms: p50_ms,
            ..Record::default()
        };
        let rows = [
            row("ch01", 0.25, 0, None),
            row("ch04", 0.25, 100, Some(0.21)),
            row("ch04", 1.0, 99, Some(4_400.0)),
            row("ch04", 1.0, 100, Some(0.2)),
        ];
        insta::assert_snapshot!(board(&rows));
    }
}
