//! What the connections of one thread share: the request, the head that is expected, and the tally.

use super::{
    answer::{Answer, Template},
    plan::{Pace, Plan},
    report::{Record, Wrong},
};
use crate::{
    latency::http_histogram,
    record::{Outcome, Phase},
};
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags},
        socket::SockaddrStorage,
    },
};
use std::{collections::BTreeMap, net::SocketAddr};

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// In a closed loop the same as `sent_ns`.
    pub scheduled_ns: u64,
    pub sent_ns: u64,
}

/// The shared part of an engine.
pub(crate) struct Desk {
    pub epoll: Epoll,
    pub target: SocketAddr,
    pub address: SockaddrStorage,
    /// Requests, one after the other: one more than may be under way, so that one `send` takes any number
    /// of them, also from within the first.
    pub requests: Vec<u8>,
    pub request_length: usize,
    pub pipeline: usize,
    pub saturate: bool,
    pub timeout_ns: u64,
    pub template: Template,
    /// Whether requests may leave: not before all connections stand.
    pub running: bool,
    /// What is scheduled before this moment is not counted.
    pub window_ns: u64,
    /// The end of the schedule.
    pub end_ns: u64,
    pub in_flight: usize,
    pub due: usize,
    pub connecting: usize,
    pub keep_records: bool,
    pub tally: Tally,
}

/// What has been counted.
pub(crate) struct Tally {
    pub scheduled: u64,
    pub answers: u64,
    pub correct: u64,
    pub errors: u64,
    pub not_sent: u64,
    /// Requests that the generator noticed too late for its own good; see the report.
    pub late: u64,
    pub wrong: Wrong,
    pub bytes: u64,
    pub rows: BTreeMap<(Outcome, Phase, i32), u64>,
    /// From the schedule; in a closed loop, from sending.
    pub latency: Histogram<u64>,
    /// From sending, in an open loop.
    pub from_sent: Histogram<u64>,
    pub lateness: Histogram<u64>,
    pub connects: u64,
    pub reconnects: u64,
    pub resent: u64,
    pub closed_first: u64,
    pub last_answer_ns: u64,
    pub records: Vec<Record>,
}

impl Desk {
    pub fn new(plan: &Plan) -> Result<Desk> {
        // As few fields as the protocol allows: this is about waiting, not about parsing.
        let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", plan.path, plan.target);
        Ok(Desk {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll_create1")?,
            target: plan.target,
            address: SockaddrStorage::from(plan.target),
            requests: request.repeat(plan.pipeline + 1).into_bytes(),
            request_length: request.len(),
            pipeline: plan.pipeline,
            saturate: plan.pace == Pace::Saturate,
            timeout_ns: plan.timeout.as_nanos() as u64,
            template: Template::default(),
            running: false,
            window_ns: u64::MAX,
            end_ns: u64::MAX,
            in_flight: 0,
            due: 0,
            connecting: 0,
            keep_records: plan.keep_records,
            tally: Tally::new(),
        })
    }

    /// Whether a request with this moment is counted: not if it belongs to the warm-up. In a closed loop
    /// the moment is that of the end.
    pub fn counts(&self, asked: Asked, now_ns: u64) -> bool {
        self.window_ns <= if self.saturate { now_ns } else { asked.scheduled_ns }
    }

    /// Counts an answer. True if it belongs to the part that counts.
    pub fn answered(&mut self, line: u32, asked: Asked, answer: Answer, now_ns: u64) -> bool {
        if !self.counts(asked, now_ns) {
            return false;
        }
        let tally = &mut self.tally;
        tally.answers += 1;
        tally.bytes += answer.bytes;
        tally.last_answer_ns = now_ns;
        if answer.status == 200 {
            tally.correct += 1;
            tally.latency.saturating_record(now_ns.saturating_sub(asked.scheduled_ns));
            if !self.saturate {
                tally.from_sent.saturating_record(now_ns.saturating_sub(asked.sent_ns));
            }
        } else {
            *tally.wrong.statuses.entry(answer.status).or_default() += 1;
        }
        if self.keep_records {
            self.tally.records.push(Record {
                connection: line,
                status: answer.status,
                bytes: answer.bytes,
                scheduled_ns: asked.scheduled_ns,
                sent_ns: asked.sent_ns,
                answered_ns: now_ns,
            });
        }
        true
    }

    /// Counts a request that got no answer, or none that could be read.
    pub fn lost(&mut self, asked: Asked, row: (Outcome, Phase, Errno), now_ns: u64) {
        if !self.counts(asked, now_ns) {
            return;
        }
        match row.0 {
            Outcome::Wrong => self.tally.wrong.malformed += 1,
            _ => self.tally.errors += 1,
        }
        self.tally.row(row);
    }
}

impl Tally {
    fn new() -> Tally {
        Tally {
            scheduled: 0,
            answers: 0,
            correct: 0,
            errors: 0,
            not_sent: 0,
            late: 0,
            wrong: Wrong::default(),
            bytes: 0,
            rows: BTreeMap::new(),
            latency: http_histogram(),
            from_sent: http_histogram(),
            lateness: http_histogram(),
            connects: 0,
            reconnects: 0,
            resent: 0,
            closed_first: 0,
            last_answer_ns: 0,
            records: Vec::new(),
        }
    }

    /// One more of a row.
    pub fn row(&mut self, (outcome, phase, error): (Outcome, Phase, Errno)) {
        *self.rows.entry((outcome, phase, error as i32)).or_default() += 1;
    }
}
