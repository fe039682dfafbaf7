//! The staircases: some servers at a time, each with its own clients.

use crate::{
    binaries::Binary,
    drive::{self, Crowd, Run},
    experiment::{Bench, Scale},
    race::STALL_SHARE,
};
use anyhow::Result;
use std::time::Duration;
use stress::StallKind;

/// What one server is to be put through.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The server.
    pub server: &'a Binary,
    /// What 0.5 % of the clients do; `None` is the highest step alone, and nobody stalls.
    pub kind: Option<StallKind>,
    /// What its rows are called in the record.
    pub name: &'static str,
    /// Which of the equal runs it is, from 1; `None` for a baseline, which has its repeats as steps.
    pub seed: Option<u64>,
    /// The number of its first row.
    pub first_step: u32,
}

impl Job<'_> {
    /// The name under which the journal keeps it.
    pub fn part(&self) -> String {
        let kind = self.kind.map_or("none", StallKind::name);
        format!("{} {} {kind} #{}", self.name, self.server.column.name, self.seed.unwrap_or(0))
    }
}

/// Descriptors that a staircase may need at once.
pub fn descriptors(scale: &Scale) -> usize {
    scale.crowd(StallKind::Silent, STALL_SHARE * 100.0).descriptors()
}

/// Runs all `jobs` at once, each with a server of its own.
pub fn run_all(bench: &Bench<'_>, jobs: &[Job<'_>]) -> Vec<Result<Run>> {
    drive::side_by_side(jobs, |job| {
        let job = drive::Job {
            server: job.server,
            experiment: job.name,
            link: "loopback".into(),
            seed: job.seed,
            first_step: job.first_step,
            crowd: crowd(job, bench.scale),
        };
        drive::on_loopback(&job, bench.screen, bench.stop)
    })
}

fn crowd(job: &Job<'_>, scale: &Scale) -> Crowd {
    match job.kind {
        Some(kind) => scale.crowd(kind, STALL_SHARE * 100.0),
        None => Crowd {
            rates: vec![scale.rates.iter().copied().fold(0.0, f64::max)],
            // Long enough to be seen, whatever the length of the staircase.
            hold: scale.hold.min(Duration::from_secs(3)),
            ..scale.nobody_stalls()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_of_a_staircase_are_those_who_wait_and_those_who_stall() {
        assert_eq!(descriptors(&Scale::short()), 2_070 + 17 + 64);
        assert_eq!(descriptors(&Scale::full()), 6_900 + 118 + 64);
    }

    #[test]
    fn the_scales_are_those_of_the_story() {
        assert_eq!(Scale::full().requests(), 23_500);
        assert_eq!(Scale::short().requests(), 3_300);
        assert_eq!(Scale::short().staircase_length(), Duration::from_millis(19_500));
    }
}
