//! Clients who keep their connections: the same number of them at each step, asking by HTTP, each when its
//! own schedule says so.

use super::crowd::{Crowd, Now, Seen, Step};
use crate::records::{Record, round};
use anyhow::Result;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use stress::{
    Outcome, Progress,
    http::{self, Plan, Report},
};

/// After the time in which each connection asks its first question: the last of them is answered.
const FIRST_ANSWERS: Duration = Duration::from_millis(500);

/// Between two steps: the connections of the one have ended before those of the other begin.
const SETTLED: Duration = Duration::from_millis(300);

/// What is asked: the question of all chapters.
const PATH: &str = "/parity/7";

/// Between two words about connections that are being opened.
const OPENING: Duration = Duration::from_millis(100);

/// The clients of `crowd` with so many `connections`, in threads of this process. Each step opens them anew,
/// and ends when all that was due in it is answered, or nobody waits any longer: no step hands on what it
/// could not do. Of each, [`Now::elapsed_s`] counts from its own first request.
///
/// # Errors
/// Those of [`http::run`].
pub fn clients_kept(
    crowd: &Crowd,
    connections: usize,
    target: SocketAddr,
    progress: &mut dyn FnMut(&Now),
    stop: &AtomicBool,
) -> Result<Seen> {
    let mut seen = Seen::default();
    for (index, &qps) in crowd.rates.iter().enumerate() {
        let plan = Plan::steady(target, PATH, connections, qps, crowd.hold)
            .with_warmup(warm_up(connections, qps))
            .with_timeout(crowd.timeout);
        let mut said = Instant::now();
        let mut step_progress = |now: &Progress| {
            // Until the first request, the engine looks a thousand times a second.
            if now.elapsed_s > 0.0 || said.elapsed() >= OPENING {
                said = Instant::now();
                progress(&of_step(now, index, crowd.rates.len()));
            }
        };
        let report = http::run(&plan, &mut step_progress, stop)?;
        seen.steps.push(step(&report, crowd, qps));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(SETTLED);
    }
    Ok(seen)
}

/// At the full rate before what counts: each connection has asked once. The first question of a connection is
/// acknowledged at once, and not by its answer, as Linux does while it does not know that an answer follows.
pub fn warm_up(connections: usize, qps: f64) -> Duration {
    Duration::from_secs_f64(connections as f64 / qps) + FIRST_ANSWERS
}

/// About how long all steps take: a SYN that is lost comes again after a second, and what waits at the end of a
/// step has to be worked off.
pub fn about(crowd: &Crowd, connections: usize) -> Duration {
    let step = |qps: &f64| {
        warm_up(connections, *qps) + crowd.hold + SETTLED + Duration::from_millis(1_500)
    };
    crowd.rates.iter().map(step).sum()
}

fn of_step(now: &Progress, index: usize, steps: usize) -> Now {
    Now {
        fraction: (index as f64 + now.fraction) / steps as f64,
        elapsed_s: now.elapsed_s,
        step: index,
        target_qps: now.target_qps,
        correct: now.correct,
        failed: now.failed,
        in_flight: now.in_flight,
        p99_ms: 0.0,
    }
}

fn step(report: &Report, crowd: &Crowd, qps: f64) -> Step {
    let latency = report.latency.as_ref().unwrap_or(&report.from_sent);
    let seen = |ms: f64| (latency.count > 0).then(|| round(ms));
    let wrong = report.wrong.statuses.values().sum::<u64>() + report.wrong.malformed;
    let never_left = report.backlog.at_end + report.not_sent;
    let left = report.scheduled.saturating_sub(never_left);
    let gone = [Outcome::Refused, Outcome::Reset, Outcome::ClosedEarly];
    Step {
        record: Record {
            stall: crowd.stall.clone(),
            stall_percent: crowd.stall_percent,
            target_qps: qps,
            achieved_qps: round(left as f64 / crowd.hold.as_secs_f64()),
            hold_s: crowd.hold.as_secs_f64(),
            timeout_s: crowd.timeout.as_secs_f64(),
            scheduled: report.scheduled,
            correct: report.correct,
            wrong,
            errors: report.scheduled - report.correct - wrong,
            p50_ms: seen(latency.p50_ms),
            p90_ms: seen(latency.p90_ms),
            p99_ms: seen(latency.p99_ms),
            max_ms: seen(latency.max_ms),
            client_bound: report.client_bound,
            clients: Some(report.plan.connections),
            waiting: Some(report.backlog.at_end),
            ..Record::default()
        },
        complete: report.scheduled > 0 && !report.interrupted,
        met_nobody: report.rows.iter().any(|row| gone.contains(&row.outcome)),
        client_bound_because: report.client_bound_because.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{drive::clients, experiment::Scale};
    use stress::http::known::{Behaviour, KnownServer};

    fn crowd() -> Crowd {
        Crowd {
            rates: vec![100.0, 400.0],
            hold: Duration::from_millis(500),
            timeout: Duration::from_secs(2),
            kept: Some(4),
            ..Scale::smoke().nobody_stalls()
        }
    }

    #[test]
    fn requests_wait_where_a_connection_asks_more_than_it_is_answered() {
        // A connection has an answer each 20 ms at most: four have 200 a second, and 400 is too many.
        let server = KnownServer::start(Behaviour::Answer(Duration::from_millis(20))).unwrap();
        let mut steps = Vec::new();
        let mut progress = |now: &Now| {
            if now.elapsed_s > 0.0 {
                steps.push(now.step);
            }
        };
        let stop = AtomicBool::new(false);
        let seen = clients(&crowd(), server.address, &mut progress, &stop).unwrap();
        let [slow, fast] = &seen.steps[..] else { panic!("two steps: {seen:?}") };
        let (slow, fast) = (&slow.record, &fast.record);
        assert_eq!((slow.clients, slow.correct), (Some(4), slow.scheduled));
        // All are answered, later, as long as nobody's patience ends.
        assert_eq!(fast.correct, fast.scheduled);
        assert!(10 * slow.waiting.unwrap() < slow.scheduled, "{slow:?}");
        assert!(4 * fast.waiting.unwrap() > fast.scheduled, "{fast:?}");
        assert!(fast.achieved_qps < 300.0, "in the time of the step: {fast:?}");
        steps.dedup();
        assert_eq!(steps, [0, 1]);
    }

    #[test]
    fn who_has_enough_has_no_whole_step() {
        let server = KnownServer::start(Behaviour::Answer(Duration::ZERO)).unwrap();
        let stop = AtomicBool::new(false);
        let mut progress = |now: &Now| {
            stop.fetch_or(now.elapsed_s > 0.0, Ordering::Relaxed);
        };
        let seen = clients(&crowd(), server.address, &mut progress, &stop).unwrap();
        assert!(seen.steps.iter().all(|step| !step.complete), "{seen:?}");
        assert_eq!(seen.steps.len(), 1, "the second is not begun");
    }
}
