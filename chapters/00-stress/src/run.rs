//! A run: checks, engines in their threads, somebody who watches them, and the report.

use crate::{
    clock::{now_ns, process_cpu_ns},
    engine::{Live, Seen, Shared, run_engine},
    latency::Summary,
    plan::Plan,
    report::{Measured, Report},
    resources,
    schedule::{slots, steps},
};
use anyhow::{Context, Result, anyhow};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Time for the threads to be ready before the first request is due.
const LEAD_NS: u64 = 50_000_000;

const LOOK: Duration = Duration::from_millis(200);

/// How a run is doing.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Of the schedule, between 0 and 1. At 1 all requests are under way, and their ends are awaited.
    pub fraction: f64,
    /// Seconds since the start.
    pub elapsed_s: f64,
    /// The step under way, from 0.
    pub step: usize,
    /// Its rate.
    pub target_qps: f64,
    /// Requests due so far.
    pub scheduled: u64,
    /// Of those, answered right.
    pub correct: u64,
    /// Of those, ended otherwise.
    pub failed: u64,
    /// Under way.
    pub in_flight: usize,
    /// Correct answers since the last look, in milliseconds; 0 if there were none.
    pub p50_ms: f64,
    /// As above.
    pub p99_ms: f64,
}

/// Drives the load of `plan`, and returns when all requests have ended, or soon after `stop` is set. `progress` is
/// called a few times a second. Several runs may go on at once in one process.
///
/// # Errors
/// If the plan makes no sense, if descriptors or ports cannot suffice for it (with the remedy), or if
/// the kernel refuses a timer or epoll. A server that fails is not an error: that is in the report.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&Progress), stop: &AtomicBool) -> Result<Report> {
    let slots = slots(plan)?;
    let warnings = resources::check(plan, &slots)?;
    let server_cpu_before = plan.server_pid.map(process_cpu_ns).transpose()?;
    let shared = Shared {
        plan,
        slots: &slots,
        origin_ns: now_ns() + LEAD_NS,
        stop,
        busy: AtomicUsize::new(plan.threads),
    };
    let lives: Vec<Mutex<Live>> = (0..plan.threads).map(|_| Mutex::default()).collect();
    let results: Vec<Result<Seen>> = thread::scope(|scope| {
        let watcher = thread::current();
        let spawn = |(index, live)| {
            let (shared, watcher) = (&shared, watcher.clone());
            let work = move || {
                let result = run_engine(shared, index, live);
                watcher.unpark();
                result
            };
            let named = thread::Builder::new().name(format!("stress-{index}"));
            named.spawn_scoped(scope, work).inspect_err(|_| {
                shared.busy.fetch_sub(1, Ordering::Relaxed);
            })
        };
        let threads: Vec<_> = lives.iter().enumerate().map(spawn).collect();
        while threads.iter().flatten().any(|thread| !thread.is_finished()) {
            thread::park_timeout(LOOK);
            progress(&look(&shared, &lives));
        }
        let join = |thread: std::io::Result<thread::ScopedJoinHandle<'_, _>>| match thread {
            Ok(thread) => thread.join().map_err(|_| anyhow!("an engine thread panicked"))?,
            Err(error) => Err(error).context("clone: no thread for the engine"),
        };
        threads.into_iter().map(join).collect()
    });
    let seen = results.into_iter().collect::<Result<Vec<Seen>>>()?;
    let server_cpu_after = plan.server_pid.map(process_cpu_ns).transpose();
    let measured = Measured {
        seen,
        origin_ns: shared.origin_ns,
        interrupted: stop.load(Ordering::Relaxed),
        server_cpu_ns: match (server_cpu_before, server_cpu_after) {
            (Some(before), Ok(Some(after))) => Some(after.saturating_sub(before)),
            _ => None,
        },
        warnings,
    };
    Ok(Report::new(plan, measured))
}

fn look(shared: &Shared<'_>, lives: &[Mutex<Live>]) -> Progress {
    let steps = steps(shared.plan);
    let elapsed_ns = now_ns().saturating_sub(shared.origin_ns);
    let length_ns = steps.last().map_or(1, |step| step.start_ns + step.length_ns);
    let mut sum = Live::default();
    for live in lives {
        let Ok(mut live) = live.lock() else { continue };
        sum.step = sum.step.max(live.step);
        sum.due += live.due;
        sum.correct += live.correct;
        sum.failed += live.failed;
        sum.in_flight += live.in_flight;
        sum.latencies_ns.append(&mut live.latencies_ns);
    }
    let recent = Summary::of(sum.latencies_ns);
    let step = usize::from(sum.step).min(steps.len() - 1);
    Progress {
        fraction: (elapsed_ns as f64 / length_ns as f64).min(1.0),
        elapsed_s: elapsed_ns as f64 / 1e9,
        step,
        target_qps: steps[step].target_qps,
        scheduled: sum.due,
        correct: sum.correct,
        failed: sum.failed,
        in_flight: sum.in_flight,
        p50_ms: recent.p50_ms,
        p99_ms: recent.p99_ms,
    }
}
