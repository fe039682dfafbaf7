//! Clients: when they come, how long they wait, which of them stall; and what they have seen.

use super::kept;
use crate::records::{Record, round};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};
use stress::{Arrivals, Outcome, Plan, Progress, Report, Stall, StallKind, StepReport};

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
    /// So many connections stay, and all requests go over them, by HTTP; `None` is one line for each
    /// connection. Of these nobody stalls.
    pub kept: Option<usize>,
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
    /// Seconds since the schedule began; that of the step, where connections are kept.
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

/// The clients of `crowd`, in threads of this process.
///
/// # Errors
/// Those of [`stress::run`] and [`stress::http::run`].
pub fn clients(
    crowd: &Crowd,
    target: SocketAddr,
    progress: &mut dyn FnMut(&Now),
    stop: &AtomicBool,
) -> Result<Seen> {
    if let Some(connections) = crowd.kept {
        return kept::clients_kept(crowd, connections, target, progress, stop);
    }
    let report = stress::run(&crowd.plan(target)?, &mut |now| progress(&Now::of(now)), stop)?;
    let steady = report.steps.iter().filter(|it| it.phase == "steady");
    Ok(Seen { steps: steady.map(|step| Step::of(step, crowd, &report)).collect() })
}

impl Crowd {
    /// Descriptors that it may need at once: everybody who is due within one patience, and every stalled
    /// client.
    pub fn descriptors(&self) -> usize {
        if let Some(connections) = self.kept {
            return connections + 64;
        }
        let highest = self.rates.iter().copied().fold(0.0, f64::max);
        let requests: f64 = self.rates.iter().map(|rate| rate * self.hold.as_secs_f64()).sum();
        let stalled = requests * self.stall_percent / 100.0;
        (highest * self.timeout.as_secs_f64() + stalled).ceil() as usize + 64
    }

    /// The longest that it takes: all steps, and the patience of the last client. Where connections are kept,
    /// about how long.
    pub fn length(&self) -> Duration {
        match self.kept {
            Some(connections) => kept::about(self, connections),
            None => self.hold * self.rates.len() as u32 + self.timeout,
        }
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
