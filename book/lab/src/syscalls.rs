//! The system calls of an answer, as a record: what `cargo lab trace` counts, of every chapter.

use crate::{
    experiment::{Bench, Experiment, Form, Outcome, Scale},
    records::Table,
    trace::{self, kept::Kept, record, table},
};
use anyhow::Result;
use contract::trace::Refused;
use std::{sync::atomic::Ordering, time::Duration};

/// Who asks: so many one at a time, and as many at once.
const CLIENTS: u32 = 64;
const CLIENTS_SMOKE: u32 = 8;

/// What its rows are called: one client at a time, and all at once.
const NAMES: [&str; 2] = ["syscalls-one-at-a-time", "syscalls-at-once"];

/// `cargo lab syscalls`
pub struct Syscalls;

impl Experiment for Syscalls {
    fn name(&self) -> &'static str {
        "syscalls"
    }

    fn question(&self) -> &'static str {
        trace::QUESTION
    }

    fn prediction(&self) -> &'static str {
        trace::PREDICTION
    }

    fn about(&self, _: &Scale, servers: usize) -> Duration {
        Duration::from_secs(2) * servers as u32
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let clients = if bench.scale.form == Form::Smoke { CLIENTS_SMOKE } else { CLIENTS };
        let (mut outcome, mut seen) = (Outcome::default(), Vec::new());
        let bar = bench.screen.bar("tracing");
        for (at, server) in bench.servers.iter().enumerate() {
            let part = server.column.name;
            if let Some(kept) = bench.journal.get::<Kept>(part) {
                seen.push(kept.of(server.column));
                continue;
            }
            if bench.stop.load(Ordering::Relaxed) {
                outcome.missing += 1;
                continue;
            }
            bar.at(at as f64 / bench.servers.len() as f64, part);
            // With one reactor, as a batch is for one.
            match trace::look(server, clients, clients, 1) {
                Ok(one) => {
                    match trace::unanswered(&one) {
                        None => bench.journal.keep(part, &Kept::from(&one))?,
                        Some(sentence) => {
                            outcome.missing += 1;
                            outcome.fail(sentence);
                        }
                    }
                    seen.push(one);
                }
                Err(error) if error.is::<Refused>() => return Err(error.context("NEEDS ptrace")),
                Err(error) => {
                    outcome.missing += 1;
                    outcome.fail(format!("{part}: {error:#}"));
                }
            }
        }
        bar.end();
        outcome.findings.push(trace::CAUTION.into());
        outcome.scoreboard = table::of(&seen);
        outcome.table = Table::of(&record::counts(&seen, NAMES))?;
        Ok(outcome)
    }
}
