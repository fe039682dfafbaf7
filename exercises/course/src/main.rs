//! `cargo course`: the exercises, one verdict at a time.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use course::home::Home;
use course::state::State;
use course::verdict::Verdict;
use course::{check, confine, hint, judge, verify};

/// The exercises of The Stalled Client, and their checker.
#[derive(Parser)]
#[command(name = "cargo course", bin_name = "cargo course", disable_help_subcommand = true)]
struct Arguments {
    /// The top of a clone, where it is not the one that the current folder is in
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build an exercise, hold it to its rows, and say one verdict
    Check {
        /// As ex03, 3 or a part of its name; else the one that you are at
        exercise: Option<String>,
    },
    /// The next of four hints; the fourth looks at how your attempt fails
    Hint {
        /// As ex03, 3 or a part of its name; else the one that you are at
        exercise: Option<String>,
        /// The last one once more
        #[arg(long)]
        again: bool,
    },
    /// For maintainers: starters fail as they say, solutions pass, wrong servers are killed
    Verify {
        /// Only these, as ex03 or 3
        exercises: Vec<String>,
        /// Solutions ten times instead of three, and clippy on all of it
        #[arg(long)]
        full: bool,
        /// Every cell that was seen
        #[arg(long)]
        show: bool,
    },
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // The hidden commands are not for people, and must not meet a parser that prints help.
    match arguments.split_first() {
        Some((first, rest)) if first == confine::SUPERVISE => return confine::supervise(rest),
        Some((first, rest)) if first == confine::LIMIT => return confine::limit(rest),
        Some((first, rest)) if first == judge::JUDGE => {
            return told(judge::main(rest).map(|()| true));
        }
        _ => {}
    }
    let arguments = Arguments::parse();
    told(Home::find(arguments.home.as_deref()).and_then(|home| run(&home, arguments.command)))
}

/// The exit status: 0, 1 where the answer is no, 2 where there is none.
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
    match command {
        Command::Check { exercise } => {
            let exercise = chosen(home, exercise)?;
            Ok(check::check(home, &exercise)?.verdict == Verdict::Pass)
        }
        Command::Hint { exercise, again } => {
            hint::hint(home, &chosen(home, exercise)?, again).map(|()| true)
        }
        Command::Verify { exercises, full, show } => {
            let problems = verify::verify(home, &exercises, verify::Options { full, show })?;
            for problem in &problems {
                println!("\n{problem}");
            }
            match problems.len() {
                0 => println!("all is as it is said to be"),
                1 => println!("\n1 thing is not as it is said to be"),
                count => println!("\n{count} things are not as they are said to be"),
            }
            Ok(problems.is_empty())
        }
    }
}

/// The exercise that was named, or the one that the learner is at.
fn chosen(home: &Home, name: Option<String>) -> anyhow::Result<course::exercise::Exercise> {
    if let Some(name) = name {
        return home.exercise(&name);
    }
    let state = State::read(home)?;
    if let Some(exercise) = state.current().and_then(|it| home.exercise(it).ok()) {
        return Ok(exercise);
    }
    let all = home.exercises()?;
    let open = all.iter().find(|it| !state.has_passed(&it.id)).or(all.first()).cloned();
    open.ok_or_else(|| anyhow::anyhow!("there are no exercises"))
}
