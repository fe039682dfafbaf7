//! The instrument, checked: its pacing, its accuracy, its most load.

use crate::{
    clock::{now_ns, sleep_until},
    known::{Behaviour, KnownServer, Served},
    latency::Summary,
    plan::Plan,
    record::Outcome,
    report::Report,
    resources::resolve,
    run::run,
};
use anyhow::{Context, Result};
use nix::sys::prctl::set_timerslack;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// The highest step of the story's staircase.
const PACING_QPS: f64 = 460.0;
const PACING_TIME: Duration = Duration::from_secs(5);

/// The rates at which the most load is looked for.
const LOADS: [f64; 9] = [5e3, 10e3, 15e3, 20e3, 25e3, 30e3, 35e3, 40e3, 50e3];
const LOAD_TIME: Duration = Duration::from_secs(2);

/// Prints the figures of this instrument on this machine: pacing, accuracy and, if `address` is given, the most load on
/// the server there.
///
/// # Errors
/// If a run cannot be made.
pub fn calibrate(address: Option<&str>, server_pid: Option<i32>, stop: &AtomicBool) -> Result<()> {
    let target = address.map(resolve).transpose()?.map(|(target, _)| target);
    println!("Pacing: how late at {PACING_QPS}/s, in microseconds");
    print_pacing("clock_nanosleep, absolute, slack 1 ns", &sleeping(1)?);
    print_pacing("clock_nanosleep, absolute, default slack", &sleeping(50_000)?);
    let report = against(Behaviour::Answer(Duration::ZERO), PACING_QPS, PACING_TIME, stop)?.0;
    print_pacing("this engine: timerfd in epoll", &report.totals.lateness);
    println!("\nAccuracy: what is reported, and what the server's own log says, in ms");
    for (name, behaviour) in [
        ("answers after 20 ms", Behaviour::Answer(Duration::from_millis(20))),
        ("freezes for 1 s", Behaviour::FreezeAfter(Duration::from_secs(2))),
    ] {
        let (report, log) = against(behaviour, 200.0, Duration::from_secs(5), stop)?;
        print_accuracy(name, &report, &truth(&report, &log));
    }
    match target {
        Some(target) => most_load(target, server_pid, stop),
        None => {
            println!("\nMost load: give the ADDRESS of a server that runs on another core");
            Ok(())
        }
    }
}

/// How late an absolute sleep is, with a timer slack of `slack_ns`.
///
/// # Errors
/// If the kernel refuses the slack, or a thread.
pub fn sleeping(slack_ns: u64) -> Result<Summary> {
    // Slack belongs to a thread: one of its own leaves the caller's alone.
    let sleep = move || {
        set_timerslack(slack_ns as _).context("prctl(PR_SET_TIMERSLACK)")?;
        let gap_ns = (1e9 / PACING_QPS) as u64;
        let origin_ns = now_ns() + gap_ns;
        let count = (PACING_QPS * PACING_TIME.as_secs_f64()) as u64;
        let late = (0..count).map(|index| {
            let at_ns = origin_ns + index * gap_ns;
            sleep_until(at_ns);
            now_ns().saturating_sub(at_ns)
        });
        Ok(Summary::of(late))
    };
    match thread::Builder::new().spawn(sleep).context("clone: no thread")?.join() {
        Ok(summary) => summary,
        Err(_) => anyhow::bail!("the sleeping thread panicked"),
    }
}

/// A steady run against a server in this process, and that server's log.
///
/// # Errors
/// If the run cannot be made.
pub fn against(
    behaviour: Behaviour,
    qps: f64,
    length: Duration,
    stop: &AtomicBool,
) -> Result<(Report, Vec<Served>)> {
    let server = KnownServer::start(behaviour)?;
    let plan = Plan::steady(server.address, qps, Duration::ZERO, length);
    let report = run(&plan, &mut |_| {}, stop)?;
    let log = server.log();
    Ok((report, log))
}

/// What the latencies were by the server's own log: from the scheduled moment of each request to the moment at which
/// the server had answered it. The server answers in the order of the requests.
pub fn truth(report: &Report, log: &[Served]) -> Summary {
    let correct = report.records.iter().filter(|record| record.outcome == Outcome::Correct);
    Summary::of(correct.zip(log).map(|(record, served)| {
        served.answered_ns.saturating_sub(report.origin_ns + record.scheduled_ns)
    }))
}

fn print_pacing(name: &str, late: &Summary) {
    println!(
        "  {name:<42} p50 {:>7.0}  p90 {:>7.0}  p99 {:>7.0}  max {:>7.0}",
        late.p50_ms * 1e3,
        late.p90_ms * 1e3,
        late.p99_ms * 1e3,
        late.max_ms * 1e3
    );
}

fn print_accuracy(name: &str, report: &Report, truth: &Summary) {
    let seen = &report.totals.latency.total;
    println!(
        "  {name:<22} p50 {:>9.3} (log {:>9.3})  p99 {:>9.3} (log {:>9.3})  n {} ({})",
        seen.p50_ms, truth.p50_ms, seen.p99_ms, truth.p99_ms, seen.count, truth.count
    );
}

fn most_load(target: SocketAddr, server_pid: Option<i32>, stop: &AtomicBool) -> Result<()> {
    println!("\nMost load on {target}, one engine thread; CPU in microseconds per request");
    let mut most = 0.0;
    for qps in LOADS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut plan = Plan::steady(target, qps, Duration::ZERO, LOAD_TIME)
            .with_timeout(Duration::from_millis(500))
            .with_connections(4000);
        plan.server_pid = server_pid;
        let report = run(&plan, &mut |_| {}, stop)?;
        let cost = &report.cost;
        // CPU seconds per 100,000 requests are tens of microseconds per request.
        let server =
            cost.server_cpu_s_per_100k.map_or("–".into(), |cpu| format!("{:.1}", cpu * 10.0));
        println!(
            "  {qps:>6}/s: began {:>8.1}/s, answered {:>5.1} %, p99 {:>7.2} ms, thread busy {:>3.0} %, \
             CPU here {:.1}, server {server}{}",
            report.totals.achieved_qps,
            report.totals.success_percent,
            report.totals.latency.total.p99_ms,
            report.steps[0].cpu_share * 100.0,
            cost.own_cpu_s_per_100k * 10.0,
            if report.client_bound { "  CLIENT-BOUND" } else { "" }
        );
        if report.totals.correct == report.totals.scheduled {
            most = qps;
        } else if report.totals.success_percent < 90.0 {
            break;
        }
    }
    println!("  Most with every request sent and answered: {most}/s");
    Ok(())
}
