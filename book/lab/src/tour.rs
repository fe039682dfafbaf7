//! All experiments, one after the other: one that fails does not keep the others from being run, and what
//! failed is said at the end.

use crate::{experiment::Experiment, link::Unavailable, measure::Ended};
use anyhow::Result;
use std::process::ExitCode;

/// What came of all of them.
#[derive(Debug, Default)]
pub struct Tour {
    /// A sentence for each, in order.
    lines: Vec<String>,
    failed: bool,
    interrupted: bool,
}

/// Takes `experiments` as `conduct` does each, until the reader has had enough.
pub fn take(
    experiments: &[&(dyn Experiment + Sync)],
    conduct: impl Fn(&dyn Experiment) -> Result<Ended>,
) -> Tour {
    let mut tour = Tour::default();
    for experiment in experiments {
        if tour.interrupted {
            tour.add(experiment.name(), "not begun");
            continue;
        }
        match conduct(*experiment) {
            Ok(ended) => tour.note(experiment.name(), &ended),
            Err(error) if error.is::<Unavailable>() => {
                tour.add(experiment.name(), &format!("left out: {error:#}"));
            }
            Err(error) => {
                tour.failed = true;
                tour.add(experiment.name(), &format!("failed: {error:#}"));
            }
        }
    }
    tour
}

impl Tour {
    fn note(&mut self, name: &str, ended: &Ended) {
        self.failed |= !ended.failures.is_empty();
        self.interrupted |= ended.interrupted;
        match (ended.skipped, ended.interrupted) {
            (true, _) => {
                self.add(name, "its record is whole, of this commit (--fresh begins anew)")
            }
            (_, true) => self.add(name, "ended early"),
            _ if ended.failures.is_empty() => self.add(name, "measured"),
            _ => {
                self.add(name, "not all could be measured as it should:");
                self.lines.extend(ended.failures.iter().map(|it| format!("      {it}")));
            }
        }
    }

    fn add(&mut self, name: &str, words: &str) {
        self.lines.push(format!("  {name:<10} {words}"));
    }

    /// Says what came of each, and gives the status of the command: 0 if nothing failed. What a machine does
    /// not let us do is said, and is no failure.
    pub fn say(&self) -> ExitCode {
        eprintln!("\n{}", self.lines.join("\n"));
        match (self.interrupted, self.failed) {
            (true, _) => ExitCode::from(130),
            (false, false) => ExitCode::SUCCESS,
            (false, true) => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::EXPERIMENTS;

    /// The tour of the first five, of which all but one end as `end` says.
    fn tour(end: impl Fn(&str) -> Result<Ended>) -> Tour {
        take(&EXPERIMENTS[..5], |experiment| end(experiment.name()))
    }

    #[test]
    fn one_that_fails_keeps_no_other_from_being_run() {
        let first = EXPERIMENTS[0].name();
        let tour = tour(|name| match name {
            _ if name == first => anyhow::bail!("fork: no memory"),
            _ => Ok(Ended::default()),
        });
        assert_eq!(tour.lines[0], "  race       failed: fork: no memory");
        assert!(tour.lines[1..].iter().all(|line| line.ends_with(" measured")), "{tour:?}");
        assert_eq!(format!("{:?}", tour.say()), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn what_lacks_is_told_below_its_name() {
        let lacks =
            |_: &str| Ok(Ended { failures: vec!["03 cannot run".into()], ..Ended::default() });
        let tour = tour(lacks);
        assert_eq!(tour.lines.len(), 10);
        assert_eq!(tour.lines[1], "      03 cannot run");
        assert!(tour.failed);
    }

    #[test]
    fn after_ctrl_c_nothing_more_is_begun() {
        let tour = tour(|_| Ok(Ended { interrupted: true, ..Ended::default() }));
        assert_eq!(tour.lines[0], "  race       ended early");
        assert!(tour.lines[1..].iter().all(|line| line.ends_with(" not begun")), "{tour:?}");
        assert_eq!(format!("{:?}", tour.say()), format!("{:?}", ExitCode::from(130)));
    }

    #[test]
    fn what_a_machine_does_not_let_us_do_is_left_out_and_no_failure() {
        let tour = tour(|_| Err(crate::link::Unavailable("no namespaces here".into()).into()));
        assert!(tour.lines[0].starts_with("  race       left out: "), "{tour:?}");
        assert!(!tour.failed);
    }
}
