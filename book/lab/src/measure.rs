//! All that is done around an experiment: look at the machine, build, go on where an earlier start stopped,
//! run, show, keep.

use crate::{
    binaries::{self, Binary},
    experiment::{Bench, Experiment, Outcome, Scale},
    interrupt,
    journal::{self, Found, Journal},
    machine::Machine,
    records::{self, Provenance},
    screen::Screen,
};
use anyhow::{Context, Result};
use clap::Args;
use contract::verdicts::Column;
use serde_json::{Value, json};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Where the programs come from, and where the record goes.
#[derive(Clone, Debug, Default, Args)]
pub struct Folders {
    /// Write the record here instead of book/data/local
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Take the programs from here instead of building them
    #[arg(long, value_name = "FOLDER")]
    pub binaries: Option<PathBuf>,
}

/// What all experiments of one start share.
pub struct Session {
    /// Where progress is shown.
    pub screen: Screen,
    machine: Machine,
    workspace: PathBuf,
    folder: PathBuf,
    binaries: Vec<Binary>,
    /// A sentence for each server that this machine does not let run.
    left_out: Vec<String>,
    stop: Arc<AtomicBool>,
}

/// One experiment, as it is wanted.
pub struct Wish<'a> {
    /// The experiment.
    pub experiment: &'a dyn Experiment,
    /// Its servers.
    pub servers: &'a [Column],
    /// How long and how hard.
    pub scale: &'a Scale,
    /// Whether what an earlier start has done is thrown away.
    pub fresh: bool,
    /// Whether a whole record of the same is left as it is.
    pub skip: bool,
}

/// How an experiment ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// There is a whole record of the same already: nothing was done.
    pub skipped: bool,
    /// The reader had enough.
    pub interrupted: bool,
    /// What could not be measured, or is not as it should be, a sentence each.
    pub failures: Vec<String>,
    /// The answer to the question, in a sentence; empty if it has none.
    pub answer: String,
}

impl Session {
    /// Looks at the machine, builds `servers`, and watches for Ctrl-C from then on. `ask` comes before the
    /// build.
    ///
    /// # Errors
    /// If the machine does not say what it is, or the servers cannot be built.
    pub fn open(servers: &[Column], folders: &Folders, ask: impl FnOnce()) -> Result<Session> {
        let screen = Screen::of_stderr();
        let machine = Machine::look()?;
        screen.say(&format!("the machine: {}", machine.line()));
        for warning in machine.warnings() {
            screen.say(&format!("  note: {warning}"));
        }
        ask();
        let workspace = binaries::workspace()?;
        let binaries = match &folders.binaries {
            Some(folder) => binaries::take(folder, servers)?,
            None if servers.is_empty() => Vec::new(),
            None => binaries::build(&workspace, servers, &screen)?,
        };
        // Not before: until here, Ctrl-C simply ends us and the compilers.
        let stop = interrupt::watch()?;
        let (binaries, left_out) = binaries::that_may_run(binaries);
        left_out.iter().for_each(|sentence| screen.say(&format!("  note: {sentence}")));
        let folder = folders.out.clone().unwrap_or_else(|| workspace.join("book/data/local"));
        Ok(Session { screen, machine, workspace, folder, binaries, left_out, stop })
    }

    /// Runs an experiment, shows what came of it, and writes its record.
    ///
    /// # Errors
    /// If nothing at all can be measured, or the record cannot be written.
    pub fn conduct(&self, wish: &Wish<'_>) -> Result<Ended> {
        let experiment = wish.experiment;
        let servers: Vec<Binary> = wish
            .servers
            .iter()
            .filter_map(|column| self.binaries.iter().find(|it| it.column == *column).cloned())
            .collect();
        let parameters = parameters(wish, &servers)?;
        let commit = records::commit(&self.workspace);
        if wish.skip
            && !wish.fresh
            && is_whole(&self.folder, experiment.name(), &commit, &parameters)
        {
            return Ok(Ended { skipped: true, ..Ended::default() });
        }
        // A short form leaves what is done of the full one alone.
        let file = format!("{}-{}", experiment.name(), wish.scale.form.name());
        let journal = Journal::open(&self.folder, &file, parameters.clone(), wish.fresh)?;
        self.screen.say(&about(experiment, wish.scale, servers.len()));
        if let Some(sentence) = found(&journal) {
            self.screen.say(&sentence);
        }
        let bench = Bench {
            servers: &servers,
            scale: wish.scale,
            machine: &self.machine,
            screen: &self.screen,
            stop: &self.stop,
            journal: &journal,
        };
        let mut outcome = experiment.run(&bench)?;
        outcome.findings.splice(0..0, self.left_out.iter().cloned());
        let interrupted = self.stopped();
        let provenance = Provenance {
            experiment: experiment.name().into(),
            command: records::command_line(),
            date: records::now_utc(),
            commit,
            parameters,
            machine: self.machine.clone(),
            noise: outcome.noise.clone(),
            interrupted,
            findings: outcome.findings.clone(),
            failures: outcome.failures.clone(),
        };
        println!("\n{}", outcome.scoreboard.trim_end());
        keep(&self.folder, &outcome, &provenance)?;
        if interrupted || outcome.missing > 0 {
            if let Some(sentence) = journal.sentence() {
                self.screen.say(&sentence);
            }
        } else {
            journal.remove()?;
        }
        let Outcome { failures, answer, .. } = outcome;
        Ok(Ended { skipped: false, interrupted, failures, answer })
    }

    /// Whether the reader has had enough.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Whether `folder` holds a record of the experiment `name` that lacks nothing, of the same commit and
/// parameters.
fn is_whole(folder: &Path, name: &str, commit: &str, parameters: &Value) -> bool {
    let read = || {
        let text = fs::read_to_string(folder.join(format!("{name}.json"))).ok()?;
        serde_json::from_str::<Provenance>(&text).ok()
    };
    folder.join(format!("{name}.csv")).is_file()
        && read().is_some_and(|it| {
            it.commit == commit
                && it.parameters == *parameters
                && !it.interrupted
                && it.failures.is_empty()
        })
}

/// What the numbers depend on. The programs are part of it: a journal of other ones is of no use.
fn parameters(wish: &Wish<'_>, servers: &[Binary]) -> Result<Value> {
    let this = env::current_exe().context("readlink(/proc/self/exe)")?;
    let programs = servers.iter().map(|it| it.path.as_path()).chain([this.as_path()]);
    let names: Vec<&str> = servers.iter().map(|it| it.column.name).collect();
    Ok(json!({
        "scale": wish.scale,
        "servers": names,
        "programs": journal::fingerprint(programs)?,
        "chosen": wish.experiment.parameters(),
    }))
}

fn about(experiment: &dyn Experiment, scale: &Scale, servers: usize) -> String {
    let time = match experiment.about(scale, servers) {
        short if short < Duration::from_secs(100) => format!("{} s", short.as_secs()),
        long => format!("{:.0} minutes", long.as_secs_f64() / 60.0),
    };
    format!("{} takes about {time}; Ctrl-C ends it early", experiment.name())
}

fn found(journal: &Journal) -> Option<String> {
    match journal.found() {
        Found::Nothing => None,
        Found::Parts(parts) => Some(format!(
            "an earlier start has done {parts} of its runs: this one goes on from there (--fresh begins anew)"
        )),
        Found::Other => Some(
            "an earlier start was of other parameters or programs: what it has done is not used"
                .into(),
        ),
    }
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

impl Ended {
    /// Says what lacks, and gives the status of the command.
    pub fn say(&self) -> ExitCode {
        if !self.failures.is_empty() {
            eprintln!("\nnot all could be measured as it should:");
            for failure in &self.failures {
                eprintln!("  {failure}");
            }
        }
        match (self.interrupted, self.failures.is_empty()) {
            (true, _) => ExitCode::from(130),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Table;

    #[test]
    fn only_a_record_that_lacks_nothing_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let good = Provenance {
            experiment: "stalls".into(),
            command: "cargo lab stalls".into(),
            date: records::now_utc(),
            commit: "abc".into(),
            parameters: json!({ "servers": ["ch01"] }),
            machine: Machine::look().unwrap(),
            noise: None,
            interrupted: false,
            findings: Vec::new(),
            failures: Vec::new(),
        };
        let is_whole = || is_whole(folder.path(), "stalls", "abc", &json!({ "servers": ["ch01"] }));
        let save = |provenance: &Provenance| {
            let table = Table::of(&[(1, 2)]).unwrap();
            records::save(folder.path(), &table, provenance, &[]).unwrap();
        };
        assert!(!is_whole(), "there is none");
        save(&good);
        assert!(is_whole());
        let lacks = [
            Provenance { commit: "abd".into(), ..good.clone() },
            Provenance { parameters: json!({ "servers": ["ch02"] }), ..good.clone() },
            Provenance { interrupted: true, ..good.clone() },
            Provenance { failures: vec!["03 cannot run".into()], ..good.clone() },
        ];
        for provenance in lacks {
            save(&provenance);
            assert!(!is_whole(), "{provenance:?}");
        }
        save(&good);
        fs::remove_file(folder.path().join("stalls.csv")).unwrap();
        assert!(!is_whole(), "its rows are gone");
    }
}
