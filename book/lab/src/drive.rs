//! One run: a server, the clients that `stress` makes for it, and the rows that they leave.
//!
//! The clients are threads of this process, or a process of their own ([`clients_apart`]): that one has
//! descriptors of its own, and may be somewhere else than we are.

use crate::{
    binaries::Binary,
    experiment,
    race::scoreboard::{ms, thousands},
    records::{Record, round},
    screen::{Bar, Screen},
    servers::short,
};
use anyhow::{Context, Result, anyhow};
use contract::server::Server;
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use stress::{Arrivals, Outcome, Plan, Progress, Report, Stall, StallKind, StepReport};

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

/// Clients: when they come, how long they wait, and which of them stall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crowd {
    /// Requests per second of each step.
    pub rates: Vec<f64>,
    /// The length of a step.
    pub hold: Duration,
    /// The patience of those who ask.
    pub timeout: Duration,
    /// What the stalled ones do, `none` if there are none.
    pub stall: String,
    /// How many stalled ones come with 100 requests.
    pub stall_percent: f64,
    /// The dice of exponential gaps between requests; `None` makes all gaps equal.
    pub poisson: Option<u64>,
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

/// What clients have seen, of a server that they know nothing of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// All steps, in their order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Step {
    /// Its numbers, with everything empty that clients do not know.
    pub record: Record,
    /// Whether all its requests came to an end of their own.
    pub complete: bool,
    /// Whether somebody met a server that was no more.
    pub met_nobody: bool,
    /// Why the load generator was the limit, if it was.
    pub client_bound_because: Option<String>,
}

/// How a run is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Now {
    /// Of the schedule, between 0 and 1.
    pub fraction: f64,
    /// Seconds since the schedule began.
    pub elapsed_s: f64,
    /// The step under way, from 0.
    pub step: usize,
    /// Its rate.
    pub target_qps: f64,
    /// Answered right so far.
    pub correct: u64,
    /// Ended otherwise.
    pub failed: u64,
    /// Under way.
    pub in_flight: usize,
    /// Of the answers since the last look; 0 if there were none.
    pub p99_ms: f64,
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

/// Starts `binary` at `address`.
///
/// # Errors
/// If it does not start: the sentence has its own words.
pub fn start(binary: &Binary, address: &str) -> Result<Server> {
    Server::start_at(&binary.path, address)
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

/// The clients of `crowd`, in threads of this process.
///
/// # Errors
/// Those of [`stress::run`].
pub fn clients(
    crowd: &Crowd,
    target: SocketAddr,
    progress: &mut dyn FnMut(&Now),
    stop: &AtomicBool,
) -> Result<Seen> {
    let report = stress::run(&crowd.plan(target)?, &mut |now| progress(&Now::of(now)), stop)?;
    let steady = report.steps.iter().filter(|it| it.phase == "steady");
    Ok(Seen { steps: steady.map(|step| Step::of(step, crowd, &report)).collect() })
}

/// What the process of the clients says, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Now(Now),
    Seen(Seen),
    Failed(String),
}

/// The clients of `crowd` in a process of their own: `command` starts this program as `drive`, wherever.
///
/// # Errors
/// If it cannot be started or ends without a word; and what [`clients`] fails with over there.
pub fn clients_apart(
    mut command: Command,
    crowd: &Crowd,
    target: SocketAddr,
    progress: &mut dyn FnMut(&Now),
    stop: &AtomicBool,
) -> Result<Seen> {
    contract::sys::die_with_parent(&mut command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("fork and exec: the process of the clients")?;
    let mut orders = child.stdin.take();
    let heard = child.stdout.take().context("the clients' process has no stdout")?;
    let mut order = serde_json::to_vec(&(target, crowd)).context("the clients as JSON")?;
    order.push(b'\n');
    if let Some(orders) = &mut orders {
        orders.write_all(&order).context("write to the clients' process")?;
    }
    let mut ended = None;
    for line in BufReader::new(heard).lines() {
        let line = line.context("read from the clients' process")?;
        match serde_json::from_str(&line).context("a line of the clients' process")? {
            Message::Now(now) => progress(&now),
            Message::Seen(seen) => ended = Some(Ok(seen)),
            Message::Failed(why) => ended = Some(Err(anyhow!(why))),
        }
        if stop.load(Ordering::Relaxed) {
            drop(orders.take()); // Its stdin ends, and it stops.
        }
    }
    let status = child.wait().context("waitpid: the clients' process")?;
    ended.unwrap_or_else(|| Err(anyhow!("the clients' process ended without a report: {status}")))
}

/// The process of [`clients_apart`]: one line says what to do, and the end of stdin says to stop.
///
/// # Errors
/// If nobody says what to do, or nobody hears what came of it.
pub fn serve_orders() -> Result<()> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("read: what to do")?;
    let (target, crowd): (SocketAddr, Crowd) = serde_json::from_str(&line)
        .context("what to do is not JSON: cargo lab starts this itself")?;
    // Our stdin ends with the parent, or when the parent wants us to stop. Nobody waits for this thread.
    let orders = thread::Builder::new().name("orders".into());
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        STOP.store(true, Ordering::Relaxed);
    };
    orders.spawn(wait).context("clone: no thread left")?;
    let mut progress = |now: &Now| {
        // If nobody hears it, the parent has ended, and so has our stdin.
        let _ = say(&Message::Now(now.clone()));
    };
    say(&match clients(&crowd, target, &mut progress, &STOP) {
        Ok(seen) => Message::Seen(seen),
        Err(error) => Message::Failed(format!("{error:#}")),
    })
}

fn say(message: &Message) -> Result<()> {
    let mut line = serde_json::to_vec(message).context("what is said as JSON")?;
    line.push(b'\n');
    io::stdout().write_all(&line).context("write: what is said")
}

impl Crowd {
    /// Descriptors that it may need at once: everybody who is due within one patience, and every stalled
    /// client.
    pub fn descriptors(&self) -> usize {
        let highest = self.rates.iter().copied().fold(0.0, f64::max);
        let requests: f64 = self.rates.iter().map(|rate| rate * self.hold.as_secs_f64()).sum();
        let stalled = requests * self.stall_percent / 100.0;
        (highest * self.timeout.as_secs_f64() + stalled).ceil() as usize + 64
    }

    /// The longest that it takes: all steps, and the patience of the last client.
    pub fn length(&self) -> Duration {
        self.hold * self.rates.len() as u32 + self.timeout
    }

    /// The plan against the server at `target`.
    ///
    /// # Errors
    /// If no stalled client is called so.
    pub fn plan(&self, target: SocketAddr) -> Result<Plan> {
        let mut plan = Plan::steps(target, self.rates.clone(), self.hold);
        if self.stall != "none" {
            let kind: StallKind = self.stall.parse()?;
            plan = plan.with_stall(Stall { share: self.stall_percent / 100.0, kind });
        }
        if let Some(seed) = self.poisson {
            plan = plan.with_arrivals(Arrivals::Poisson, seed);
        }
        // The stalled clients hold on until the end. If they left when the others' patience ends, a server
        // that waits for each of them would be seen to answer everybody, late.
        Ok(plan.with_timeout(self.timeout).with_stall_hold(self.length()))
    }
}

impl Now {
    fn of(now: &Progress) -> Now {
        Now {
            fraction: now.fraction,
            elapsed_s: now.elapsed_s,
            step: now.step,
            target_qps: now.target_qps,
            correct: now.correct,
            failed: now.failed,
            in_flight: now.in_flight,
            p99_ms: now.p99_ms,
        }
    }
}

impl Step {
    fn of(step: &StepReport, crowd: &Crowd, report: &Report) -> Step {
        let gone = [Outcome::Refused, Outcome::Reset, Outcome::ClosedEarly, Outcome::Interrupted];
        let totals = &step.totals;
        let latency = &totals.latency.total;
        let seen = |ms: f64| (latency.count > 0).then(|| round(ms));
        let has =
            |outcomes: &[Outcome]| totals.rows.iter().any(|row| outcomes.contains(&row.outcome));
        Step {
            record: Record {
                stall: crowd.stall.clone(),
                stall_percent: crowd.stall_percent,
                target_qps: step.target_qps,
                achieved_qps: round(totals.achieved_qps),
                hold_s: step.length_s,
                timeout_s: report.plan.timeout.as_secs_f64(),
                scheduled: totals.scheduled,
                correct: totals.correct,
                wrong: totals.wrong,
                errors: totals.errors,
                p50_ms: seen(latency.p50_ms),
                p90_ms: seen(latency.p90_ms),
                p99_ms: seen(latency.p99_ms),
                max_ms: seen(latency.max_ms),
                client_bound: step.client_bound,
                ..Record::default()
            },
            complete: totals.scheduled > 0 && !has(&[Outcome::Interrupted]),
            met_nobody: has(&gone),
            client_bound_because: step.client_bound_because.clone(),
        }
    }
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
