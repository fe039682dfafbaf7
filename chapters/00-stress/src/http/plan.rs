//! What is to be done in a run over HTTP.

use crate::plan::{Arrivals, seconds};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::{net::SocketAddr, time::Duration};

/// The most requests that one answer may have to wait behind.
const PIPELINE_MAX: usize = 256;

/// Everything that a run needs to know. Build one with [`Plan::steady`] or [`Plan::saturate`], and change
/// it with the `with_…` functions.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The server, already resolved.
    pub target: SocketAddr,
    /// What is asked for, such as `/parity/7`.
    pub path: String,
    /// When requests leave.
    pub pace: Pace,
    /// Connections, opened before the first request leaves and opened again when the server closes.
    pub connections: usize,
    /// The most requests of one connection that are under way at once.
    pub pipeline: usize,
    /// Time at the full rate whose requests are not counted.
    #[serde(rename = "warmup_s", serialize_with = "seconds")]
    pub warmup: Duration,
    /// Time that is counted, after the warm-up.
    #[serde(rename = "steady_s", serialize_with = "seconds")]
    pub length: Duration,
    /// How long a request waits for its answer, from its sending on. With a schedule, this is also how long
    /// after its end the backlog is worked off.
    #[serde(rename = "timeout_s", serialize_with = "seconds")]
    pub timeout: Duration,
    /// Threads of the engine, each with its share of the connections.
    pub threads: usize,
    /// The CPU to which all of them are pinned. If they saturate a server that is pinned to the same CPU alone
    /// (as `server_pid` shows), they are batch threads (`SCHED_BATCH`), and do not interrupt it.
    pub cpu: Option<usize>,
    /// The process whose CPU time is to be read before and after.
    pub server_pid: Option<i32>,
    /// Whether to keep a record of each request, for a log.
    pub keep_records: bool,
}

/// When requests leave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Pace {
    /// An open loop: each connection sends when its own schedule says so.
    Schedule {
        /// Requests per second of all connections together.
        qps: f64,
        /// How the requests of one connection are spread.
        arrivals: Arrivals,
        /// The dice of [`Arrivals::Poisson`].
        seed: u64,
    },
    /// A closed loop: each connection sends when an answer has come.
    Saturate,
}

impl Plan {
    /// An open loop at `qps` requests per second, divided among `connections`, for `length`.
    pub fn steady(
        target: SocketAddr,
        path: &str,
        connections: usize,
        qps: f64,
        length: Duration,
    ) -> Plan {
        let pace = Pace::Schedule { qps, arrivals: Arrivals::Uniform, seed: 1 };
        Plan::new(target, path, connections, pace, length)
    }

    /// A closed loop with `connections`, for `length`.
    pub fn saturate(target: SocketAddr, path: &str, connections: usize, length: Duration) -> Plan {
        Plan::new(target, path, connections, Pace::Saturate, length)
    }

    fn new(
        target: SocketAddr,
        path: &str,
        connections: usize,
        pace: Pace,
        length: Duration,
    ) -> Plan {
        Plan {
            target,
            path: path.to_owned(),
            pace,
            connections,
            pipeline: 1,
            warmup: Duration::ZERO,
            length,
            timeout: Duration::from_secs(15),
            threads: 1,
            cpu: None,
            server_pid: None,
            keep_records: false,
        }
    }

    /// Sets how many requests of one connection may be under way at once.
    pub fn with_pipeline(self, pipeline: usize) -> Plan {
        Plan { pipeline, ..self }
    }

    /// Sets the time at the full rate that is not counted.
    pub fn with_warmup(self, warmup: Duration) -> Plan {
        Plan { warmup, ..self }
    }

    /// Sets how long a request waits for its answer.
    pub fn with_timeout(self, timeout: Duration) -> Plan {
        Plan { timeout, ..self }
    }

    /// Sets the number of engine threads.
    pub fn with_threads(self, threads: usize) -> Plan {
        Plan { threads, ..self }
    }

    /// Pins the engine's threads to one CPU.
    pub fn with_cpu(self, cpu: usize) -> Plan {
        Plan { cpu: Some(cpu), ..self }
    }

    /// Names the process whose CPU time is to be read.
    pub fn with_server_pid(self, pid: i32) -> Plan {
        Plan { server_pid: Some(pid), ..self }
    }

    /// Keeps a record of each request.
    pub fn with_records(self) -> Plan {
        Plan { keep_records: true, ..self }
    }

    /// Spreads the requests of a schedule differently. A closed loop has none, and is left as it is.
    pub fn with_arrivals(mut self, arrivals: Arrivals, seed: u64) -> Plan {
        if let Pace::Schedule { qps, .. } = self.pace {
            self.pace = Pace::Schedule { qps, arrivals, seed };
        }
        self
    }

    /// The planned rate, if there is one.
    pub fn qps(&self) -> Option<f64> {
        match self.pace {
            Pace::Schedule { qps, .. } => Some(qps),
            Pace::Saturate => None,
        }
    }

    /// Says in a sentence what cannot be done, before anything is done.
    ///
    /// # Errors
    /// If a rate, a time, a number or the path is outside of what makes sense.
    pub fn check(&self) -> Result<()> {
        if let Some(qps) = self.qps() {
            ensure!(
                qps.is_finite() && qps > 0.0 && qps <= 1e7,
                "a rate of {qps} requests per second: it has to be above 0 and at most 10,000,000"
            );
        }
        let visible = self.path.bytes().all(|byte| byte.is_ascii_graphic());
        ensure!(
            self.path.starts_with('/') && visible,
            "--http '{}': a path begins with / and has no blanks, such as /parity/7",
            self.path
        );
        let day = Duration::from_secs(86_400);
        ensure!(
            !self.length.is_zero(),
            "the run has no length: give it at least some milliseconds"
        );
        ensure!(self.length <= day && self.warmup <= day, "a run lasts at most 24 hours");
        ensure!(!self.timeout.is_zero(), "a timeout of 0 would answer nobody: give at least 0.001");
        ensure!(self.timeout <= day, "a timeout lasts at most 24 hours");
        ensure!(self.connections > 0, "0 connections send nothing: give at least 1");
        ensure!(
            (1..=PIPELINE_MAX).contains(&self.pipeline),
            "--pipeline: give 1 to {PIPELINE_MAX} requests"
        );
        ensure!((1..=256).contains(&self.threads), "threads: give 1 to 256");
        ensure!(
            self.connections >= self.threads,
            "fewer --connections than --threads: some threads could send nothing"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_without_sense_is_refused_in_a_sentence() {
        let second = Duration::from_secs(1);
        let target = "127.0.0.1:1".parse().unwrap();
        let plan = |path, connections, qps| Plan::steady(target, path, connections, qps, second);
        plan("/", 1, 1.0).check().unwrap();
        Plan::saturate(target, "/a?b=c", 1, second).check().unwrap();
        let bad = [
            plan("/", 1, 0.0),
            plan("/", 1, f64::INFINITY),
            plan("/", 0, 1.0),
            plan("", 1, 1.0),
            plan("parity/7", 1, 1.0),
            plan("/ HTTP/1.1\r\nX:", 1, 1.0),
            plan("/", 1, 1.0).with_threads(2),
            plan("/", 1, 1.0).with_threads(0),
            plan("/", 1, 1.0).with_pipeline(0),
            plan("/", 1, 1.0).with_pipeline(1000),
            plan("/", 1, 1.0).with_timeout(Duration::ZERO),
            Plan::saturate(target, "/", 1, Duration::ZERO),
        ];
        for plan in bad {
            assert!(plan.check().is_err(), "{plan:?}");
        }
    }
}
