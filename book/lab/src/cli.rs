//! The command: what may be asked for, and what is done around an experiment.

use crate::{
    binaries,
    experiment::{self, Bench, EXPERIMENTS, Experiment, Outcome, Scale},
    interrupt,
    machine::Machine,
    question,
    records::{self, Provenance},
    scaling::{
        self,
        bare::{self, End},
    },
    screen::Screen,
    servers, spread, trace,
};
use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use contract::verdicts::Column;
use std::{
    fmt::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::Ordering,
    time::Duration,
};

/// Experiments with the servers of the chapters, on this machine; without a command: the race
#[derive(Debug, Parser)]
#[command(name = "cargo lab", bin_name = "cargo lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Name the experiments, what they ask, and what is expected
    List,
    /// Drive the servers with clients of which some stall
    Race(RaceArguments),
    /// Compare the CPU time of an answer in 04, 05 and 06, and 05 and 06 with more reactors
    Scaling(ShortArguments),
    /// Count the clients that come to each reactor of 05, and let one reactor stand still
    Spread(ShortArguments),
    /// Count the system calls that an answer takes, one client at a time and many at once
    Trace(trace::Arguments),
    /// Serve with the loop that the others are compared with, until it is killed
    #[command(hide = true)]
    Bare(BareArguments),
}

#[derive(Debug, Default, Args)]
struct RaceArguments {
    /// Take the blog's staircase: 23,500 requests a server, steps of 10 s, clients that wait 15 s
    #[arg(long, conflicts_with = "smoke")]
    full: bool,
    /// Take everything at once, ask nothing, and fail unless 01 and 02 end well below 04
    #[arg(long)]
    smoke: bool,
    /// Take these servers only, such as 01,04 or 03-one-recv
    #[arg(long, value_name = "NAMES")]
    servers: Option<String>,
    #[command(flatten)]
    folders: Folders,
}

#[derive(Debug, Args)]
struct ShortArguments {
    /// Take little of everything: whether it works, not how well
    #[arg(long)]
    smoke: bool,
    #[command(flatten)]
    folders: Folders,
}

/// Where the programs come from, and where the record goes.
#[derive(Debug, Default, Args)]
pub(crate) struct Folders {
    /// Write the record here instead of book/data/local
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Take the programs from here instead of building them
    #[arg(long, value_name = "FOLDER")]
    pub(crate) binaries: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct BareArguments {
    /// Leave a client with shutdown, discard and close, as the chapters do
    #[arg(long, required_unless_present = "at_once")]
    politely: bool,
    /// Leave a client with close alone
    #[arg(long, conflicts_with = "politely")]
    at_once: bool,
}

/// Runs what the command line asks for. The status is 0 if all was measured, 1 if something could not
/// be, 2 if the command line makes no sense, and 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let command = Cli::parse().command.unwrap_or(Command::Race(RaceArguments::default()));
    let done = match &command {
        Command::List => {
            print!("{}", list());
            Ok(ExitCode::SUCCESS)
        }
        Command::Race(arguments) => race(arguments),
        Command::Scaling(arguments) => short("scaling", &scaling::CHAPTERS, arguments),
        Command::Spread(arguments) => short("spread", &[spread::SERVER], arguments),
        Command::Trace(arguments) => trace::command(arguments),
        Command::Bare(arguments) => {
            let end = if arguments.at_once { End::AtOnce } else { End::Politely };
            bare::serve(end).map(|()| ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("cargo lab: {error:#}");
        ExitCode::FAILURE
    })
}

/// Each experiment with its question and its prediction.
fn list() -> String {
    let mut text = String::new();
    let timed = EXPERIMENTS.iter().map(|it| (it.name(), it.question(), it.prediction()));
    // It counts and measures no time, so that the others' records and scales are not its own.
    let counted = (trace::NAME, trace::QUESTION, trace::PREDICTION);
    for (name, question, prediction) in timed.chain([counted]) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name}\n    asks      {question}\n    predicts  {prediction}\n    run it    cargo lab {name}"
        );
    }
    text
}

fn race(arguments: &RaceArguments) -> Result<ExitCode> {
    let servers = match servers::choose(arguments.servers.as_deref()) {
        Ok(servers) => servers,
        Err(error) => {
            eprintln!("cargo lab: {error:#}");
            return Ok(ExitCode::from(2));
        }
    };
    let scale = match (arguments.full, arguments.smoke) {
        (true, _) => Scale::full(),
        (_, true) => Scale::smoke(),
        _ => Scale::short(),
    };
    let ask = |servers: &[Column]| if arguments.smoke { None } else { question::ask(servers) };
    measure("race", &servers, &scale, &arguments.folders, ask)
}

/// An experiment whose servers are not chosen: those of `names` that there are.
fn short(experiment: &str, names: &[&str], arguments: &ShortArguments) -> Result<ExitCode> {
    let scale = if arguments.smoke { Scale::smoke() } else { Scale::short() };
    measure(experiment, &servers::named(names), &scale, &arguments.folders, |_| None)
}

/// All that is done around an experiment: look at the machine, `ask` for a guess, build, run, show, keep.
fn measure(
    experiment: &str,
    servers: &[Column],
    scale: &Scale,
    folders: &Folders,
    ask: impl FnOnce(&[Column]) -> Option<String>,
) -> Result<ExitCode> {
    let experiment = experiment::find(experiment)?;
    let screen = Screen::of_stderr();
    let machine = Machine::look()?;
    screen.say(&format!("the machine: {}", machine.line()));
    for warning in machine.warnings() {
        screen.say(&format!("  note: {warning}"));
    }
    let guess = ask(servers);
    let workspace = binaries::workspace()?;
    let binaries = match &folders.binaries {
        Some(folder) => binaries::take(folder, servers)?,
        None => binaries::build(&workspace, servers, &screen)?,
    };
    // Not before: until here, Ctrl-C simply ends us and the compilers.
    let stop = interrupt::watch()?;
    let (binaries, left_out) = binaries::that_may_run(binaries);
    left_out.iter().for_each(|sentence| screen.say(&format!("  note: {sentence}")));
    screen.say(&about(experiment, scale, binaries.len()));
    let bench =
        Bench { servers: &binaries, scale, machine: &machine, screen: &screen, stop: &stop };
    let mut outcome = experiment.run(&bench)?;
    outcome.findings.splice(0..0, left_out);
    let interrupted = stop.load(Ordering::Relaxed);
    let folder = folders.out.clone().unwrap_or_else(|| workspace.join("book/data/local"));
    let provenance = Provenance {
        experiment: experiment.name().into(),
        command: records::command_line(),
        date: records::now_utc(),
        commit: records::commit(&workspace),
        parameters: serde_json::Value::Null,
        machine: machine.clone(),
        noise: outcome.noise.clone(),
        interrupted,
        findings: outcome.findings.clone(),
        failures: outcome.failures.clone(),
    };
    println!("\n{}", outcome.scoreboard.trim_end());
    let saved = keep(&folder, &outcome, &provenance);
    if let Some(guess) = guess {
        println!("\nyour guess:  {guess}\nmeasured:    {}", outcome.answer);
    }
    Ok(end(&outcome, interrupted, saved))
}

fn about(experiment: &dyn Experiment, scale: &Scale, servers: usize) -> String {
    let time = match experiment.about(scale, servers) {
        short if short < Duration::from_secs(100) => format!("{} s", short.as_secs()),
        long => format!("{:.0} minutes", long.as_secs_f64() / 60.0),
    };
    format!("{} takes about {time}; Ctrl-C ends it early", experiment.name())
}

/// Writes the record and says where. Nothing is written over an older record if nothing was measured.
fn keep(folder: &Path, outcome: &Outcome, provenance: &Provenance) -> Result<()> {
    if outcome.table.is_empty() {
        println!("\nnothing was measured, so that no record is written");
        return Ok(());
    }
    let chart: Vec<(&str, String)> =
        outcome.chart.iter().map(|chart| (".svg", chart.clone())).collect();
    let written = records::save(folder, &outcome.table, provenance, &chart)?;
    println!("\nwritten:");
    for file in written.files {
        println!("  {}", file.display());
    }
    Ok(())
}

fn end(outcome: &Outcome, interrupted: bool, saved: Result<()>) -> ExitCode {
    if !outcome.failures.is_empty() {
        eprintln!("\nnot all could be measured as it should:");
        for failure in &outcome.failures {
            eprintln!("  {failure}");
        }
    }
    if let Err(error) = &saved {
        eprintln!("\ncargo lab: {error:#}");
    }
    match (interrupted, outcome.failures.is_empty() && saved.is_ok()) {
        (true, _) => ExitCode::from(130),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    }
}
