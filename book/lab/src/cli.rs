//! The command: what may be asked for, and what is done around an experiment.

use crate::{
    arena::{Arena, Part},
    drive,
    experiment::{self, EXPERIMENTS, Experiment, Form, Namespaces},
    link,
    measure::{Folders, Session, Wish},
    question,
    race::Race,
    scaling::bare::{self, End},
    servers, staircase, suites, tour, trace,
};
use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use contract::verdicts::Column;
use std::{fmt::Write, process::ExitCode};

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
    /// Run all experiments that this machine can run, without those whose record is whole already
    All(LongArguments),
    /// Drive the servers with clients of which some stall
    Race(RaceArguments),
    /// Compare the CPU time of an answer in 04, 05 and 06, and 05 and 06 with more reactors
    Scaling(ShortArguments),
    /// Count the clients that come to each reactor of 05, and let one reactor stand still
    Spread(ShortArguments),
    /// Climb the blog's staircase across an emulated radio, with stalled clients of each kind
    Staircase(staircase::Arguments),
    /// Let clients of each kind stall, few and more, and see who is answered and how late
    Stalls(ShortArguments),
    /// Let silent clients fill the queue of 02, and compare its delay with the one that was predicted
    Patience(ShortArguments),
    /// Let a burst of clients come to queues of several lengths, and count who gets in and when
    Backlog(ShortArguments),
    /// Measure what a client costs in memory that does nothing, in 04, 05 and 06
    Memory(ShortArguments),
    /// Resolve the server's name for each request, and once, with a slow resolver
    Names(ShortArguments),
    /// Let links that carry more and less show where 04 bends, and what a request costs in packets
    Knee(LongArguments),
    /// Try more cores, a better radio and a cable with 04 and 05
    Levers(LongArguments),
    /// Count the system calls of an answer, of every chapter, as a record
    Syscalls(ShortArguments),
    /// Compare the eleven models of chapter 07, all in two minutes or one part with care
    Arena(ArenaArguments),
    /// Count the system calls that an answer takes, one client at a time and many at once
    Trace(trace::Arguments),
    /// Send the requests of two public test suites to models of chapter 07, and to nginx
    Suites(suites::Arguments),
    /// Run a command on one side of an emulated link, such as ping or bash
    Link(link::command::Arguments),
    /// Be the clients of a run, as told on stdin
    #[command(hide = true)]
    Drive,
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
    /// Let each server climb the staircase so often with each kind of stalled client [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    repeats: Option<u64>,
    /// Begin anew, whatever an earlier start has done
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    folders: Folders,
}

#[derive(Debug, Args)]
struct LongArguments {
    /// Take the long form: the blog's whole staircase, and three seeds
    #[arg(long, conflicts_with = "smoke")]
    full: bool,
    /// Take little of everything: whether it works, not how well
    #[arg(long)]
    smoke: bool,
    /// Begin anew, whatever an earlier start has done
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    folders: Folders,
}

#[derive(Debug, Args)]
struct ShortArguments {
    /// Take little of everything: whether it works, not how well
    #[arg(long)]
    smoke: bool,
    /// Begin anew, whatever an earlier start has done
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    folders: Folders,
}

#[derive(Debug, Args)]
struct ArenaArguments {
    /// The part
    #[arg(value_enum, default_value = "quick")]
    part: Part,
    /// Take two rounds; what is done without it, too
    #[arg(long, conflicts_with_all = ["full", "smoke"])]
    quick: bool,
    /// Take more rounds, and longer ones: what is published
    #[arg(long, conflicts_with = "smoke")]
    full: bool,
    /// Take little of everything: whether it works, not how well
    #[arg(long)]
    smoke: bool,
    /// Begin anew, whatever an earlier start has done
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    folders: Folders,
}

#[derive(Debug, Args)]
struct BareArguments {
    /// Leave a client with shutdown, discard and close, as the chapters do
    #[arg(long, required_unless_present_any = ["at_once", "stay"])]
    politely: bool,
    /// Leave a client with close alone
    #[arg(long, conflicts_with = "politely")]
    at_once: bool,
    /// Answer whatever a client sends as an HTTP server would, and stay
    #[arg(long, conflicts_with_all = ["politely", "at_once"])]
    stay: bool,
}

/// Runs what the command line asks for. The status is 0 if all was measured, 1 if something could not
/// be, 2 if the command line makes no sense, and 130 after Ctrl-C.
pub fn main() -> ExitCode {
    link::first_thing();
    let command = Cli::parse().command.unwrap_or(Command::Race(RaceArguments::default()));
    let done = match &command {
        Command::List => {
            print!("{}", list());
            Ok(ExitCode::SUCCESS)
        }
        Command::All(arguments) => all(arguments),
        Command::Race(arguments) => race(arguments),
        Command::Scaling(arguments) => short("scaling", arguments),
        Command::Spread(arguments) => short("spread", arguments),
        Command::Staircase(arguments) => staircase(arguments),
        Command::Stalls(arguments) => short("stalls", arguments),
        Command::Patience(arguments) => short("patience", arguments),
        Command::Backlog(arguments) => short("backlog", arguments),
        Command::Memory(arguments) => short("memory", arguments),
        Command::Names(arguments) => short("names", arguments),
        Command::Knee(arguments) => long("knee", arguments),
        Command::Levers(arguments) => long("levers", arguments),
        Command::Syscalls(arguments) => short("syscalls", arguments),
        Command::Arena(arguments) => arena(arguments),
        Command::Trace(arguments) => trace::command(arguments),
        Command::Suites(arguments) => suites::command(arguments),
        Command::Link(arguments) => link::command::command(arguments),
        Command::Drive => drive::serve_orders().map(|()| ExitCode::SUCCESS),
        Command::Bare(arguments) => {
            let end = match (arguments.at_once, arguments.stay) {
                (true, _) => End::AtOnce,
                (_, true) => End::Never,
                _ => End::Politely,
            };
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
    // They count and measure no time, so that the others' records and scales are not their own.
    let counted = [
        (trace::NAME, trace::QUESTION, trace::PREDICTION),
        (suites::NAME, suites::QUESTION, suites::PREDICTION),
    ];
    for (name, question, prediction) in timed.chain(counted) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name}\n    asks      {question}\n    predicts  {prediction}\n    run it    cargo lab {}",
            name.replacen("arena-", "arena ", 1) // A part of the arena is named after it.
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
    let experiment = &Race { repeats: arguments.repeats.unwrap_or(Race::ONCE.repeats) };
    let scale = experiment.scale(form(arguments.full, arguments.smoke));
    let mut guess = None;
    let session = Session::open(&servers, &arguments.folders, || {
        guess = if arguments.smoke { None } else { question::ask(&servers) };
    })?;
    let fresh = arguments.fresh;
    let wish = Wish { experiment, servers: &servers, scale: &scale, fresh, skip: false };
    let ended = session.conduct(&wish)?;
    if let Some(guess) = guess {
        println!("\nyour guess:  {guess}\nmeasured:    {}", ended.answer);
    }
    Ok(ended.say())
}

fn staircase(arguments: &staircase::Arguments) -> Result<ExitCode> {
    // Before there is a second thread.
    link::prepare()?;
    let (experiment, scale) = (arguments.experiment(), arguments.scale());
    let servers = match &arguments.servers {
        None => experiment.servers(),
        Some(names) => match servers::choose(Some(names)) {
            Ok(servers) => servers,
            Err(error) => {
                eprintln!("cargo lab: {error:#}");
                return Ok(ExitCode::from(2));
            }
        },
    };
    let session = Session::open(&servers, &arguments.folders, || {})?;
    let wish = Wish {
        experiment: &experiment,
        servers: &servers,
        scale: &scale,
        fresh: arguments.fresh,
        skip: false,
    };
    Ok(session.conduct(&wish)?.say())
}

/// `--quick` is what is done without it: the short form, said aloud.
fn arena(arguments: &ArenaArguments) -> Result<ExitCode> {
    let form = form(arguments.full, arguments.smoke);
    one(Arena(arguments.part).name(), form, arguments.fresh, &arguments.folders)
}

fn form(full: bool, smoke: bool) -> Form {
    match (full, smoke) {
        (true, _) => Form::Full,
        (_, true) => Form::Smoke,
        _ => Form::Short,
    }
}

fn all(arguments: &LongArguments) -> Result<ExitCode> {
    // Before there is a second thread. Where it does not work, those that need it say so.
    let _ = link::prepare();
    let form = form(arguments.full, arguments.smoke);
    let mut columns: Vec<Column> = Vec::new();
    for column in EXPERIMENTS.iter().flat_map(|it| it.servers()) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let session = Session::open(&columns, &arguments.folders, || {})?;
    let conduct = |experiment: &dyn Experiment| {
        println!("\n=== {}: {}", experiment.name(), experiment.question());
        let (servers, scale) = (experiment.servers(), experiment.scale(form));
        session.conduct(&Wish {
            experiment,
            servers: &servers,
            scale: &scale,
            fresh: arguments.fresh,
            skip: true,
        })
    };
    Ok(tour::take(EXPERIMENTS, conduct).say())
}

fn short(name: &str, arguments: &ShortArguments) -> Result<ExitCode> {
    one(name, form(false, arguments.smoke), arguments.fresh, &arguments.folders)
}

fn long(name: &str, arguments: &LongArguments) -> Result<ExitCode> {
    one(name, form(arguments.full, arguments.smoke), arguments.fresh, &arguments.folders)
}

/// An experiment of which nothing is chosen but its length.
fn one(name: &str, form: Form, fresh: bool, folders: &Folders) -> Result<ExitCode> {
    let experiment = experiment::find(name)?;
    if experiment.namespaces() != Namespaces::None {
        // Before there is a second thread. Where it does not work, the experiment says what it lacks.
        let _ = link::prepare();
    }
    let scale = experiment.scale(form);
    let servers = experiment.servers();
    let session = Session::open(&servers, folders, || {})?;
    let wish = Wish { experiment, servers: &servers, scale: &scale, fresh, skip: false };
    Ok(session.conduct(&wish)?.say())
}
