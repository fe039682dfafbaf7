//! The system calls of an answer: counted one client at a time and with many that wait at once, side by
//! side, and kept with the order in which they were made.
//!
//! The tracer is the contract's ([`contract::trace`]). It stands in the server's way at every call, so
//! that nothing is said here of how long anything takes.

pub mod kept;
pub mod record;
pub mod table;

use crate::{
    binaries::{self, Binary},
    machine::Machine,
    measure::Folders,
    records::{self, Provenance},
    screen::Screen,
    servers,
};
use anyhow::Result;
use clap::Args;
use contract::{
    trace::{self, Refused, Trace},
    verdicts::Column,
};
use std::{path::Path, process::ExitCode};

/// The name on the command line, and of the files.
pub const NAME: &str = "trace";

/// What it asks, in one line.
pub const QUESTION: &str = "How many system calls does an answer take, alone and among many?";

/// What is expected, in one line, so that it can turn out wrong.
pub const PREDICTION: &str =
    "01 to 05 make some for each client, however many wait; a ring makes one for many clients.";

/// What every record says of itself.
pub const CAUTION: &str = "start_us and duration_us include the tracer, which stops the server before and \
                       after each call: they give the order, and no latency";

/// What may be said on the command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Take these servers, such as ch04 or 01,04,03-one-recv; without: all chapters
    #[arg(value_name = "SERVERS")]
    servers: Option<String>,
    /// Let so many clients ask one at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = some())]
    clients: u32,
    /// Let so many requests wait at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = some())]
    batch: u32,
    /// Start the servers that have reactors with so many
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = some())]
    reactors: u32,
    #[command(flatten)]
    folders: Folders,
}

/// At least one, and not more than a machine has ports for.
fn some() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=20_000)
}

/// What was seen of one server.
#[derive(Debug)]
pub struct Seen {
    /// The server.
    pub column: Column,
    /// One client at a time.
    pub idle: Trace,
    /// How many tried to get in at once.
    pub tried: usize,
    /// All that got in at once.
    pub batch: Trace,
}

/// Runs it: builds, traces one server after the other, shows the table, keeps the record.
///
/// # Errors
/// If the servers cannot be built, if this machine does not let us trace, or if the record cannot be
/// written.
pub fn command(arguments: &Arguments) -> Result<ExitCode> {
    let columns = match servers::choose(arguments.servers.as_deref()) {
        Ok(columns) => columns,
        Err(error) => {
            eprintln!("cargo lab: {error:#}");
            return Ok(ExitCode::from(2));
        }
    };
    let screen = Screen::of_stderr();
    let machine = Machine::look()?;
    let workspace = binaries::workspace()?;
    let binaries = match &arguments.folders.binaries {
        Some(folder) => binaries::take(folder, &columns)?,
        None => binaries::build(&workspace, &columns, &screen)?,
    };
    let (binaries, mut failures) = binaries::that_may_run(binaries);
    let mut seen = Vec::new();
    let bar = screen.bar("tracing");
    for (at, binary) in binaries.iter().enumerate() {
        bar.at(at as f64 / binaries.len() as f64, binary.column.name);
        match look(binary, arguments.clients, arguments.batch, arguments.reactors) {
            Ok(one) => seen.push(one),
            Err(error) if error.is::<Refused>() => return Err(error.context("NEEDS ptrace")),
            Err(error) => failures.push(format!("{}: {error:#}", binary.column.name)),
        }
    }
    bar.end();
    failures.extend(seen.iter().filter_map(unanswered));
    print!("{}", table::of(&seen));
    if !seen.is_empty() {
        let provenance = provenance(machine, &workspace, &failures);
        let folder = arguments.folders.out.clone();
        let folder = folder.unwrap_or_else(|| workspace.join("book/data/local"));
        println!("\nwritten:");
        for file in record::save(&folder, &seen, &provenance)? {
            println!("  {}", file.display());
        }
    }
    for failure in &failures {
        eprintln!("not measured as it should: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Traces a server with `reactors`: `clients` who ask one at a time, and `batch` at once.
///
/// # Errors
/// If it cannot be started, or this machine does not let us trace it ([`Refused`]).
pub fn look(binary: &Binary, clients: u32, batch: u32, reactors: u32) -> Result<Seen> {
    let server = trace::start(&binary.path, usize::try_from(reactors)?)?;
    // What is allocated once is not the price of an answer.
    trace::one_at_a_time(&server, 1)?;
    let idle = trace::one_at_a_time(&server, usize::try_from(clients)?)?;
    let tried = usize::try_from(batch)?;
    Ok(Seen { column: binary.column, idle, tried, batch: trace::batch(&server, tried)? })
}

/// Who was not answered, or not while we looked, in a sentence.
pub fn unanswered(seen: &Seen) -> Option<String> {
    let name = seen.column.name;
    let heard = seen.idle.unanswered.as_ref().or(seen.batch.unanswered.as_ref());
    if let Some(heard) = heard {
        return Some(format!("{name}: a client heard {heard}"));
    }
    let late = seen.idle.late + seen.batch.late;
    (late > 0).then(|| {
        format!("{name}: {late} had no answer while it slept: what their answers take was not seen")
    })
}

fn provenance(machine: Machine, workspace: &Path, failures: &[String]) -> Provenance {
    Provenance {
        experiment: NAME.into(),
        command: records::command_line(),
        date: records::now_utc(),
        commit: records::commit(workspace),
        parameters: serde_json::Value::Null,
        machine,
        noise: None,
        interrupted: false,
        findings: vec![CAUTION.into()],
        failures: failures.to_vec(),
    }
}
