//! What would have helped the blog's last server: another link, or more cores, each predicted before it is
//! tried. The lever that is left, a connection that is kept, is [`crate::knee`]'s.

use crate::{
    drive::Crowd,
    experiment::{Bench, Experiment, Form, Namespaces, Outcome, Scale},
    knee::{Climb, about, board, climb, seeds},
    link::Profile,
    race::scoreboard::CLIMBED_PERCENT,
    records::Table,
    servers::named,
};
use anyhow::{Context, Result};
use contract::verdicts::Column;
use serde_json::{Value, json};
use std::time::Duration;

const NAME: &str = "levers";

/// One thread, and one for each core.
const SERVERS: [&str; 2] = ["ch04", "ch05"];

/// From the blog's radio to a cable.
const PROFILES: [&str; 3] = ["wifi-2.4", "wifi-5", "ethernet"];

/// Requests per second: the blog's, and beyond them, where a better link is to bend.
const RATES: [f64; 9] = [10.0, 110.0, 160.0, 210.0, 260.0, 360.0, 460.0, 560.0, 660.0];
const RATES_SMOKE: [f64; 2] = [20.0, 60.0];

/// `cargo lab levers`
pub struct Levers;

impl Experiment for Levers {
    fn name(&self) -> &'static str {
        NAME
    }

    fn question(&self) -> &'static str {
        "What would have helped the blog's last server: more cores, a better radio, a cable?"
    }

    fn prediction(&self) -> &'static str {
        "05 bends where 04 does; a link's packets per second ÷ 10 is its knee; a cable answers in 1 ms."
    }

    fn servers(&self) -> Vec<Column> {
        named(&SERVERS)
    }

    fn namespaces(&self) -> Namespaces {
        Namespaces::Needed
    }

    fn parameters(&self) -> Value {
        json!({ "profiles": PROFILES, "climbed_percent": CLIMBED_PERCENT })
    }

    fn scale(&self, form: Form) -> Scale {
        match form {
            // A client whose SYN is lost comes a second later, and has to be waited for.
            Form::Smoke => Scale { timeout: Scale::link_short().timeout, ..smoke() },
            Form::Short => Scale { rates: RATES.into(), ..Scale::link_short() },
            Form::Full => Scale { rates: RATES.into(), ..Scale::full() },
        }
    }

    fn about(&self, scale: &Scale, servers: usize) -> Duration {
        about(&crowd(scale), servers * PROFILES.len() * seeds(scale) as usize)
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let mut tasks = Vec::new();
        for seed in 1..=seeds(bench.scale) {
            for name in PROFILES {
                for server in bench.servers {
                    let profile = Profile::named(name).context("it has a name")?;
                    tasks.push(Climb::task(NAME, server, profile, seed, crowd(bench.scale)));
                }
            }
        }
        let mut outcome = Outcome::default();
        let rows = climb(bench, &tasks, &mut outcome)?;
        outcome.scoreboard = board(&rows);
        outcome.findings.extend(rows.iter().filter_map(|row| row.sentence()));
        outcome.table = Table::of(&rows)?;
        Ok(outcome)
    }
}

fn smoke() -> Scale {
    Scale { rates: RATES_SMOKE.into(), ..Scale::link_smoke() }
}

fn crowd(scale: &Scale) -> Crowd {
    scale.nobody_stalls()
}
