//! A run over HTTP: checks, engines in their threads, somebody who watches them, and the report.

use super::{
    engine::{Engine, Live, Seen, Shared},
    plan::Plan,
    report::{Measured, Report},
};
use crate::{
    Progress,
    clock::{now_ns, process_cpu_ns},
    resources::check_connections,
};
use anyhow::{Context, Result, anyhow};
use std::{
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

const LOOK: Duration = Duration::from_millis(200);

/// Drives the load of `plan`, and returns when all is answered, or soon after `stop` is set. `progress` is
/// called a few times a second. Several runs may go on at once in one process.
///
/// # Errors
/// If the plan makes no sense, if descriptors or ports cannot suffice for it (with the remedy), if a thread
/// cannot be pinned, or if the kernel refuses a timer or epoll. A server that fails is not an error: that
/// is in the report.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&Progress), stop: &AtomicBool) -> Result<Report> {
    plan.check()?;
    check_connections(plan.target, plan.connections)?;
    plan.server_pid.map(process_cpu_ns).transpose()?;
    let shared =
        Shared { plan, stop, origin_ns: AtomicU64::new(0), ready: Barrier::new(plan.threads) };
    let lives: Vec<Mutex<Live>> = (0..plan.threads).map(|_| Mutex::default()).collect();
    let engines = lives.iter().enumerate().map(|(index, live)| Engine::new(&shared, index, live));
    let engines = engines.collect::<Result<Vec<Engine<'_>>>>()?;
    let mut server = ServerCpu::new(plan);
    let seen = thread::scope(|scope| {
        let watcher = thread::current();
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        for (index, engine) in engines.into_iter().enumerate() {
            let watcher = watcher.clone();
            let (start, started) = mpsc::channel::<()>();
            let work = move || {
                // No engine begins unless all can: they wait for each other later.
                started.recv().map_err(|_| anyhow!("another engine has no thread"))?;
                let result = engine.run();
                watcher.unpark();
                result
            };
            let named = thread::Builder::new().name(format!("stress-http-{index}"));
            let thread = named.spawn_scoped(scope, work);
            threads.push(thread.context("clone: no thread for the engine")?);
            starts.push(start);
        }
        for start in starts {
            let _ = start.send(()); // Who has ended already will say why.
        }
        while threads.iter().any(|thread| !thread.is_finished()) {
            thread::park_timeout(server.look(shared.origin_ns.load(Ordering::Acquire)));
            progress(&look(&shared, &lives));
        }
        server.end();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Seen>>| {
            thread.join().map_err(|_| anyhow!("an engine thread panicked"))?
        };
        threads.into_iter().map(join).collect::<Result<Vec<Seen>>>()
    })?;
    let origin_ns = shared.origin_ns.load(Ordering::Acquire);
    Ok(Report::new(
        plan,
        Measured {
            seen,
            window_ns: origin_ns + plan.warmup.as_nanos() as u64,
            interrupted: stop.load(Ordering::Relaxed),
            server_cpu_ns: server.used_ns(),
        },
    ))
}

/// The server's CPU time at the beginning and at the end of the part that counts.
struct ServerCpu {
    pid: Option<i32>,
    warmup_ns: u64,
    begin_ns: Option<u64>,
    end_ns: Option<u64>,
}

impl ServerCpu {
    fn new(plan: &Plan) -> ServerCpu {
        let warmup_ns = plan.warmup.as_nanos() as u64;
        ServerCpu { pid: plan.server_pid, warmup_ns, begin_ns: None, end_ns: None }
    }

    /// Reads the beginning when it has come, and says when to look again.
    fn look(&mut self, origin_ns: u64) -> Duration {
        let now = now_ns();
        let at_ns = origin_ns + self.warmup_ns;
        match self.pid {
            _ if origin_ns == 0 => Duration::from_millis(1),
            Some(pid) if self.begin_ns.is_none() && now >= at_ns => {
                self.begin_ns = process_cpu_ns(pid).ok();
                LOOK
            }
            Some(_) if now < at_ns => LOOK.min(Duration::from_nanos(at_ns - now)),
            _ => LOOK,
        }
    }

    fn end(&mut self) {
        self.end_ns = self.pid.and_then(|pid| process_cpu_ns(pid).ok());
    }

    fn used_ns(&self) -> Option<u64> {
        Some(self.end_ns?.saturating_sub(self.begin_ns?))
    }
}

fn look(shared: &Shared<'_>, lives: &[Mutex<Live>]) -> Progress {
    let plan = shared.plan;
    let origin_ns = shared.origin_ns.load(Ordering::Acquire);
    let elapsed_ns = if origin_ns == 0 { 0 } else { now_ns().saturating_sub(origin_ns) };
    let length = plan.warmup + plan.length;
    let mut sum = Live::default();
    for live in lives {
        let Ok(live) = live.lock() else { continue };
        sum.due += live.due;
        sum.correct += live.correct;
        sum.failed += live.failed;
        sum.in_flight += live.in_flight;
    }
    Progress {
        fraction: (elapsed_ns as f64 / 1e9 / length.as_secs_f64()).min(1.0),
        elapsed_s: elapsed_ns as f64 / 1e9,
        step: 0,
        target_qps: plan.qps().unwrap_or(0.0),
        scheduled: sum.due,
        correct: sum.correct,
        failed: sum.failed,
        in_flight: sum.in_flight,
        p50_ms: 0.0,
        p99_ms: 0.0,
    }
}
