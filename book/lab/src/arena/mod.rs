//! The arena: the eleven models of chapter 07 under the same loads, and some peers.
//!
//! The figure of merit is the CPU time of the server for a million answers, with server and client on one
//! core. A rate across two cores says how quickly the client is: the busier the server, the better it
//! batches, and the cheaper it makes its client.
//!
//! A part is a list of jobs in rounds, each round everybody once, so that a slow minute of the machine is
//! everybody's; the baseline stands at both ends of a round and shows the noise. An interrupted part goes
//! on after its last job: the round in which that was has a gap then, and is not measured again.

mod board;
mod calls;
pub mod client;
pub(crate) mod contender;
mod drive;
mod flame;
mod idle;
mod parts;
mod peers;
mod profile;
mod row;
mod tree;

pub use row::Row;

use crate::{
    experiment::{Bench, Experiment, Form, Outcome, Scale, rows},
    pool::{self, Task},
    records::Table,
    servers::CH07,
};
use anyhow::{Context, Result};
use clap::ValueEnum;
use contender::Programs;
use contract::verdicts::Column;
use drive::Job;
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

/// What a start, its connections and its end take beside the load, about.
const AROUND: Duration = Duration::from_millis(900);

/// A part of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// All models in about two minutes
    Quick,
    /// CPU time of an answer and rate, with 1 to 1,000 connections, and with some that drip
    Capacity,
    /// Latency at the same offered load
    Latency,
    /// 10,000 connections: idle, beside some that ask, and asking
    C10k,
    /// System calls of an answer
    Syscalls,
    /// More workers
    Scaling,
    /// nginx, haproxy, hyper and may beside ours
    Peers,
    /// The load generator itself beside wrk
    Client,
    /// Where the CPU time of the quickest and of nginx goes, as a flame graph
    Profile,
}

/// A part as an experiment.
pub struct Arena(pub Part);

impl Experiment for Arena {
    fn name(&self) -> &'static str {
        match self.0 {
            Part::Quick => "arena",
            Part::Capacity => "arena-capacity",
            Part::Latency => "arena-latency",
            Part::C10k => "arena-c10k",
            Part::Syscalls => "arena-syscalls",
            Part::Scaling => "arena-scaling",
            Part::Peers => "arena-peers",
            Part::Client => "arena-client",
            Part::Profile => "arena-profile",
        }
    }

    fn question(&self) -> &'static str {
        match self.0 {
            Part::Quick => "Which of eleven ways to wait is best?",
            Part::Capacity => "What does an answer cost each model, and who starves meanwhile?",
            Part::Latency => "How long does a client wait when the server has time enough?",
            Part::C10k => {
                "What do 10,000 connections cost that say nothing, and can they be served?"
            }
            Part::Syscalls => {
                "How many system calls does an answer take, one at a time and 64 at once?"
            }
            Part::Scaling => "How many more answers do more workers give?",
            Part::Peers => "How do the models compare with servers that people use?",
            Part::Client => "What does the load generator cost, beside wrk?",
            Part::Profile => "Where does the CPU time of an answer go?",
        }
    }

    fn prediction(&self) -> &'static str {
        match self.0 {
            Part::Quick => {
                "Readiness and completion serve all for least; one client at a time is cheap, and starves."
            }
            Part::Capacity => {
                "One thread alone is cheapest and starves all others; epoll pays little for more of them."
            }
            Part::Latency => "All alike: the wake-up of a sleeping server is most of it.",
            Part::C10k => {
                "A thread or process for each costs memory that RSS does not show; a table does not."
            }
            Part::Syscalls => {
                "Two for each answer with readiness, three where it is asked for first; a ring, a tenth."
            }
            Part::Scaling => {
                "Two workers on two cores, with a client there too, give less than twice."
            }
            Part::Peers => {
                "The ring takes six tenths of nginx's CPU time for an answer, one reactor seven tenths."
            }
            Part::Client => {
                "No more CPU time for an answer than wrk, with each latency recorded, and as many answers of a server that is the limit."
            }
            Part::Profile => "Nine tenths of it into the kernel's TCP, whoever waits and however.",
        }
    }

    fn scale(&self, form: Form) -> Scale {
        Scale { form, ..Scale::short() }
    }

    fn about(&self, scale: &Scale, _servers: usize) -> Duration {
        let jobs = parts::jobs(self.0, scale.form);
        let jobs: Duration = jobs.iter().map(|it| it.length + AROUND).sum();
        jobs + client::about(self.0, scale.form) + profile::about(self.0, scale.form)
    }

    fn servers(&self) -> Vec<Column> {
        vec![CH07]
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let mut outcome = self.measure(bench)?;
        outcome.scoreboard += &self.words(&outcome);
        Ok(outcome)
    }
}

impl Arena {
    /// What is said below the board: the question, what was expected, and what came of it.
    fn words(&self, outcome: &Outcome) -> String {
        let mut text =
            format!("\nasked:      {}\npredicted:  {}\n", self.question(), self.prediction());
        if !outcome.answer.is_empty() {
            let label = if outcome.missing > 0 { "so far:  " } else { "measured:" };
            text += &format!("{label}   {}\n", outcome.answer);
        }
        for finding in &outcome.findings {
            text += &format!("note:       {finding}\n");
        }
        text
    }

    fn measure(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let ch07 = bench.servers.first().context("ch07 is not there")?.path.clone();
        let mut outcome = Outcome::default();
        let mut programs = Programs { ch07, peers: None };
        if self.0 == Part::Peers {
            match peers::build(bench.screen) {
                Ok(folder) => programs.peers = Some(folder),
                Err(error) => outcome.fail(format!("the peers are left out: {error:#}")),
            }
        }
        if self.0 == Part::Client {
            return client::run(bench, &programs);
        }
        if self.0 == Part::Profile {
            return profile::run(bench, &programs);
        }
        let jobs = parts::jobs(self.0, bench.scale.form);
        let rows = drive_all(self.name(), bench, &programs, jobs, &mut outcome);
        if bench.scale.form == Form::Smoke {
            starving(&rows).into_iter().for_each(|it| outcome.fail(it));
        }
        outcome.scoreboard = board::of(self.0, &rows);
        outcome.answer = board::answer(self.0, &rows);
        outcome.findings.extend(board::findings(&rows));
        outcome.table = Table::of(&rows)?;
        Ok(outcome)
    }
}

/// One after the other: each wants the machine.
fn drive_all(
    name: &'static str,
    bench: &Bench<'_>,
    programs: &Programs,
    jobs: Vec<Job>,
    outcome: &mut Outcome,
) -> Vec<Row> {
    let tasks: Vec<Task<Job>> =
        jobs.into_iter().map(|job| Task { part: job.part(), job }).collect();
    let bar = bench.screen.bar(name);
    let begun = AtomicUsize::new(0);
    let done = pool::all(
        bench,
        &tasks,
        1,
        |job| {
            let at = begun.fetch_add(1, Ordering::Relaxed) as f64 / tasks.len() as f64;
            bar.at(at, &format!("{}, {}", job.name, job.load));
            let row = drive::measure(job, programs, bench.stop);
            let row = row.with_context(|| format!("{}, {}", job.name, job.load));
            whole(row.map(|row| Row { experiment: name.into(), ..row }), bench.stop)
        },
        Option::is_some,
    );
    bar.end();
    rows(in_whole(done), outcome)
}

/// What was cut short is neither a cost nor a loss, and not an error either: as if it had not begun.
fn whole(row: Result<Row>, stop: &AtomicBool) -> Result<Option<Row>> {
    if stop.load(Ordering::Relaxed) { Ok(None) } else { row.map(Some) }
}

fn in_whole(done: Vec<Option<Result<Option<Row>>>>) -> Vec<Option<Result<Row>>> {
    done.into_iter().map(|it| it.and_then(Result::transpose)).collect()
}

/// Answers of the luckiest connection, from which on one without any has starved. Until then the run may have
/// been too short for it: on a busy machine a thousand connections are not all answered once.
const LUCKY: f64 = 10.0;

/// What can be said safely of any machine: who waits for many at once answers none of them ten times before
/// each has had an answer, and everybody answers somebody.
fn starving(rows: &[Row]) -> Vec<String> {
    let asked = rows.iter().filter(|it| it.connections > 0);
    let is_red = |row: &&Row| {
        let waits_for_all = ["readiness", "completion"].contains(&row.family.as_str());
        // Who serves one client at a time answers nobody while that one is idle or drips: that is what it is
        // there to show.
        let may_be_held =
            row.family == "a fixed number" && (row.idle > 0 || row.stall_percent > 0.0);
        (row.answers == 0 && !may_be_held)
            || (waits_for_all && row.starved > 0 && row.answers_max >= LUCKY)
    };
    let sentence = |row: &Row| {
        format!(
            "{}, {}: {} answers, and {} of its connections got none {}",
            row.server, row.load, row.answers, row.starved, row.first_error
        )
    };
    asked.filter(is_red).map(sentence).collect()
}

/// How often everybody is measured. The parts that are about ratios of some per cent take more rounds than
/// those that are about factors.
const fn rounds(part: Part, form: Form) -> u64 {
    match (form, part) {
        (Form::Smoke, _) => 1,
        (Form::Short, _) | (Form::Full, Part::Capacity | Part::Latency) => 2,
        (Form::Full, Part::Peers | Part::Client) => 5,
        (Form::Full, _) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_short_is_as_if_it_had_not_begun() {
        let (goes_on, stopped) = (AtomicBool::new(false), AtomicBool::new(true));
        let row = || Ok(Row::default());
        let error = || Err(anyhow::anyhow!("the clients ended at once"));
        let done = [
            Some(whole(row(), &goes_on)),
            Some(whole(error(), &goes_on)),
            Some(whole(row(), &stopped)),
            Some(whole(error(), &stopped)),
            None,
        ];
        let mut outcome = Outcome::default();
        assert_eq!(rows(in_whole(done.into()), &mut outcome), [Row::default()]);
        assert_eq!((outcome.missing, outcome.failures.len()), (4, 1));
    }

    #[test]
    fn what_was_measured_is_told_beside_what_was_asked() {
        let outcome = Outcome {
            answer: "nobody starves".into(),
            findings: vec!["the baseline took 1.00 to 1.02".into()],
            ..Outcome::default()
        };
        let words = Arena(Part::Quick).words(&outcome);
        for part in ["asked:", "predicted:", "measured:   nobody starves", "1.00 to 1.02"] {
            assert!(words.contains(part), "{words}");
        }
        let cut = Arena(Part::Quick).words(&Outcome { missing: 1, ..outcome });
        assert!(cut.contains("so far:     nobody starves"), "{cut}");
        assert!(!Arena(Part::C10k).words(&Outcome::default()).contains("measured:"));
    }

    #[test]
    fn one_at_a_time_may_starve_and_readiness_may_not() {
        let row = |server: &str, family: &str, answers, starved| Row {
            server: server.into(),
            family: family.into(),
            load: "64 connections".into(),
            connections: 64,
            answers,
            starved,
            answers_max: 100.0,
            ..Row::default()
        };
        let fine = [
            row("iterative", "a fixed number", 100, 63),
            row("poll", "readiness", 100, 0),
            Row { answers_max: 2.0, ..row("poll", "readiness", 100, 1) },
            Row { connections: 0, ..row("poll", "readiness", 0, 0) },
            Row { idle: 500, ..row("thread-pool", "a fixed number", 0, 64) },
            Row { stall_percent: 1.0, ..row("iterative", "a fixed number", 0, 64) },
        ];
        assert_eq!(starving(&fine), [""; 0]);
        let red = [row("poll", "readiness", 100, 1), row("fork", "one for each connection", 0, 64)];
        assert_eq!(starving(&red).len(), 2);
    }
}
