//! What an experiment is, and the list of them.

use crate::{
    arena::{Arena, Part},
    binaries::Binary,
    drive::Crowd,
    journal::Journal,
    machine::Machine,
    records::{Noise, Table},
    screen::Screen,
};
use anyhow::Result;
use contract::verdicts::{CHAPTERS, Column};
use serde::Serialize;
use serde_json::Value;
use std::{sync::atomic::AtomicBool, time::Duration};
use stress::StallKind;

/// Every experiment, in the order of `cargo lab list`.
pub static EXPERIMENTS: &[&(dyn Experiment + Sync)] = &[
    &crate::race::Race::ONCE,
    &crate::stalls::Stalls,
    &crate::patience::Patience,
    &crate::backlog::Backlog,
    &crate::scaling::Scaling,
    &crate::spread::Spread,
    &crate::syscalls::Syscalls,
    &crate::memory::Memory,
    &crate::names::Names,
    &crate::staircase::Staircase::AS_ITS_FORM,
    &crate::knee::Knee,
    &crate::levers::Levers,
    &Arena(Part::Quick),
    &Arena(Part::Capacity),
    &Arena(Part::Latency),
    &Arena(Part::C10k),
    &Arena(Part::Syscalls),
    &Arena(Part::Scaling),
    &Arena(Part::Peers),
    &Arena(Part::Client),
    &Arena(Part::Profile),
];

/// A question that this machine can answer by running servers.
pub trait Experiment {
    /// The name on the command line, and of its files.
    fn name(&self) -> &'static str;

    /// What it asks, in one line.
    fn question(&self) -> &'static str;

    /// What is expected, in one line, so that it can turn out wrong.
    fn prediction(&self) -> &'static str;

    /// How long and how hard it is in a form.
    fn scale(&self, form: Form) -> Scale {
        match form {
            Form::Smoke => Scale::smoke(),
            Form::Short | Form::Full => Scale::short(),
        }
    }

    /// About how long it takes, without the build.
    fn about(&self, scale: &Scale, servers: usize) -> Duration;

    /// The servers that take part, if the reader does not choose.
    fn servers(&self) -> Vec<Column> {
        CHAPTERS.to_vec()
    }

    /// Whether it makes network namespaces, which not every machine lets us do.
    fn namespaces(&self) -> Namespaces {
        Namespaces::None
    }

    /// What its numbers depend on besides the scale and the servers; null if nothing is chosen.
    fn parameters(&self) -> Value {
        Value::Null
    }

    /// Runs it. A server that fails is no error: it is named in [`Outcome::failures`], and the others
    /// are measured all the same.
    ///
    /// # Errors
    /// If nothing at all can be measured.
    fn run(&self, bench: &Bench<'_>) -> Result<Outcome>;
}

/// Whether an experiment makes network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// No.
    None,
    /// It sees more with them.
    Wanted,
    /// It goes across an emulated link, and can do nothing without.
    Needed,
}

/// What an experiment works with.
pub struct Bench<'a> {
    /// The servers, built.
    pub servers: &'a [Binary],
    /// How long and how hard.
    pub scale: &'a Scale,
    /// What it all runs on.
    pub machine: &'a Machine,
    /// Where progress is shown.
    pub screen: &'a Screen,
    /// Set when the reader has had enough.
    pub stop: &'a AtomicBool,
    /// What an earlier start of the same has done already, and where this one notes what it has done.
    pub journal: &'a Journal,
}

impl Bench<'_> {
    /// The servers, as columns of the table of promises.
    pub fn columns(&self) -> Vec<Column> {
        self.servers.iter().map(|it| it.column).collect()
    }
}

/// How much of an experiment is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Little of everything: whether it works, not how well.
    Smoke,
    /// What somebody waits for.
    #[default]
    Short,
    /// What is published.
    Full,
}

impl Form {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Form::Smoke => "smoke",
            Form::Short => "short",
            Form::Full => "full",
        }
    }
}

/// How long and how hard an experiment is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scale {
    /// Which form it is of.
    pub form: Form,
    /// Requests per second of each step.
    pub rates: Vec<f64>,
    /// The length of a step.
    pub hold: Duration,
    /// The patience of a client.
    pub timeout: Duration,
    /// The most servers that are driven at once. Not among the parameters: a second start may choose anew.
    #[serde(skip)]
    pub side_by_side: usize,
    /// Whether runs without stalled clients show first what running side by side costs.
    pub baseline: bool,
    /// Whether the result is held to what can be said safely of any machine.
    pub asserts: bool,
}

/// What an experiment has shown.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was measured, row by row.
    pub table: Table,
    /// What the reader is shown at the end.
    pub scoreboard: String,
    /// The answer to the question that was asked at the start, in a sentence.
    pub answer: String,
    /// A chart (SVG), if there is anything to draw.
    pub chart: Option<String>,
    /// What was seen, in sentences, for the provenance of the record.
    pub findings: Vec<String>,
    /// What the same measurement differs by when it is repeated.
    pub noise: Option<Noise>,
    /// What could not be measured and why, a sentence each.
    pub failures: Vec<String>,
    /// How much of it is still to be done: the journal is kept until nothing is.
    pub missing: usize,
}

/// What came of each run, without those that failed: they are named in `outcome`, each sentence once.
pub fn rows<R>(runs: Vec<Option<Result<R>>>, outcome: &mut Outcome) -> Vec<R> {
    let mut rows = Vec::new();
    for run in runs {
        match run {
            Some(Ok(row)) => rows.push(row),
            Some(Err(error)) => {
                outcome.missing += 1;
                outcome.fail(format!("{error:#}"));
            }
            None => outcome.missing += 1,
        }
    }
    rows
}

impl Outcome {
    /// Notes what went wrong, once.
    pub fn fail(&mut self, sentence: String) {
        if !self.failures.contains(&sentence) {
            self.failures.push(sentence);
        }
    }
}

/// The experiment called `name`.
///
/// # Errors
/// If there is none: the sentence lists those that there are.
pub fn find(name: &str) -> Result<&'static (dyn Experiment + Sync)> {
    let found = EXPERIMENTS.iter().find(|it| it.name() == name).copied();
    found.ok_or_else(|| {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|it| it.name()).collect();
        anyhow::anyhow!("no experiment is called '{name}': there is {}", names.join(", "))
    })
}

impl Scale {
    /// Short steps, with a client's patience scaled to them: with a long patience and a short staircase,
    /// what queued up would be answered after the load has ended, and the worst server would look best.
    pub fn short() -> Scale {
        Scale {
            form: Form::Short,
            rates: vec![10.0, 110.0, 210.0, 310.0, 460.0],
            hold: Duration::from_secs(3),
            timeout: Duration::from_millis(4_500),
            side_by_side: 3,
            baseline: true,
            asserts: false,
        }
    }

    /// The same steps, everything at once, held to what is safe to say: for continuous integration.
    pub fn smoke() -> Scale {
        Scale {
            form: Form::Smoke,
            side_by_side: 8,
            baseline: false,
            asserts: true,
            ..Scale::short()
        }
    }

    /// The blog's staircase: 23,500 requests.
    pub fn full() -> Scale {
        Scale {
            form: Form::Full,
            rates: (0..10).map(|step| f64::from(10 + 50 * step)).collect(),
            hold: Duration::from_secs(10),
            timeout: Duration::from_secs(15),
            ..Scale::short()
        }
    }

    /// The clients of a staircase, of whom `percent` in 100 are of this `kind`.
    pub fn crowd(&self, kind: StallKind, percent: f64) -> Crowd {
        Crowd { stall: kind.name().into(), stall_percent: percent, ..self.nobody_stalls() }
    }

    /// The clients of a staircase, of whom nobody stalls.
    pub fn nobody_stalls(&self) -> Crowd {
        Crowd {
            rates: self.rates.clone(),
            hold: self.hold,
            timeout: self.timeout,
            stall: "none".into(),
            stall_percent: 0.0,
            poisson: None,
            kept: None,
        }
    }

    /// The blog's steps across a link, short: with a longer patience, what queued up would be answered after
    /// the load has ended.
    pub fn link_short() -> Scale {
        Scale {
            form: Form::Short,
            hold: Duration::from_secs(3),
            timeout: Duration::from_millis(4_500),
            asserts: true,
            ..Scale::full()
        }
    }

    /// A few requests across a link: whether it works.
    pub fn link_smoke() -> Scale {
        Scale {
            form: Form::Smoke,
            rates: vec![10.0, 60.0],
            hold: Duration::from_secs(1),
            timeout: Duration::from_millis(1_500),
            ..Scale::short()
        }
    }

    /// Requests that one staircase schedules.
    pub fn requests(&self) -> u64 {
        self.rates.iter().map(|rate| (rate * self.hold.as_secs_f64()).round() as u64).sum()
    }

    /// The longest that one staircase takes: its steps, and the patience of the last client.
    pub fn staircase_length(&self) -> Duration {
        self.hold * self.rates.len() as u32 + self.timeout
    }
}
