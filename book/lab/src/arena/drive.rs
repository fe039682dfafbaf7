//! One measurement: a server, whom it has to bear, who asks, and what that cost.

use super::{
    calls::Calls,
    contender::{Contender, Programs, Running},
    idle::{Drip, Idle},
    row::Row,
    tree::{Kernel, Memory, Tree},
};
use crate::{
    records::round,
    scaling::cost::{cores, stay_on},
};
use anyhow::{Context, Result, anyhow, ensure};
use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};
use stress::http::{self, Plan, Report, be_patient};

/// Load before what counts: what is allocated once is there, and connections are spread.
const WARM_UP: Duration = Duration::from_millis(300);

/// In this time the processes of clients who have left have ended.
const SETTLED: Duration = Duration::from_millis(300);

/// How long a request waits for its answer beyond the run: who starves is not waited for much longer.
const GRACE: Duration = Duration::from_millis(500);

/// What is asked for.
const PATH: &str = "/";

/// How many cores server and client share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// One, so that no wake-up crosses from one to another, and the server's CPU time is what an answer
    /// costs.
    One,
    /// All that there are.
    All,
}

/// When requests leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// When an answer has come.
    Saturate,
    /// So many per second, of all connections.
    Schedule(f64),
}

/// A server under a load.
#[derive(Clone, Debug)]
pub struct Job {
    /// The server.
    pub contender: Contender,
    /// What it is called in the record, if not by its name: the baseline again.
    pub name: &'static str,
    /// The load in a word or two.
    pub load: String,
    /// Which load, from 1.
    pub step: u32,
    /// Which round, from 1.
    pub round: u64,
    /// Connections that ask.
    pub connections: usize,
    /// Connections beside them that say nothing.
    pub idle: usize,
    /// Connections beside them that drip.
    pub drips: usize,
    /// Requests of one connection at once.
    pub pipeline: usize,
    /// When requests leave.
    pub pace: Pace,
    /// Cores.
    pub cores: Cores,
    /// Workers it was told to have.
    pub workers: Option<usize>,
    /// For how long.
    pub length: Duration,
    /// Whether its system calls are counted.
    pub counts_calls: bool,
}

impl Job {
    /// A saturating load on one core.
    pub fn new(contender: Contender, connections: usize, length: Duration) -> Job {
        Job {
            name: contender.name(),
            contender,
            load: format!("{connections} connections"),
            step: 1,
            round: 1,
            connections,
            idle: 0,
            drips: 0,
            pipeline: 1,
            pace: Pace::Saturate,
            cores: Cores::One,
            workers: None,
            length,
            counts_calls: false,
        }
    }

    /// By what the journal knows it.
    pub fn part(&self) -> String {
        format!("{} {} #{}", self.name, self.load, self.round)
    }
}

/// Starts the server and its clients, and measures.
///
/// # Errors
/// If the server does not start, does not answer, or the clients cannot run.
pub fn measure(job: &Job, programs: &Programs, stop: &AtomicBool) -> Result<Row> {
    // A thread of its own: whatever it starts inherits its cores, and the server ends with it.
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            let all = cores()?;
            let first = *all.first().context("sched_getaffinity: no core")?;
            let chosen = if job.cores == Cores::One { vec![first] } else { all };
            stay_on(&chosen)?;
            // Both sides are batch threads then, and neither interrupts the other: what a wake-up in the
            // middle of a batch would cost depends on who shares the core, and not on the server.
            if let ([_], Pace::Saturate) = (&chosen[..], job.pace) {
                be_patient().context("sched_setscheduler(SCHED_BATCH)")?;
            }
            measure_here(job, programs, &chosen, stop)
        });
        work.join().unwrap_or_else(|_| Err(anyhow!("a thread of the measurement panicked")))
    })
}

fn measure_here(job: &Job, programs: &Programs, cores: &[usize], stop: &AtomicBool) -> Result<Row> {
    let kernel_before = Kernel::look()?;
    let running = job.contender.start(programs)?;
    let idle = Idle::open(running.address(), job.idle);
    let drip = match job.drips {
        0 => None,
        count => Some(Drip::start(running.address(), count)?),
    };
    let mut row = Row {
        server: job.name.into(),
        family: job.contender.family().into(),
        link: "loopback".into(),
        stall: if job.drips > 0 { "drip" } else { "none" }.into(),
        stall_percent: round(100.0 * job.drips as f64 / job.connections.max(1) as f64),
        seed: job.round,
        step: job.step,
        load: job.load.clone(),
        connections: job.connections,
        idle: idle.len(),
        idle_answered: (job.idle > 0).then_some(idle.answered),
        pipeline: job.pipeline,
        cores: cores.len(),
        workers: job.workers,
        ..Row::default()
    };
    if job.connections > 0 {
        load(job, &running, cores, &mut row, stop)?;
    }
    let tree = Tree::of(running.pid())?;
    row.remember(&tree, tree.memory(), kernel_before, Kernel::look()?);
    drop((drip, idle));
    Ok(row)
}

fn load(
    job: &Job,
    running: &Running,
    cores: &[usize],
    row: &mut Row,
    stop: &AtomicBool,
) -> Result<()> {
    let plan = |length: Duration| {
        let plan = match job.pace {
            Pace::Saturate => Plan::saturate(running.address(), PATH, job.connections, length),
            Pace::Schedule(qps) => {
                Plan::steady(running.address(), PATH, job.connections, qps, length)
            }
        };
        let plan = plan.with_pipeline(job.pipeline).with_timeout(length + GRACE);
        match cores {
            // Told of both, the client does not interrupt the server after each answer.
            [core] => plan.with_cpu(*core),
            _ => plan.with_threads(cores.len().min(job.connections)),
        }
    };
    let run = |plan: &Plan| http::run(plan, &mut |_| {}, stop).context("the clients cannot run");
    run(&plan(WARM_UP))?;
    if job.counts_calls {
        // A process that ends while perf looks for it is an error to perf: those of the warm-up have gone.
        thread::sleep(SETTLED);
    }
    let tree = Tree::of(running.pid())?;
    let calls = if job.counts_calls { Some(Calls::count(&tree)?) } else { None };
    // Of one process that has made no others, the clients know the time in their own interval.
    let alone = tree.processes() == 1;
    let pid = i32::try_from(running.pid()).context("a process number")?;
    let plan = plan(job.length).with_server_pid(pid);
    let before = tree.cpu()?;
    let start = Instant::now();
    let report = run(&plan)?;
    let after = Tree::of(running.pid())?;
    ensure!(start.elapsed() >= Duration::from_millis(1), "the clients ended at once");
    row.fill(job, &report);
    // One that forks is alone again when its clients have left: then it has buried who served them.
    let spent = after.cpu()? - before;
    if alone && after.processes() == 1 && spent.buried_s <= 0.0 {
        row.server_cpu_s_per_million = report.cost.server_cpu_s_per_million.map(round);
    } else {
        row.server_cpu_s_per_million = per_million(spent.seconds(), report.correct).map(round);
    }
    if let Some(calls) = calls {
        row.calls_per_answer = per_million(calls.end()? as f64, report.correct)
            .map(|it| (it / 1e6 * 1e4).round() / 1e4);
    }
    Ok(())
}

pub fn per_million(what: f64, answers: u64) -> Option<f64> {
    (answers > 0).then(|| what * 1e6 / answers as f64)
}

impl Row {
    fn fill(&mut self, job: &Job, report: &Report) {
        let latency = report.latency.as_ref().unwrap_or(&report.from_sent);
        self.target_qps = match job.pace {
            Pace::Saturate => None,
            Pace::Schedule(qps) => Some(qps),
        };
        self.answers_per_s = round(report.answers_per_s);
        self.answers = report.correct;
        self.lost = report.scheduled - report.correct;
        self.first_error = report.rows.first().map_or_else(String::new, |row| {
            format!("{} while {} {}", row.outcome.words(), row.phase.words(), row.errno_name)
        });
        self.starved = report.fairness.starved;
        let some = |ms: f64| (latency.count > 0).then(|| round(ms));
        self.mean_ms = some(latency.mean_ms);
        self.p50_ms = some(latency.p50_ms);
        self.p90_ms = some(latency.p90_ms);
        self.p99_ms = some(latency.p99_ms);
        self.p999_ms = some(latency.p999_ms);
        self.max_ms = some(latency.max_ms);
        self.longest_wait_ms = Some(round(report.fairness.longest_wait_ms.max));
        self.answers_min = report.fairness.answers.min;
        self.answers_median = report.fairness.answers.median;
        self.answers_max = report.fairness.answers.max;
        self.client_cpu_s_per_million = report.cost.own_cpu_s_per_million.map(round);
        self.client_bound = report.client_bound;
        self.backlog_grew = report.backlog.grew;
    }

    fn remember(&mut self, tree: &Tree, memory: Memory, before: Kernel, after: Kernel) {
        let grown = |now: u64, then: u64| i64::try_from(now).ok()?.checked_sub_unsigned(then);
        self.processes = Some(tree.processes());
        self.threads = Some(memory.threads);
        self.resident_bytes = Some(memory.resident_bytes);
        self.proportional_bytes = Some(memory.proportional_bytes);
        self.page_table_bytes = Some(memory.page_table_bytes);
        self.kernel_stack_bytes = grown(after.stack_bytes, before.stack_bytes);
        self.slab_bytes = grown(after.slab_bytes, before.slab_bytes);
    }
}
