//! The command line of `cargo course`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use course::exercise::Exercise;
use course::home::Home;
use course::state::State;
use course::verdict::Verdict;
use course::{attempt, check, confine, doctor, grade, hint, judge, progress, verify, watch};

/// The exercises of The Stalled Client, and their checker
#[derive(Parser)]
#[command(name = "cargo course", bin_name = "cargo course", disable_help_subcommand = true)]
#[command(
    after_help = "EXERCISE is ex03, 3 or a part of the name; without it, the one that you are at.\n\
    Begin with: cargo course start"
)]
struct Arguments {
    /// The top of a clone, where it is not the one that the current folder is in
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What this machine is, and which chapters run on it
    Doctor,
    /// Begin an exercise: what it is about, and what to do
    Start { exercise: Option<String> },
    /// Build an exercise, hold it to its rows, and say one verdict
    Check { exercise: Option<String> },
    /// Check whenever you save, with keys: n next, h hint, l list, q quit, …
    Watch {
        exercise: Option<String>,
        /// Look at the file twice a second: for folders where the kernel does not tell of changes
        #[arg(long)]
        poll: bool,
        /// End after so many checks
        #[arg(long, value_name = "N")]
        checks: Option<u32>,
    },
    /// The next of four hints; the fourth looks at how your attempt fails
    Hint {
        exercise: Option<String>,
        /// The last one once more
        #[arg(long)]
        again: bool,
    },
    /// Put the starter back; your attempt is kept
    Reset { exercise: Option<String> },
    /// What you have changed
    Diff { exercise: Option<String> },
    /// The solution, and why it is so: once it has passed
    Solution {
        exercise: Option<String>,
        /// Before it has passed
        #[arg(long)]
        give_up: bool,
    },
    /// All exercises, and what became of each
    Progress,
    /// For maintainers: starters fail as they say, solutions pass, wrong servers are killed
    Verify {
        /// Only these
        exercises: Vec<String>,
        /// Solutions ten times instead of three, and clippy on all of it
        #[arg(long)]
        full: bool,
        /// Every cell that was seen
        #[arg(long)]
        show: bool,
    },
    /// For instructors: grade a submission of the course project
    Grade(grade::command::Grade),
    /// For instructors: export the course project for a term
    NewTerm(grade::command::NewTerm),
}

/// The whole program: the exit status is 0, 1 where the answer is no, 2 where there is none.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // The hidden commands are not for people, and must not meet a parser that prints help.
    match arguments.split_first() {
        Some((first, rest)) if first == confine::SUPERVISE => return confine::supervise(rest),
        Some((first, rest)) if first == confine::LIMIT => return confine::limit(rest),
        Some((first, rest)) if first == judge::JUDGE => {
            return told(judge::main(rest).map(|()| true));
        }
        Some((first, _)) if first == doctor::NAMESPACE => {
            return told(doctor::namespace().map(|()| true));
        }
        Some((first, _)) if first == doctor::WAIT => return doctor::wait(),
        _ => {}
    }
    if let Some(status) = grade::hidden(&arguments) {
        return status;
    }
    let arguments = Arguments::parse();
    told(Home::find(arguments.home.as_deref()).and_then(|home| run(&home, arguments.command)))
}

fn told(result: anyhow::Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("course: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(home: &Home, command: Command) -> anyhow::Result<bool> {
    let at = |name: Option<String>| chosen(home, name);
    match command {
        Command::Doctor => return doctor::doctor(home),
        Command::Start { exercise } => progress::start(home, &next(home, exercise)?)?,
        Command::Check { exercise } => {
            return Ok(check::check(home, &at(exercise)?)?.verdict == Verdict::Pass);
        }
        Command::Watch { exercise, poll, checks } => {
            watch::watch(home, at(exercise)?, watch::Options { poll, checks })?;
        }
        Command::Hint { exercise, again } => hint::hint(home, &at(exercise)?, again)?,
        Command::Reset { exercise } => attempt::reset(home, &at(exercise)?)?,
        Command::Diff { exercise } => attempt::diff(home, &at(exercise)?)?,
        Command::Solution { exercise, give_up } => {
            attempt::solution(home, &at(exercise)?, give_up)?;
        }
        Command::Progress => progress::progress(home)?,
        Command::Verify { exercises, full, show } => {
            return verify::told(home, &exercises, verify::Options { full, show });
        }
        Command::Grade(command) => command.run(home)?,
        Command::NewTerm(command) => command.run(home)?,
    }
    Ok(true)
}

/// The exercise that was named, or the one that the learner is at, or the first that has not passed.
fn chosen(home: &Home, name: Option<String>) -> anyhow::Result<Exercise> {
    let state = State::read(home)?;
    match (name, state.current().and_then(|it| home.exercise(it).ok())) {
        (Some(name), _) => home.exercise(&name),
        (None, Some(current)) => Ok(current),
        (None, None) => next(home, None),
    }
}

/// The exercise that was named, or the one that the learner is at if it has not passed, or the first
/// that has not.
fn next(home: &Home, name: Option<String>) -> anyhow::Result<Exercise> {
    if let Some(name) = name {
        return home.exercise(&name);
    }
    let state = State::read(home)?;
    let all = home.exercises()?;
    let is_open = |it: &&Exercise| !state.has_passed(&it.id);
    let current = all.iter().find(|it| state.current() == Some(&it.id)).filter(is_open);
    let found = current.or(all.iter().find(is_open)).or(all.first()).cloned();
    found.ok_or_else(|| anyhow::anyhow!("there are no exercises"))
}
