//! 02's queue: each silent client costs it its whole patience, and whoever stands behind waits.
//!
//! The prediction is made before the run, by two formulas. The simple one: the load is ρ = rate × share of
//! silent clients × patience, and above 1 the delay grows by ρ − 1 seconds each second. The exact one goes
//! through the queue client by client ([`waits`]), with answers that take no time.

use crate::{
    drive::{self, Crowd, Job, Run},
    experiment::{Bench, Experiment, Form, Outcome, Scale},
    pool::{self, Task},
    race::scoreboard::ms,
    records::{Record, Table, round},
    servers::named,
};
use anyhow::Result;
use contract::verdicts::Column;
use serde::{Deserialize, Serialize};
use std::{fmt::Write, time::Duration};

/// The server whose queue it is.
const SERVER: &str = "ch02";

/// How long 02 waits for a client that says nothing.
const PATIENCE_S: f64 = 2.0;

/// Silent clients that come with 100 requests.
const PERCENT: f64 = 1.0;

/// Loads from a fifth to twice what the server can bear.
const RATES: [f64; 7] = [10.0, 25.0, 40.0, 50.0, 60.0, 75.0, 100.0];
const RATES_SMOKE: [f64; 2] = [50.0, 100.0];

/// `cargo lab patience`
pub struct Patience;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `patience`
    pub experiment: String,
    /// The binary.
    pub server: String,
    /// `loopback`
    pub link: String,
    /// `silent`
    pub stall: String,
    /// Silent clients that come with 100 requests.
    pub stall_percent: f64,
    /// Which of the equal runs, from 1.
    pub seed: u64,
    /// Which rate, from 1.
    pub step: u32,
    /// Requests per second that were planned.
    pub target_qps: f64,
    /// The patience of the server with a silent client.
    pub patience_s: f64,
    /// The load: rate × share × patience.
    pub rho: f64,
    /// The length of the run.
    pub hold_s: f64,
    /// Requests that were due.
    pub scheduled: u64,
    /// Of those, answered right.
    pub correct: u64,
    /// Half of those answered took at most this.
    pub p50_ms: Option<f64>,
    /// 90 of 100.
    pub p90_ms: Option<f64>,
    /// All.
    pub max_ms: Option<f64>,
    /// The median, as the queue predicts it.
    pub predicted_p50_ms: f64,
    /// The longest wait, as the queue predicts it.
    pub predicted_max_ms: f64,
    /// By how much the delay grows each second, as the load alone predicts it.
    pub predicted_growth_ms_per_s: f64,
    /// Whether the load generator was late.
    pub client_bound: bool,
}

impl Experiment for Patience {
    fn name(&self) -> &'static str {
        "patience"
    }

    fn question(&self) -> &'static str {
        "How late are the answers of 02 when one client in a hundred is silent for its whole patience?"
    }

    fn prediction(&self) -> &'static str {
        "With ρ = rate × share × 2 s: below 1 nobody waits over 2 s; above, the delay grows by ρ − 1 s a second."
    }

    fn servers(&self) -> Vec<Column> {
        named(&[SERVER])
    }

    fn about(&self, scale: &Scale, _: usize) -> Duration {
        // The last are answered when the queue has drained, which is as long again at the highest rate.
        crowd(scale, 1.0).hold * 2 * repeats(scale) as u32
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let mut tasks = Vec::new();
        for seed in 1..=repeats(bench.scale) {
            for (index, &rate) in rates(bench.scale).iter().enumerate() {
                for server in bench.servers {
                    let job = Job {
                        server,
                        experiment: "patience",
                        link: "loopback".into(),
                        seed: Some(seed),
                        first_step: 1 + index as u32,
                        crowd: crowd(bench.scale, rate),
                    };
                    tasks.push(Task { part: format!("{rate}/s #{seed}"), job });
                }
            }
        }
        let at_once = rates(bench.scale).len();
        let done = pool::all(
            bench,
            &tasks,
            at_once,
            |job| {
                let run = drive::on_quiet_loopback(job, bench)?;
                bench.screen.say(&format!("  {}/s: {}", job.crowd.rates[0], run.sentence()));
                Ok(run)
            },
            Run::is_whole,
        );
        let mut outcome = Outcome::default();
        let rows: Vec<Row> =
            drive::gather(done, &mut outcome).iter().map(|it| row(it, bench.scale)).collect();
        outcome.scoreboard = board(&rows);
        outcome.table = Table::of(&rows)?;
        Ok(outcome)
    }
}

fn rates(scale: &Scale) -> &'static [f64] {
    if scale.form == Form::Smoke { &RATES_SMOKE } else { &RATES }
}

fn repeats(scale: &Scale) -> u64 {
    if scale.form == Form::Smoke { 1 } else { 3 }
}

/// The clients that ask have more patience than the queue ever demands: all of them are answered.
fn crowd(scale: &Scale, rate: f64) -> Crowd {
    Crowd {
        rates: vec![rate],
        hold: Duration::from_secs(if scale.form == Form::Smoke { 4 } else { 12 }),
        timeout: Duration::from_secs(25),
        stall: "silent".into(),
        stall_percent: PERCENT,
        poisson: None,
        kept: None,
    }
}

fn row(record: &Record, scale: &Scale) -> Row {
    let rho = record.target_qps * PERCENT / 100.0 * PATIENCE_S;
    let mut waits = waits(record.target_qps, crowd(scale, record.target_qps).hold.as_secs_f64());
    waits.sort_by(f64::total_cmp);
    let predicted = |share: f64| {
        let at = (share * waits.len() as f64).ceil() as usize;
        round(1e3 * waits.get(at.saturating_sub(1)).copied().unwrap_or(0.0))
    };
    Row {
        experiment: record.experiment.clone(),
        server: record.server.clone(),
        link: record.link.clone(),
        stall: record.stall.clone(),
        stall_percent: record.stall_percent,
        seed: record.seed.unwrap_or(1),
        step: record.step,
        target_qps: record.target_qps,
        patience_s: PATIENCE_S,
        rho: round(rho),
        hold_s: record.hold_s,
        scheduled: record.scheduled,
        correct: record.correct,
        p50_ms: record.p50_ms,
        p90_ms: record.p90_ms,
        max_ms: record.max_ms,
        predicted_p50_ms: predicted(0.5),
        predicted_max_ms: predicted(1.0),
        predicted_growth_ms_per_s: round(1e3 * (rho - 1.0).max(0.0)),
        client_bound: record.client_bound,
    }
}

/// How long each request waits in a queue in which every hundredth is followed by a client that takes the
/// server's whole patience, in seconds. An answer takes no time, gaps are equal.
fn waits(rate: f64, hold_s: f64) -> Vec<f64> {
    let every = (100.0 / PERCENT).round() as u32;
    let (mut free_at, mut waits) = (0.0_f64, Vec::new());
    for number in 1..=(rate * hold_s).round() as u32 {
        let now = f64::from(number) / rate;
        waits.push((free_at - now).max(0.0));
        if number % every == 0 {
            free_at = free_at.max(now) + PATIENCE_S;
        }
    }
    waits
}

fn board(rows: &[Row]) -> String {
    let mut text = format!(
        "{:>8} {:>6} {:>7}   {:>9} {:>10}   {:>9} {:>10}   {}\n",
        "rate", "ρ", "run", "p50", "predicted", "longest", "predicted", "answered"
    );
    for row in rows {
        let seen = |value: Option<f64>| value.map_or_else(|| "–".into(), ms);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>8} {:>6.2} {:>7}   {:>9} {:>10}   {:>9} {:>10}   {} of {}",
            format!("{}/s", row.target_qps),
            row.rho,
            row.seed,
            seen(row.p50_ms),
            ms(row.predicted_p50_ms),
            seen(row.max_ms),
            ms(row.predicted_max_ms),
            row.correct,
            row.scheduled,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_grows_by_what_is_above_one() {
        // ρ = 2 for 12 s: 12 silent clients come, and each costs 2 s.
        let waits_at_two = waits(100.0, 12.0);
        let longest = waits_at_two.iter().copied().fold(0.0, f64::max);
        assert_eq!(waits_at_two.len(), 1_200);
        assert!((longest - 12.0).abs() < 0.1, "11 have cost 22 s, of which 10 are over: {longest}");
        // ρ = 0.2: nobody waits longer than one patience, and most wait not at all.
        let waits_at_a_fifth = waits(10.0, 60.0);
        assert!(waits_at_a_fifth.iter().all(|wait| *wait <= PATIENCE_S));
        let idle = waits_at_a_fifth.iter().filter(|wait| **wait == 0.0).count();
        // Five of them have cost 2 s each of the 60, in which 20 come.
        assert!((495..=505).contains(&idle), "{idle} of 600");
    }

    #[test]
    fn a_row_says_what_was_predicted() {
        let record = Record { target_qps: 75.0, seed: Some(2), ..Record::default() };
        let row = row(&record, &Scale::short());
        assert_eq!((row.rho, row.predicted_growth_ms_per_s), (1.5, 500.0));
        let light = Record { target_qps: 25.0, ..record };
        assert_eq!(self::row(&light, &Scale::short()).predicted_growth_ms_per_s, 0.0);
    }
}
