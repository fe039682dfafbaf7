//! What is kept of a measurement in the arena: one shape for all of its parts, so that a column means the
//! same in each. What a part does not look at is empty.

use serde::{Deserialize, Serialize};

/// One server under one load, once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The part: `arena-capacity`, …
    pub experiment: String,
    /// The model or the peer; `…-again` is the baseline at the end of a round.
    pub server: String,
    /// Which kind of waiting it is of, in a few words.
    pub family: String,
    /// `loopback`
    pub link: String,
    /// What the stalled clients do: `drip`, or `none`.
    pub stall: String,
    /// How many of 100 connections are theirs.
    pub stall_percent: f64,
    /// Which round, from 1.
    pub seed: u64,
    /// Which load, from 1.
    pub step: u32,
    /// The load in a word or two: `64 connections`.
    pub load: String,
    /// Connections that ask.
    pub connections: usize,
    /// Connections beside them that say nothing.
    pub idle: usize,
    /// Those of them that the server has answered before they fell silent.
    pub idle_answered: Option<usize>,
    /// Requests of one connection that are under way at once.
    pub pipeline: usize,
    /// Cores that server and client share.
    pub cores: usize,
    /// Workers that the server was told to have.
    pub workers: Option<usize>,
    /// Requests per second that were scheduled; empty where the next leaves when an answer has come.
    pub target_qps: Option<f64>,
    /// Answers per second.
    pub answers_per_s: f64,
    /// Right answers.
    pub answers: u64,
    /// Requests that got no answer, or a wrong one, or were never sent for want of an answer before.
    pub lost: u64,
    /// The first kind of loss, in words.
    pub first_error: String,
    /// Connections without any answer.
    pub starved: u64,
    /// Mean latency; from the schedule if there is one, and from the sending if not, as all that follow.
    pub mean_ms: Option<f64>,
    /// Half of those answered took at most this.
    pub p50_ms: Option<f64>,
    /// 90 of 100.
    pub p90_ms: Option<f64>,
    /// 99 of 100.
    pub p99_ms: Option<f64>,
    /// 999 of 1,000.
    pub p999_ms: Option<f64>,
    /// All.
    pub max_ms: Option<f64>,
    /// The longest wait of any connection, one that had not ended with the run included.
    pub longest_wait_ms: Option<f64>,
    /// Answers of the connection that got the fewest.
    pub answers_min: f64,
    /// Of the one in the middle.
    pub answers_median: f64,
    /// Of the one that got the most.
    pub answers_max: f64,
    /// CPU seconds of the server, all its processes, per million answers.
    pub server_cpu_s_per_million: Option<f64>,
    /// CPU seconds of the client per million answers.
    pub client_cpu_s_per_million: Option<f64>,
    /// System calls of the server per answer.
    pub calls_per_answer: Option<f64>,
    /// Processes of the server under load.
    pub processes: Option<usize>,
    /// Their threads.
    pub threads: Option<u64>,
    /// Resident memory of all of them.
    pub resident_bytes: Option<u64>,
    /// The same with shared pages divided among those who share them.
    pub proportional_bytes: Option<u64>,
    /// Their page tables.
    pub page_table_bytes: Option<u64>,
    /// What the stacks of all threads in the kernel have grown by since the server was started.
    pub kernel_stack_bytes: Option<i64>,
    /// What the kernel's objects have grown by; the client's sockets are in it.
    pub slab_bytes: Option<i64>,
    /// Whether the client was the limit.
    pub client_bound: bool,
    /// Whether requests that were due and not sent grew in number.
    pub backlog_grew: bool,
}
