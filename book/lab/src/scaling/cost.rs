//! One measurement: a server, clients who come as quickly as they are answered, and the CPU time of both.

use crate::{
    binaries::Binary,
    records::{Record, round},
    servers::short,
};
use anyhow::{Context, Result, anyhow};
use contract::server::Server;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use std::{path::PathBuf, sync::atomic::AtomicBool, thread, time::Duration};
use stress::{Outcome, Plan, Report};

/// Clients who ask at once. Each that is answered is followed by another.
const CLIENTS: usize = 64;

/// All requests are due nearly at once; those that wait for a place among the [`CLIENTS`] have patience.
const RATE: f64 = 1e6;
const PATIENCE: Duration = Duration::from_secs(120);

/// Requests before those that count: what is allocated once is there.
const WARM_UP: u32 = 500;

/// A program that is measured.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it is called in the record.
    pub name: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Its command line.
    pub arguments: Vec<String>,
}

/// A program, and what it runs on.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program.
    pub program: Program,
    /// The cores that server and clients may use.
    pub cores: Vec<usize>,
    /// How many reactors it has, as it was told.
    pub reactors: usize,
    /// Threads of the clients.
    pub threads: usize,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Requests that left. On a busy machine the clients may have had no time for all of them, which is
    /// nobody's cost.
    pub scheduled: u64,
    /// Of those, answered right.
    pub correct: u64,
    /// Answered wrong.
    pub wrong: u64,
    /// What became of the first of the others, in words.
    pub first_error: String,
    /// Answers per second.
    pub rate: f64,
    /// CPU seconds of the server for 100,000 answers.
    pub server_cpu_s: f64,
    /// CPU seconds of the clients for 100,000 answers.
    pub client_cpu_s: f64,
}

impl Program {
    /// A chapter, with as many reactors as it takes by itself or with as many as are `chosen`.
    pub fn chapter(server: &Binary, chosen: Option<usize>) -> Program {
        let mut arguments = vec!["127.0.0.1:0".into()];
        if let Some(reactors) = chosen {
            arguments.extend(["--reactors".into(), reactors.to_string()]);
        }
        Program { name: server.column.name, path: server.path.clone(), arguments }
    }
}

impl Job {
    /// For people.
    pub fn words(&self) -> String {
        format!("{}, {} of {} cores", short(self.program.name), self.reactors, self.cores.len())
    }
}

/// The cores that this process may use.
///
/// # Errors
/// If the kernel does not say.
pub fn cores() -> Result<Vec<usize>> {
    let mask = sched_getaffinity(Pid::from_raw(0)).context("sched_getaffinity")?;
    Ok((0..CpuSet::count()).filter(|&core| mask.is_set(core) == Ok(true)).collect())
}

/// Starts the server and its clients on the cores of `job`, and counts `requests`.
///
/// # Errors
/// If the server does not start or the clients cannot run.
pub fn measure(job: &Job, requests: u32, stop: &AtomicBool) -> Result<Cost> {
    // A thread of its own: whatever it starts inherits its cores, and the server ends with it.
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            stay_on(&job.cores)?;
            let words: Vec<&str> = job.program.arguments.iter().map(String::as_str).collect();
            let (first, rest) = words.split_first().context("a program without arguments")?;
            let server = Server::start_with_options(&job.program.path, first, rest)
                .with_context(|| format!("{} cannot run", short(job.program.name)))?;
            drive(&server, job, WARM_UP, stop)?;
            Cost::of(&drive(&server, job, requests, stop)?)
        });
        work.join().unwrap_or_else(|_| Err(anyhow!("a thread of the measurement panicked")))
    })
}

/// Keeps the calling thread, and whatever it starts, on these cores.
///
/// # Errors
/// If that is forbidden.
pub fn stay_on(cores: &[usize]) -> Result<()> {
    let mut mask = CpuSet::new();
    for core in cores {
        mask.set(*core).context("a core beyond the kernel's mask")?;
    }
    sched_setaffinity(Pid::from_raw(0), &mask).with_context(|| {
        format!("sched_setaffinity({cores:?}): where that is forbidden, nothing can be compared")
    })
}

/// All requests are due at the start, and only some may be under way: that makes a closed loop of an open
/// one. No latency is taken from it.
fn drive(server: &Server, job: &Job, requests: u32, stop: &AtomicBool) -> Result<Report> {
    let length = Duration::from_secs_f64(f64::from(requests) / RATE);
    let plan = Plan::steps(server.address(), vec![RATE], length)
        .with_timeout(PATIENCE)
        .with_connections(CLIENTS.max(job.threads))
        .with_threads(job.threads)
        .with_server_pid(i32::try_from(server.pid()).context("a process number")?);
    stress::run(&plan, &mut |_| {}, stop).context("the clients cannot run")
}

impl Cost {
    fn of(report: &Report) -> Result<Cost> {
        let totals = &report.totals;
        let mut sent = totals.rows.iter().filter(|row| row.outcome != Outcome::NotSent);
        Ok(Cost {
            scheduled: totals.issued,
            correct: totals.correct,
            wrong: totals.wrong,
            first_error: sent.next().map_or_else(String::new, |row| {
                format!("{} while {} {}", row.outcome.words(), row.phase.words(), row.errno_name)
            }),
            rate: totals.achieved_qps,
            server_cpu_s: report
                .cost
                .server_cpu_s_per_100k
                .context("clock_gettime: the server ended before its CPU time was read")?,
            client_cpu_s: report.cost.own_cpu_s_per_100k,
        })
    }

    /// As a row, without its place in the experiment.
    pub fn record(&self, job: &Job) -> Record {
        Record {
            link: "loopback".into(),
            stall: "none".into(),
            achieved_qps: round(self.rate),
            timeout_s: PATIENCE.as_secs_f64(),
            scheduled: self.scheduled,
            correct: self.correct,
            wrong: self.wrong,
            errors: self.scheduled - self.correct - self.wrong,
            cores: Some(job.cores.len()),
            reactors: Some(job.reactors),
            clients: Some(CLIENTS.max(job.threads)),
            server_cpu_s_per_100k: Some(round(self.server_cpu_s)),
            client_cpu_s_per_100k: Some(round(self.client_cpu_s)),
            ..Record::default()
        }
    }
}
