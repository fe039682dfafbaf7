//! What a server is tried with: one scenario after the other, each in a process of its own.
//!
//! A scenario holds or does not: there is no half of it. What each means to a student is in the brief.

mod cores;
mod correctness;
mod robustness;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, bail};
use nix::sys::prctl;
use serde::{Deserialize, Serialize};

use super::caller::{Ground, Lacks};
use super::parameters::{Dice, Parameters};
use super::student::DESCRIPTORS;

/// The hidden command that tries one scenario.
pub const SCENARIO: &str = "__scenario";

/// The part of the rubric that a scenario belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The right bytes.
    Correctness,
    /// Whoever else is there.
    Robustness,
    /// The milestones 3 and 4.
    Cores,
    /// What the student's own test finds out.
    Tests,
}

impl Part {
    /// What it is called in the rubric.
    pub fn name(self) -> &'static str {
        match self {
            Part::Correctness => "correctness",
            Part::Robustness => "robustness",
            Part::Cores => "cores and completion",
            Part::Tests => "tests by the student",
        }
    }
}

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The part of the rubric.
    pub part: Part,
    /// By which milestone it is due.
    pub milestone: u8,
    /// What it is worth.
    pub points: f64,
    try_it: fn(&mut Ground) -> anyhow::Result<String>,
}

const fn scenario(
    part: Part,
    milestone: u8,
    points: f64,
    name: &'static str,
    try_it: fn(&mut Ground) -> anyhow::Result<String>,
) -> Scenario {
    Scenario { name, part, milestone, points, try_it }
}

/// The scenario that asks for completion, where the machine allows io_uring.
pub const COMPLETION: &str = "few_system_calls_per_answer";

use Part::{Cores, Correctness, Robustness};

/// All scenarios, in the order in which they are tried.
pub const SCENARIOS: [Scenario; 18] = [
    scenario(Correctness, 1, 4.0, "sums_are_right", correctness::sums),
    scenario(Correctness, 1, 4.0, "any_split_is_the_same_request", correctness::splits),
    scenario(Correctness, 1, 3.0, "requests_in_one_piece_are_all_answered", correctness::pipelined),
    scenario(Correctness, 1, 3.0, "the_stop_rule_ends_a_conversation", correctness::stops),
    scenario(Correctness, 1, 3.0, "what_is_no_request_is_refused", correctness::refuses),
    scenario(Correctness, 1, 2.0, "a_half_closed_client_is_answered", correctness::half_closed),
    scenario(Correctness, 1, 1.0, "it_restarts_at_once", correctness::restarts),
    scenario(Robustness, 2, 5.0, "silent_clients_stall_nobody", robustness::silent),
    scenario(Robustness, 2, 5.0, "half_requests_stall_nobody", robustness::half),
    scenario(Robustness, 2, 3.0, "patience_ends_and_not_before", robustness::patience),
    scenario(Robustness, 2, 3.0, "a_dripping_client_is_let_go", robustness::dripping),
    scenario(Robustness, 2, 3.0, "a_deaf_client_harms_nobody", robustness::deaf),
    scenario(Robustness, 2, 2.0, "nothing_leaks", robustness::leaks),
    scenario(
        Robustness,
        2,
        2.0,
        "running_out_of_descriptors_does_not_spin",
        robustness::descriptors,
    ),
    scenario(Robustness, 2, 2.0, "an_idle_server_burns_no_cpu", robustness::idle),
    scenario(Cores, 3, 3.0, "every_reactor_serves", cores::every_reactor),
    scenario(Cores, 3, 2.0, "asked_to_stop_it_finishes", cores::finishes),
    scenario(Cores, 4, 5.0, COMPLETION, cores::few_calls),
];

/// The scenario called `name`.
///
/// # Errors
///
/// When there is none; the sentence names them.
pub fn named(name: &str) -> anyhow::Result<Scenario> {
    let found = SCENARIOS.iter().find(|it| it.name == name).copied();
    found.with_context(|| {
        let all: Vec<&str> = SCENARIOS.iter().map(|it| it.name).collect();
        format!("there is no scenario {name:?}; there are {}", all.join(", "))
    })
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Finding {
    /// It holds; what was seen.
    Holds(String),
    /// It does not; what was seen.
    Broken(String),
    /// Nothing was found, since this machine lacks something.
    Lacks(String),
}

/// The main function of the hidden command: `NAME EXE PARAMETERS SEED`, the finding on stdout.
///
/// # Errors
///
/// When the arguments are none of ours.
pub fn main(arguments: &[OsString]) -> anyhow::Result<()> {
    // Nobody else of this user may look into this process.
    prctl::set_dumpable(false).context("prctl(PR_SET_DUMPABLE)")?;
    let [name, exe, parameters, seed] = arguments else {
        bail!("{SCENARIO} NAME EXE PARAMETERS SEED")
    };
    let scenario = named(&name.to_string_lossy())?;
    let parameters = parameters.to_string_lossy().parse::<Parameters>();
    let parameters = parameters.map_err(anyhow::Error::msg)?;
    let mut ground = Ground {
        exe: PathBuf::from(exe),
        parameters,
        dice: Dice::of(&format!("{}{}", seed.to_string_lossy(), scenario.name)),
        reactors: 2,
        descriptors: DESCRIPTORS,
    };
    let finding = match (scenario.try_it)(&mut ground) {
        Ok(seen) => Finding::Holds(seen),
        Err(error) => match error.downcast_ref::<Lacks>() {
            Some(lacks) => Finding::Lacks(lacks.to_string()),
            None => Finding::Broken(format!("{error:#}.")),
        },
    };
    crate::say::line(serde_json::to_string(&finding).context("a finding")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_are_those_of_the_rubric() {
        let points = |part| -> f64 {
            SCENARIOS.iter().filter(|it| it.part == part).map(|it| it.points).sum()
        };
        assert_eq!((points(Correctness), points(Robustness), points(Cores)), (20.0, 25.0, 10.0));
    }
}
