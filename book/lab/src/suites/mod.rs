//! What other people's test suites say of the models, and of nginx beside them.
//!
//! There are two, and neither is in this repository: gunicorn's corpus of raw requests ([`corpus`]), of
//! which a server should take some and refuse the others, and h1spec ([`h1spec`]), whose cases say
//! themselves whether they passed. Which answers count as taken and as refused is said in [`wire`], and is
//! the same for everybody.
//!
//! A miss is counted and named, and the command ends well all the same: what a suite wishes is not always
//! what a server should do, and the page says why for each. What makes it fail is a suite that is not
//! there, a server that does not run, a model that misses more than nginx, and models that differ, since
//! they have one core.

pub mod corpus;
pub mod h1spec;
pub mod tally;
pub mod wire;

use crate::{
    arena::contender::{Contender, Programs},
    binaries,
    machine::Machine,
    measure::Folders,
    records::{self, Provenance, Table},
    screen::Screen,
};
use anyhow::{Context, Result};
use clap::Args;
use contract::verdicts::Column;
use corpus::Corpus;
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};
use tally::Tally;

/// The name on the command line, and of the files.
pub const NAME: &str = "suites";

/// What it asks, in one line.
pub const QUESTION: &str = "Which requests of two public test suites do the models treat as those wish, and which does nginx?";

/// What is expected, in one line, so that it can turn out wrong.
pub const PREDICTION: &str = "At least as many as nginx in each suite, and in all models the same, since they have one core.";

/// The program of all models.
const CH07: Column = Column { name: "ch07", about: "eleven models, one HTTP core" };

/// What is told to whoever has no h1spec.
const NO_H1SPEC: &str = "h1spec was not run: it is in no registry of packages. \
    Clone the repository dropseed/h1spec of GitHub, and give its folder: --h1spec FOLDER";

/// What may be said on the command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A checkout of dropseed/h1spec, which is in no registry
    #[arg(long, value_name = "FOLDER")]
    h1spec: Option<PathBuf>,
    /// Take the corpus from this unpacked source of gunicorn instead of fetching one with pip
    #[arg(long, value_name = "FOLDER")]
    gunicorn: Option<PathBuf>,
    #[command(flatten)]
    folders: Folders,
}

/// Runs it: finds the suites, builds, asks one server after the other, shows the table, keeps the record.
///
/// # Errors
/// If the models cannot be built, or the record cannot be written.
pub fn command(arguments: &Arguments) -> Result<ExitCode> {
    let screen = Screen::of_stderr();
    let (suites, mut failures) = Suites::find(arguments, &screen);
    if suites.corpus.is_none() && suites.h1spec.is_none() {
        return Ok(ended(&failures));
    }
    let machine = Machine::look()?;
    let workspace = binaries::workspace()?;
    let programs = programs(arguments, &workspace, &screen)?;
    let servers = servers();
    let mut tallies = Vec::new();
    let bar = screen.bar("asking");
    for (at, server) in servers.iter().enumerate() {
        bar.at(at as f64 / servers.len() as f64, server.name());
        match suites.ask(server, &programs) {
            Ok(seen) => tallies.extend(seen),
            Err(error) => failures.push(format!("{}: {error:#}", server.name())),
        }
    }
    bar.end();
    failures.extend(tally::behind(&tallies));
    failures.extend(tally::differing(&tallies));
    print!("{}", tally::table(&tallies));
    if !tallies.is_empty() {
        let rows: Vec<_> = tallies.iter().flat_map(Tally::rows).collect();
        let provenance = provenance(arguments, machine, &workspace, &failures);
        let folder = arguments.folders.out.clone();
        let folder = folder.unwrap_or_else(|| workspace.join("book/data/local"));
        println!("\nwritten:");
        for file in records::save(&folder, &Table::of(&rows)?, &provenance, &[])?.files {
            println!("  {}", file.display());
        }
    }
    Ok(ended(&failures))
}

/// Who is asked: nginx, and a model of each family that does not turn clients away.
fn servers() -> [Contender; 4] {
    [
        Contender::Nginx,
        Contender::model("epoll-edge"),
        Contender::model("io-uring"),
        Contender::model("thread-per-connection"),
    ]
}

/// The suites that are there.
struct Suites {
    corpus: Option<Corpus>,
    h1spec: Option<PathBuf>,
}

impl Suites {
    /// Those that are there, and a sentence with what to do for each that is not.
    fn find(arguments: &Arguments, screen: &Screen) -> (Suites, Vec<String>) {
        let mut failures = Vec::new();
        let mut keep = |error: anyhow::Error| failures.push(format!("{error:#}"));
        let source = match &arguments.gunicorn {
            Some(folder) => Ok(folder.clone()),
            None => corpus::fetch(screen),
        };
        let corpus = source.and_then(|it| Corpus::read(&it)).map_err(&mut keep).ok();
        let h1spec = arguments.h1spec.as_deref().context(NO_H1SPEC).and_then(h1spec::find);
        let h1spec = h1spec.map_err(&mut keep).ok();
        (Suites { corpus, h1spec }, failures)
    }

    /// Starts `server` and sends it everything.
    fn ask(&self, server: &Contender, programs: &Programs) -> Result<Vec<Tally>> {
        let running = server.start(programs)?;
        let mut tallies = Vec::new();
        if let Some(corpus) = &self.corpus {
            tallies.extend(corpus.ask(server.name(), running.address())?);
        }
        if let Some(folder) = &self.h1spec {
            tallies.push(h1spec::ask(folder, server.name(), running.address())?);
        }
        Ok(tallies)
    }
}

fn programs(arguments: &Arguments, workspace: &Path, screen: &Screen) -> Result<Programs> {
    let found = match &arguments.folders.binaries {
        Some(folder) => binaries::take(folder, &[CH07])?,
        None => binaries::build(workspace, &[CH07], screen)?,
    };
    let ch07 = found.into_iter().next().context("ch07 is not there")?.path;
    Ok(Programs { ch07, peers: None })
}

/// Says what is not as it should be; the status is 1 then.
fn ended(failures: &[String]) -> ExitCode {
    for failure in failures {
        eprintln!("not as it should be: {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn provenance(
    arguments: &Arguments,
    machine: Machine,
    workspace: &Path,
    failures: &[String],
) -> Provenance {
    // Where the reader keeps a suite is the reader's own business.
    let folders = [&arguments.h1spec, &arguments.gunicorn].into_iter().flatten();
    let command = folders.fold(records::command_line(), |command, folder| {
        command.replace(&*folder.to_string_lossy(), "FOLDER")
    });
    let gunicorn = arguments.gunicorn.is_none().then_some(corpus::VERSION);
    Provenance {
        experiment: NAME.into(),
        command,
        date: records::now_utc(),
        commit: records::commit(workspace),
        parameters: json!({ "gunicorn": gunicorn, "nginx": nginx_version() }),
        machine,
        noise: None,
        interrupted: false,
        findings: Vec::new(),
        failures: failures.to_vec(),
    }
}

/// What nginx calls itself, such as `nginx/1.22.1`; `None` if it is not there.
fn nginx_version() -> Option<String> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let output = Command::new("nginx").arg("-v").env("PATH", path).output().ok()?;
    let said = String::from_utf8(output.stderr).ok()?;
    Some(said.trim().rsplit(' ').next()?.to_owned())
}
