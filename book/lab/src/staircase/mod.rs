//! The blog's staircase across an emulated radio: each server with stalled clients of each kind, some seeds.
//!
//! [`over`] is one run across a link of its own, [`model`] says what the link allows and holds the short
//! form to it, [`board`] shows it all beside the blog's own table.

pub mod board;
pub mod model;
pub mod over;

use crate::{
    drive::{self, Job},
    experiment::{Bench, Experiment, Form, Namespaces, Outcome, Scale},
    link::Profile,
    measure::Folders,
    pool::{self, Task},
    race::KINDS,
    records::{Record, Table},
    servers::named,
};
use anyhow::{Context, Result};
use clap::Args;
use contract::verdicts::Column;
use over::Crossing;
use serde_json::{Value, json};
use std::time::Duration;
use stress::StallKind;

/// The name, and that of its rows.
pub const NAME: &str = "staircase";

/// The chapters, 02 in its four combinations of backlog and patience (01 has neither), and the blog's 03.
const SERVERS: [&str; 9] = [
    "ch01",
    "ch02-backlog-only",
    "ch02-patience-only",
    "ch02",
    "ch03",
    "ch03-one-recv",
    "ch04",
    "ch05",
    "ch06",
];

/// Stalled clients that come with 100 requests.
pub const STALL_PERCENT: f64 = 0.5;

/// The link's packets per second in the short form; in the full one, the profile's.
const SHORT_PACKETS_PER_SECOND: f64 = 2_200.0;

/// So many times as many runs as cores at once: nearly all of a run is waiting.
pub const RUNS_PER_CORE: usize = 4;

/// What may be said on the command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Take steps of 3 s and clients that wait 4.5 s; fail unless 01 and 02 end well below 04, and 04 at the
    /// limit of the link
    #[arg(long)]
    short: bool,
    /// Take little of everything: whether it works, not how well
    #[arg(long, conflicts_with = "short")]
    smoke: bool,
    /// Run each server so often with each kind of stalled client [default: 3, with --short 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: Option<u64>,
    /// Let clients stall in these ways [default: silent,half-line,drip,deaf, with --short silent,half-line]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    stalls: Vec<StallKind>,
    /// Take these servers only, such as 01,04 or 03-one-recv
    #[arg(long, value_name = "NAMES")]
    pub servers: Option<String>,
    /// Let so many runs go on at once, each across a link of its own [default: 4 for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    side_by_side: Option<u64>,
    /// Begin anew, whatever an earlier start has done
    #[arg(long)]
    pub fresh: bool,
    /// Where the programs come from, and where the record goes.
    #[command(flatten)]
    pub folders: Folders,
}

impl Arguments {
    /// What is asked for.
    pub fn experiment(&self) -> Staircase {
        Staircase { seeds: self.seeds, stalls: self.stalls.clone() }
    }

    /// How long, and how many at once.
    pub fn scale(&self) -> Scale {
        let form = match (self.smoke, self.short) {
            (true, _) => Form::Smoke,
            (_, true) => Form::Short,
            _ => Form::Full,
        };
        let scale = Staircase::AS_ITS_FORM.scale(form);
        let at_once = self.side_by_side.map_or(scale.side_by_side, |it| it as usize);
        Scale { side_by_side: at_once, ..scale }
    }
}

/// `cargo lab staircase`
#[derive(Clone, Debug)]
pub struct Staircase {
    /// Runs of each server with each kind of stalled client, each with dice of its own; `None` as the form
    /// has it.
    pub seeds: Option<u64>,
    /// The kinds; as the form has them, if there are none.
    pub stalls: Vec<StallKind>,
}

impl Staircase {
    /// With nothing chosen: in full three seeds and all kinds, shorter one seed and those that tell the
    /// chapters apart.
    pub const AS_ITS_FORM: Staircase = Staircase { seeds: None, stalls: Vec::new() };

    fn kinds(&self, scale: &Scale) -> Vec<StallKind> {
        match scale.form {
            _ if !self.stalls.is_empty() => self.stalls.clone(),
            Form::Full => StallKind::ALL.to_vec(),
            Form::Short => KINDS.to_vec(),
            Form::Smoke => vec![StallKind::HalfLine],
        }
    }

    fn seeds(&self, scale: &Scale) -> u64 {
        self.seeds.unwrap_or(if scale.form == Form::Full { 3 } else { 1 })
    }

    /// Seed by seed, so that what is done when somebody has had enough is whole for some of them.
    fn tasks<'a>(&self, bench: &Bench<'a>, link: &str) -> Vec<Task<Job<'a>>> {
        let mut tasks = Vec::new();
        for seed in 1..=self.seeds(bench.scale) {
            for kind in self.kinds(bench.scale) {
                for server in bench.servers {
                    let job = Job {
                        server,
                        experiment: NAME,
                        link: link.into(),
                        seed: Some(seed),
                        first_step: 1,
                        crowd: bench.scale.crowd(kind, STALL_PERCENT),
                    };
                    tasks.push(Task { part: job.label(), job });
                }
            }
        }
        tasks
    }
}

impl Experiment for Staircase {
    fn name(&self) -> &'static str {
        NAME
    }

    fn question(&self) -> &'static str {
        "Across a slow radio, with a few stalled clients: which server climbs how far, and what stops 04?"
    }

    fn prediction(&self) -> &'static str {
        "01 < 02 < 04, and 04 climbs to the link's packets per second ÷ packets per request."
    }

    fn servers(&self) -> Vec<Column> {
        named(&SERVERS)
    }

    fn namespaces(&self) -> Namespaces {
        Namespaces::Needed
    }

    fn parameters(&self) -> Value {
        let kinds: Vec<&str> = self.stalls.iter().map(|kind| kind.name()).collect();
        json!({ "seeds": self.seeds, "stalls": kinds, "stall_percent": STALL_PERCENT })
    }

    fn scale(&self, form: Form) -> Scale {
        let scale = match form {
            Form::Smoke => Scale::link_smoke(),
            Form::Short => Scale::link_short(),
            Form::Full => Scale::full(),
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Scale { side_by_side: cores * RUNS_PER_CORE, ..scale }
    }

    fn about(&self, scale: &Scale, servers: usize) -> Duration {
        let runs = self.seeds(scale) as usize * self.kinds(scale).len() * servers;
        // Each server and link takes a moment to come and to go.
        let each = scale.staircase_length() + Duration::from_secs(1);
        each * runs.div_ceil(scale.side_by_side.max(1)) as u32
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let name = "wifi-2.4";
        let profile = profile(name, bench.scale)?;
        let tasks = self.tasks(bench, name);
        let kind = over::probe(&profile)?;
        bench.screen.say(&format!(
            "the link: {name} ({kind}), {} at a time\n{}",
            bench.scale.side_by_side,
            bench.scale.words()
        ));
        let done = pool::all(
            bench,
            &tasks,
            bench.scale.side_by_side,
            |job| {
                let crossing = over::cross(bench, job, &profile)?;
                bench.screen.say(&format!("  {}", crossing.sentence(job)));
                Ok(crossing)
            },
            Crossing::is_whole,
        );
        let mut outcome = Outcome::default();
        let runs: Vec<Option<Result<drive::Run>>> =
            done.into_iter().map(|it| it.map(|it| it.map(|it| it.run))).collect();
        let records = drive::gather(runs, &mut outcome);
        self.judge(bench, &records, &mut outcome);
        outcome.scoreboard = board::board(&bench.columns(), &records, bench.scale);
        outcome.table = Table::of(&records)?;
        outcome.findings.push(format!("the link: {kind}"));
        Ok(outcome)
    }
}

impl Staircase {
    /// What follows from `records`, and in the short form whether it is what can be said safely.
    fn judge(&self, bench: &Bench<'_>, records: &[Record], outcome: &mut Outcome) {
        outcome.findings.extend(model::findings(records));
        outcome.findings.extend(model::spoiled(records));
        if bench.scale.asserts && outcome.missing == 0 {
            let broken = model::broken_expectations(records, &bench.columns());
            broken.into_iter().for_each(|sentence| outcome.fail(sentence));
        }
    }
}

/// The profile called `name`, with the packets per second of the short form if it is one.
fn profile(name: &str, scale: &Scale) -> Result<Profile> {
    let mut profile =
        Profile::named(name).with_context(|| format!("no profile is called '{name}'"))?;
    if scale.form != Form::Full {
        profile.packets_per_second = Some(SHORT_PACKETS_PER_SECOND);
    }
    Ok(profile)
}
