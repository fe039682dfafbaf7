//! What an answer costs a server in CPU time, and what more reactors are good for.
//!
//! A second start goes on round by round: what is compared with each other was measured within a minute, the
//! bare loop at both ends of it. A round that was not whole is measured anew.
//!
//! [`bare`] is the loop that the chapters are compared with, [`cost`] one measurement, [`board`] what is
//! shown of all of them.

pub mod bare;
pub mod board;
pub mod cost;

use crate::{
    binaries::Binary,
    experiment::{Bench, Experiment, Form, Outcome, Scale},
    records::{Record, Table},
    servers::{named, short},
};
use anyhow::{Context, Result};
use contract::verdicts::Column;
use cost::{Cost, Job, Program};
use serde_json::{Value, json};
use std::{env, path::PathBuf, sync::atomic::Ordering, time::Duration};

/// The rows of the record: server and clients on one core, and on all of them.
pub const ONE_CORE: &str = "scaling-one-core";
/// See [`ONE_CORE`].
pub const ALL_CORES: &str = "scaling-all-cores";

/// What the bare loop is called in a record: first in a round, and last in it, to show the noise.
pub const BARE: &str = "bare";
/// See [`BARE`].
pub const BARE_AGAIN: &str = "bare-again";
/// The bare loop that leaves its clients at once.
pub const BARE_LEAST: &str = "bare-least";

/// The chapters that are compared: the loop, the loop on each core, the ring on each core.
pub const CHAPTERS: [&str; 3] = ["ch04", "ch05", "ch06"];

/// `cargo lab scaling`
pub struct Scaling;

impl Experiment for Scaling {
    fn name(&self) -> &'static str {
        "scaling"
    }

    fn question(&self) -> &'static str {
        "What does an answer cost a server in CPU time, and how many more do more reactors give?"
    }

    fn prediction(&self) -> &'static str {
        "04 and 05 cost what a bare loop does, 06 a little less; twice the reactors is not twice the answers."
    }

    fn servers(&self) -> Vec<Column> {
        named(&CHAPTERS)
    }

    /// With other cores it is another machine.
    fn parameters(&self) -> Value {
        json!({ "cores": cost::cores().unwrap_or_default() })
    }

    fn about(&self, scale: &Scale, servers: usize) -> Duration {
        let effort = Effort::of(scale);
        let slices = effort.rounds * (servers + 3) + effort.rounds * servers * 2;
        Duration::from_secs_f64(slices as f64 * (0.3 + effort.requests as f64 / 20_000.0))
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let mut scaling =
            Running { bench, outcome: Outcome::default(), records: Vec::new(), lost: Vec::new() };
        scaling.on_one_core()?;
        scaling.on_all_cores()?;
        scaling.finish()
    }
}

/// How often and how long.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    requests: u32,
}

impl Effort {
    fn of(scale: &Scale) -> Effort {
        if scale.form == Form::Smoke {
            Effort { rounds: 1, requests: 2_000 }
        } else {
            Effort { rounds: 7, requests: 20_000 }
        }
    }
}

struct Running<'a> {
    bench: &'a Bench<'a>,
    outcome: Outcome,
    records: Vec<Record>,
    /// Programs that could not be measured once are not tried again.
    lost: Vec<String>,
}

impl Running<'_> {
    /// In each round one measurement of everybody, with the bare loop at both ends.
    fn on_one_core(&mut self) -> Result<()> {
        let core = cost::cores()?.into_iter().next().context("sched_getaffinity: no core")?;
        self.bench.screen.say(&format!(
            "\nServer and clients on core {core} alone: what does an answer cost the server?"
        ));
        let bare = |name: &'static str, option: &'static str| -> Result<Program> {
            Ok(Program {
                name,
                path: this_program()?,
                arguments: vec!["bare".into(), option.into()],
            })
        };
        let mut programs = vec![bare(BARE, "--politely")?, bare(BARE_LEAST, "--at-once")?];
        programs.extend(self.bench.servers.iter().map(|it| Program::chapter(it, None)));
        programs.push(bare(BARE_AGAIN, "--politely")?);
        let jobs: Vec<Job> = programs
            .into_iter()
            .map(|program| Job { program, cores: vec![core], reactors: 1, threads: 1 })
            .collect();
        self.rounds(&jobs, ONE_CORE);
        Ok(())
    }

    /// 04, and then the others with 1 reactor to one for each core.
    fn on_all_cores(&mut self) -> Result<()> {
        let cores = cost::cores()?;
        self.bench.screen.say(&format!(
            "\nServer and clients on all {} cores: what are more reactors good for?",
            cores.len()
        ));
        let mut jobs = Vec::new();
        for server in self.bench.servers {
            let most = if has_reactors(server) { cores.len() } else { 1 };
            for reactors in steps(most) {
                let chosen = has_reactors(server).then_some(reactors);
                let program = Program::chapter(server, chosen);
                jobs.push(Job { program, cores: cores.clone(), reactors, threads: cores.len() });
            }
        }
        self.rounds(&jobs, ALL_CORES);
        Ok(())
    }

    /// Everybody once in a round, as many rounds as it takes.
    fn rounds(&mut self, jobs: &[Job], experiment: &'static str) {
        let effort = Effort::of(self.bench.scale);
        let bar = self.bench.screen.bar(experiment);
        for round in 0..effort.rounds {
            let part = format!("{experiment} #{}", 1 + round);
            if let Some(records) = self.bench.journal.get::<Vec<Record>>(&part) {
                self.records.extend(records);
                continue;
            }
            let mut records = Vec::new();
            let mut is_whole = true;
            for (at, job) in jobs.iter().enumerate() {
                let is_lost = self.lost.iter().any(|it| it == job.program.name);
                if is_lost || self.stopped() {
                    is_whole = false;
                    continue;
                }
                let all = effort.rounds * jobs.len();
                bar.at((round * jobs.len() + at) as f64 / all as f64, &job.words());
                match cost::measure(job, effort.requests, self.bench.stop) {
                    // What was interrupted is neither a cost nor a failure.
                    Ok(_) if self.stopped() => is_whole = false,
                    Ok(cost) => {
                        is_whole &= self.is_answered(job, &cost);
                        records.push(Record {
                            experiment: experiment.into(),
                            server: job.program.name.into(),
                            step: u32::try_from(1 + round).unwrap_or(u32::MAX),
                            ..cost.record(job)
                        });
                    }
                    Err(error) => {
                        is_whole = false;
                        self.lost.push(job.program.name.into());
                        self.fail(format!("{}: {error:#}", job.words()));
                    }
                }
            }
            if is_whole {
                self.keep(&part, &records);
            } else {
                self.outcome.missing += 1;
            }
            self.records.extend(records);
        }
        bar.end();
    }

    /// Whether all were answered; says so where not.
    fn is_answered(&mut self, job: &Job, cost: &Cost) -> bool {
        if cost.correct < cost.scheduled {
            self.fail(format!(
                "{}: {} of {} were answered; the first that was not: {}",
                job.words(),
                cost.correct,
                cost.scheduled,
                cost.first_error
            ));
        }
        cost.correct >= cost.scheduled
    }

    /// Keeps a round, for a second start.
    fn keep(&mut self, part: &str, records: &Vec<Record>) {
        if let Err(error) = self.bench.journal.keep(part, records) {
            self.fail(format!("{error:#}"));
        }
    }

    fn stopped(&self) -> bool {
        self.bench.stop.load(Ordering::Relaxed)
    }

    fn fail(&mut self, sentence: String) {
        self.bench.screen.say(&format!("  {sentence}"));
        self.outcome.failures.push(sentence);
    }

    fn finish(mut self) -> Result<Outcome> {
        let records = &self.records;
        self.outcome.table = Table::of(records)?;
        self.outcome.scoreboard = board::board(records);
        self.outcome.answer = board::answer(records);
        self.outcome.findings.extend(board::findings(records));
        Ok(self.outcome)
    }
}

/// 1, 2, 4, … and `most`.
fn steps(most: usize) -> Vec<usize> {
    let mut steps: Vec<usize> =
        std::iter::successors(Some(1), |it| Some(it * 2)).take_while(|it| *it < most).collect();
    steps.push(most);
    steps
}

/// Whether it is started with `--reactors`.
fn has_reactors(server: &Binary) -> bool {
    short(server.column.name) >= "05"
}

/// The lab itself is the bare loop, as a process of its own.
fn this_program() -> Result<PathBuf> {
    env::current_exe().context("readlink(/proc/self/exe)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactors_double_up_to_the_cores() {
        assert_eq!(steps(1), [1]);
        assert_eq!(steps(2), [1, 2]);
        assert_eq!(steps(6), [1, 2, 4, 6]);
        assert_eq!(steps(8), [1, 2, 4, 8]);
    }
}
