//! One run: a server, the clients that `stress` makes for it, and the rows that they leave.
//!
//! [`crowd`] is the clients, in threads of this process, and [`kept`] those of them who keep their connections;
//! [`apart`] puts them into a process of their own.

pub mod apart;
pub mod crowd;
pub mod kept;

pub use apart::{clients_apart, serve_orders};
pub use crowd::{Crowd, Now, Seen, Step, clients};

use crate::{
    binaries::Binary,
    experiment::{self, Bench},
    race::scoreboard::{ms, thousands},
    records::Record,
    screen::{Bar, Screen},
    servers::{CH07, short},
};
use anyhow::{Context, Result, anyhow};
use contract::server::Server;
use serde::{Deserialize, Serialize};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// A run whose clients were late is made so often.
const TRIES: usize = 3;

/// The model of chapter 07 that waits as 04 does.
pub const MODEL: &str = "epoll-level";

/// What is put to a server, and what its rows say of it.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The server.
    pub server: &'a Binary,
    /// What its rows are called in the record.
    pub experiment: &'static str,
    /// What lies between client and server: `loopback`, or the name of a profile.
    pub link: String,
    /// The dice of the link or of the arrivals.
    pub seed: Option<u64>,
    /// The number of its first row.
    pub first_step: u32,
    /// The clients.
    pub crowd: Crowd,
}

/// What came of a [`Job`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The binary.
    pub server: String,
    /// What its stalled clients did.
    pub stall: String,
    /// The steps that were completed.
    pub records: Vec<Record>,
    /// Why it ended early, if it did and not by the reader's wish.
    pub failure: Option<String>,
    /// What the load generator warns of.
    pub warnings: Vec<String>,
    /// Whether the reader has ended it.
    pub interrupted: bool,
}

/// Starts a server on loopback and drives it. The thread that calls this starts the server: the kernel
/// ends it with this thread.
///
/// # Errors
/// If the server does not start or the clients cannot run.
pub fn on_loopback(job: &Job<'_>, screen: &Screen, stop: &AtomicBool) -> Result<Run> {
    let mut server = start(job.server, "127.0.0.1:0")?;
    let target = server.address();
    run(&mut server, job, screen, stop, |progress, stop| {
        clients(&job.crowd, target, progress, stop)
    })
}

/// As [`on_loopback`], and again if the machine had no time for the clients, so often in all.
///
/// # Errors
/// As [`on_loopback`].
pub fn on_quiet_loopback(job: &Job<'_>, bench: &Bench<'_>) -> Result<Run> {
    let mut tried = 1;
    loop {
        let run = on_loopback(job, bench.screen, bench.stop)?;
        let is_late = run.records.iter().any(|it| it.client_bound);
        if !is_late || !run.is_whole() || tried == TRIES {
            return Ok(run);
        }
        tried += 1;
        bench.screen.say(&format!("  {}: the clients were late: once more", job.label()));
    }
}

/// Starts `binary` at `address`; chapter 07 with its [`MODEL`].
///
/// # Errors
/// If it does not start: the sentence has its own words.
pub fn start(binary: &Binary, address: &str) -> Result<Server> {
    let options: &[&str] = if binary.column == CH07 { &["--model", MODEL] } else { &[] };
    Server::start_with_options(&binary.path, address, options)
        .with_context(|| format!("{} cannot run", short(binary.column.name)))
}

/// Runs `jobs` at once, each in a thread of its own. All of them end before this returns.
pub fn side_by_side<J: Sync, R: Send>(
    jobs: &[J],
    run: impl Fn(&J) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    thread::scope(|scope| {
        let run = &run;
        let spawn = |job| scope.spawn(move || run(job));
        let threads: Vec<_> = jobs.iter().map(spawn).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the experiment panicked")))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Lets `drive` make the clients of `job`, watches the server meanwhile, and makes the rows.
///
/// # Errors
/// If the clients cannot run. A server that ends is no error: that is in [`Run::failure`].
pub fn run(
    server: &mut Server,
    job: &Job<'_>,
    screen: &Screen,
    stop: &AtomicBool,
    drive: impl FnOnce(&mut dyn FnMut(&Now), &AtomicBool) -> Result<Seen>,
) -> Result<Run> {
    let name = job.server.column.name;
    let bar = screen.bar(&job.label());
    let stop_this = AtomicBool::new(false);
    let mut death = None;
    let mut progress = |now: &Now| {
        show(&bar, now);
        if death.is_none() && matches!(server.ended(), Ok(Some(_)) | Err(_)) {
            death = Some(now.step);
        }
        if death.is_some() || stop.load(Ordering::Relaxed) {
            stop_this.store(true, Ordering::Relaxed);
        }
    };
    let seen = drive(&mut progress, &stop_this);
    bar.end();
    let seen = seen.with_context(|| format!("{}: the clients cannot run", short(name)))?;
    let steps = &seen.steps;
    let until = death.map_or(steps.len(), |noticed| {
        steps.iter().position(|step| step.met_nobody).unwrap_or(noticed)
    });
    let failure = death.is_some().then(|| {
        let qps = steps.get(until).map_or(0.0, |step| step.record.target_qps);
        epitaph(server, job, until + 1, qps)
    });
    let complete = steps.iter().take(until).enumerate().filter(|(_, step)| step.complete);
    let records: Vec<Record> =
        complete.map(|(index, step)| job.record(index as u32, step)).collect();
    Ok(Run {
        server: name.into(),
        stall: job.crowd.stall.clone(),
        interrupted: failure.is_none() && records.len() < job.crowd.rates.len(),
        records,
        failure,
        warnings: warnings(job, steps),
    })
}

impl Job<'_> {
    /// For people: `04 half-line`.
    pub fn label(&self) -> String {
        let mut label = short(self.server.column.name).to_owned();
        if self.crowd.stall != "none" {
            label += &format!(" {}", self.crowd.stall);
        }
        if let Some(seed) = self.seed {
            label += &format!(" #{seed}");
        }
        label
    }

    fn record(&self, index: u32, step: &Step) -> Record {
        Record {
            experiment: self.experiment.into(),
            server: self.server.column.name.into(),
            link: self.link.clone(),
            seed: self.seed,
            step: self.first_step + index,
            ..step.record.clone()
        }
    }
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
        who(&job.crowd.stall),
        words.unwrap_or_default(),
    )
}

fn show(bar: &Bar, now: &Now) {
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

fn warnings(job: &Job<'_>, steps: &[Step]) -> Vec<String> {
    // Clients that lose patience close first, always: that is what is measured here, not a warning.
    let bound = steps.iter().filter_map(|step| {
        let because = step.client_bound_because.as_ref()?;
        Some(format!(
            "{}, {}: the load generator was the limit at {}/s ({because})",
            short(job.server.column.name),
            who(&job.crowd.stall),
            step.record.target_qps
        ))
    });
    bound.collect()
}

/// The rows of `runs`; what went wrong with them goes into `outcome`.
pub fn gather(runs: Vec<Option<Result<Run>>>, outcome: &mut experiment::Outcome) -> Vec<Record> {
    let mut records = Vec::new();
    for run in experiment::rows(runs, outcome) {
        outcome.missing += usize::from(!run.is_whole());
        records.extend(run.records);
        outcome.findings.extend(run.warnings);
        if let Some(failure) = run.failure {
            outcome.fail(failure);
        }
    }
    records
}

/// Clients by what the stalled ones among them do.
pub fn who(stall: &str) -> String {
    if stall == "none" { "nobody stalls".into() } else { format!("{stall} clients") }
}

impl Run {
    /// How it went, for people.
    pub fn sentence(&self) -> String {
        let (correct, scheduled) = self.answered();
        let result = if self.records.is_empty() {
            "no step was completed".into()
        } else {
            format!(
                "{} of {} answered ({:.1} %)",
                thousands(correct),
                thousands(scheduled),
                self.percent()
            )
        };
        let ended = if self.failure.is_some() { ", then it ended" } else { "" };
        format!("{}, {}: {result}{ended}", short(&self.server), who(&self.stall))
    }

    /// Whether nothing of it is to be done again.
    pub fn is_whole(&self) -> bool {
        !self.interrupted && self.failure.is_none()
    }

    /// Answered right, of how many that were scheduled.
    pub fn answered(&self) -> (u64, u64) {
        let sum = |count: fn(&Record) -> u64| self.records.iter().map(count).sum();
        (sum(|it| it.correct), sum(|it| it.scheduled))
    }

    /// The same in percent; 0 if nothing was scheduled.
    pub fn percent(&self) -> f64 {
        let (correct, scheduled) = self.answered();
        100.0 * correct as f64 / scheduled.max(1) as f64
    }
}
