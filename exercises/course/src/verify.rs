//! For maintainers: everything that is said of the exercises is so.
//!
//! Each starter fails as its `exercise.toml` says and gets the verdict that it declares, each solution
//! passes every time, also while something else wants the cores, each wrong server is killed by the row
//! that it names and breaks what it says that it breaks, and an exercise that nobody has begun is as it is handed out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use contract::bounded::{self, TOOL};

use crate::exercise::{Exercise, Kind, Wrong};
use crate::home::Home;
use crate::judge::{AT_ONCE, Found, Question};
use crate::say::{self, line};
use crate::scratch::{self, Built, Program};
use crate::verdict::Verdict;

/// How much is verified.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Solutions run ten times instead of three, and clippy looks at them.
    pub full: bool,
    /// Every cell that was seen is printed.
    pub show: bool,
}

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Starter,
    Solution,
    Wrong(usize),
}

/// A program and a question to it.
struct Job<'a> {
    exercise: usize,
    who: Who,
    exe: &'a Path,
    question: Question,
}

/// An exercise with its wrong servers.
struct Entry {
    exercise: Exercise,
    wrong: Vec<Wrong>,
}

/// Verifies the exercises called `names`, or all: what is wrong, in sentences.
///
/// # Errors
///
/// When it could not be found out.
pub fn verify(home: &Home, names: &[String], options: Options) -> anyhow::Result<Vec<String>> {
    let start = Instant::now();
    let exercises = match names {
        [] => home.exercises()?,
        names => names.iter().map(|it| home.exercise(it)).collect::<anyhow::Result<_>>()?,
    };
    let mut problems = Vec::new();
    let mut entries = Vec::new();
    for exercise in exercises {
        problems.extend(crate::agree::disagreements(home, &exercise));
        match exercise.wrong() {
            Ok(wrong) => entries.push(Entry { exercise, wrong }),
            Err(error) => problems.push(format!("{error:#}")),
        }
    }
    problems.extend(unformatted(&entries));
    let programs = programs(home, &entries)?;
    line(format_args!("building {} programs …", programs.len()));
    let crate_name =
        if names.is_empty() { "verify".to_owned() } else { format!("verify-{}", names.join("-")) };
    let building = || scratch::build(home, &crate_name, &programs);
    let built = say::while_waiting("compiling", scratch::AT_MOST, building)?;
    problems
        .extend(built.refused.iter().map(|(name, why)| format!("{name} does not compile:\n{why}")));
    if options.full {
        let linted = scratch::lint(home, &crate_name, &programs)?;
        let told = linted.refused.iter();
        problems.extend(told.map(|(name, why)| format!("clippy on {name}:\n{why}")));
    }
    let repeats = if options.full { 10 } else { 3 };
    let quiet = jobs(&entries, &built, |it| (it != Who::Solution).into());
    let loaded = jobs(&entries, &built, |it| if it == Who::Solution { repeats } else { 0 });
    line(format_args!(
        "built in {} s; asking {} questions, {AT_ONCE} at once …",
        start.elapsed().as_secs(),
        quiet.len() + loaded.len()
    ));
    let mut found = run(&quiet, &entries, options);
    found.extend(under_load(|| run(&loaded, &entries, options)));
    problems.extend(judge(&entries, &found, repeats));
    if names.is_empty() {
        problems.extend(empty_rows(&entries, &found));
    }
    line(format_args!("exercises: {}, in {} s", entries.len(), start.elapsed().as_secs()));
    Ok(problems)
}

/// Verifies, and tells what is wrong: whether nothing is.
///
/// # Errors
///
/// Those of [`verify`].
pub fn told(home: &Home, names: &[String], options: Options) -> anyhow::Result<bool> {
    let problems = verify(home, names, options)?;
    for problem in &problems {
        line(format_args!("\n{problem}"));
    }
    match problems.len() {
        0 => line("All is as it is said to be."),
        1 => line("\nOne thing is not as it is said to be."),
        count => line(format_args!("\n{count} things are not as they are said to be.")),
    }
    Ok(problems.is_empty())
}

/// The name of a program.
fn program_name(entry: &Entry, who: Who) -> String {
    let id = &entry.exercise.id;
    match who {
        Who::Starter => format!("{id}-starter"),
        Who::Solution => format!("{id}-solution"),
        Who::Wrong(at) => format!("{id}-wrong-{}", entry.wrong[at].name.replace('_', "-")),
    }
}

fn everybody(entry: &Entry) -> Vec<Who> {
    let wrong = (0..entry.wrong.len()).map(Who::Wrong);
    [Who::Starter, Who::Solution].into_iter().chain(wrong).collect()
}

/// All that is built, in one run of cargo.
fn programs(home: &Home, entries: &[Entry]) -> anyhow::Result<Vec<Program>> {
    let mut programs: BTreeMap<String, Program> = BTreeMap::new();
    for entry in entries {
        for who in everybody(entry) {
            let main = match who {
                Who::Starter => entry.exercise.starter(),
                Who::Solution => entry.exercise.solution(),
                Who::Wrong(at) => entry.wrong[at].path.clone(),
            };
            let name = program_name(entry, who);
            programs.insert(name.clone(), crate::check::overlay(&entry.exercise, &name, main));
        }
        for server in crate::check::servers(home, &entry.exercise)? {
            programs.insert(server.name.clone(), server);
        }
    }
    Ok(programs.into_values().collect())
}

/// The questions to everybody, so often as `times` says.
fn jobs<'a>(entries: &[Entry], built: &'a Built, times: impl Fn(Who) -> usize) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for (exercise, entry) in entries.iter().enumerate() {
        let Ok(questions) = crate::check::questions(&entry.exercise, built) else { continue };
        for who in everybody(entry) {
            let Ok(exe) = built.program(&program_name(entry, who)) else { continue };
            // Where timing decides the others, only the row that is named can be held.
            let is_asked = |it: &&Question| match who {
                Who::Wrong(at) if entry.wrong[at].timing_decides => {
                    it.name() == entry.wrong[at].killed_by.0
                }
                _ => true,
            };
            for _ in 0..times(who) {
                jobs.extend(questions.iter().filter(is_asked).map(|it| Job {
                    exercise,
                    who,
                    exe,
                    question: it.clone(),
                }));
            }
        }
    }
    // Neighbours ask the same program different things; some things take a core for a moment. Dealt
    // out like cards, so that those running at once are of different kinds.
    let stride = 7;
    let mut dealt: Vec<(usize, Job)> = jobs.into_iter().enumerate().collect();
    dealt.sort_by_key(|(at, _)| (at % stride, *at));
    dealt.into_iter().map(|it| it.1).collect()
}

type Findings = Vec<(usize, Who, Found)>;

fn run(jobs: &[Job], entries: &[Entry], options: Options) -> Findings {
    let next = AtomicUsize::new(0);
    let findings = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let found = job.question.ask(job.exe);
                    if options.show {
                        let program = program_name(&entries[job.exercise], job.who);
                        let took = start.elapsed().as_secs_f64();
                        let Found { name, words, seen, needs } = &found;
                        let needs = needs.as_deref().unwrap_or_default();
                        line(format_args!(
                            "{program} / {name} ({took:.1} s): {words}{needs}: {seen}"
                        ));
                    }
                    let mut findings = findings.lock().unwrap_or_else(PoisonError::into_inner);
                    findings.push((job.exercise, job.who, found));
                }
            });
        }
    });
    findings.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` while one thread for each core always wants to run.
fn under_load<T>(work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    /// However the work ends: a panic, too, would wait for the threads that it keeps running.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let cores = thread::available_parallelism().map_or(1, |it| it.get());
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::black_box((0..10_000u64).sum::<u64>());
                }
            });
        }
        let _ends = Ends(&is_over);
        work()
    })
}

fn judge(entries: &[Entry], found: &Findings, repeats: usize) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let of =
            |who: Who| found.iter().filter(move |it| it.0 == at && it.1 == who).map(|it| &it.2);
        for who in everybody(entry) {
            let name = program_name(entry, who);
            let found: Vec<&Found> = of(who).collect();
            if found.is_empty() {
                problems.push(format!("{name} was not asked anything: see above"));
                continue;
            }
            let lacking: Vec<&str> = found.iter().filter_map(|it| it.needs.as_deref()).collect();
            if let Some(needs) = lacking.first() {
                let count = lacking.len();
                line(format_args!(
                    "{name}: {count} questions NOT ASKED, this machine lacks: {needs}"
                ));
                continue;
            }
            problems.extend(match who {
                Who::Starter => starter_problems(entry, &found),
                Who::Solution => solution_problems(entry, &found, repeats),
                Who::Wrong(at) => wrong_problems(entry, &entry.wrong[at], &name, &found),
            });
        }
    }
    problems
}

fn starter_problems(entry: &Entry, found: &[&Found]) -> Vec<String> {
    let exercise = &entry.exercise;
    let id = &exercise.id;
    let mut problems = Vec::new();
    for ask in &exercise.asks {
        for it in found.iter().filter(|it| it.name == ask.name && it.words != ask.starter) {
            let (name, words, seen) = (&it.name, &it.words, &it.seen);
            let declared = &ask.starter;
            problems.push(format!(
                "the starter of {id} is to say \"{declared}\" in {name}, and says \"{words}\": {seen}"
            ));
        }
    }
    let deviates = |it: &&&Found| {
        exercise.asks.iter().any(|ask| ask.name == it.name && ask.solution != it.words)
    };
    let verdict = match exercise.kind {
        Kind::Hole => Verdict::NotStarted,
        _ => Verdict::of_all(found.iter().filter(deviates).copied()),
    };
    if verdict != exercise.verdict {
        let declared = exercise.verdict;
        problems.push(format!("the starter of {id} is to get {declared}, and gets {verdict}"));
    }
    problems
}

fn solution_problems(entry: &Entry, found: &[&Found], repeats: usize) -> Vec<String> {
    let exercise = &entry.exercise;
    let mut problems = Vec::new();
    for ask in &exercise.asks {
        let wrong: Vec<&&Found> =
            found.iter().filter(|it| it.name == ask.name && it.words != ask.solution).collect();
        if let Some(first) = wrong.first() {
            problems.push(format!(
                "the solution of {} says \"{}\" in {}, {} times of {repeats}, and is to say \"{}\": {}",
                exercise.id,
                first.words,
                ask.name,
                wrong.len(),
                ask.solution,
                first.seen
            ));
        }
    }
    problems
}

fn wrong_problems(entry: &Entry, wrong: &Wrong, name: &str, found: &[&Found]) -> Vec<String> {
    let mut problems = Vec::new();
    for ask in &entry.exercise.asks {
        let is_killer = ask.name == wrong.killed_by.0;
        let declared = [&wrong.killed_by].into_iter().chain(&wrong.breaks_too);
        let declared = declared.into_iter().find(|it| it.0 == ask.name).map(|it| it.1.as_str());
        if wrong.timing_decides && !is_killer {
            continue;
        }
        let expected = declared.unwrap_or(&ask.solution);
        for it in found.iter().filter(|it| it.name == ask.name && it.words != expected) {
            let (row, words, seen) = (&it.name, &it.words, &it.seen);
            problems.push(match (is_killer, declared) {
                (true, _) => format!(
                    "{name} is to be killed by {row} ({expected}), which says \"{words}\": {seen}"
                ),
                (false, Some(_)) => format!(
                    "{name} says that it breaks {row} too ({expected}), which says \"{words}\": {seen}"
                ),
                (false, None) => format!(
                    "{name} breaks {row}, too, and does not say so: add `//! Breaks too: {row} ({words})`. {seen}"
                ),
            });
        }
    }
    problems
}

/// The rows that exercises ask about and that none of their wrong programs breaks.
fn empty_rows(entries: &[Entry], found: &Findings) -> Vec<String> {
    let mut is_broken: BTreeMap<&str, bool> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        for ask in &entry.exercise.asks {
            let breaks = |it: &&(usize, Who, Found)| {
                it.0 == at
                    && it.1 != Who::Solution
                    && it.2.name == ask.name
                    && it.2.words != ask.solution
            };
            let name = if entry.exercise.kind == Kind::Test { continue } else { ask.name.as_str() };
            *is_broken.entry(name).or_default() |= found.iter().any(|it| breaks(&it));
        }
    }
    let empty = is_broken.into_iter().filter(|it| !it.1);
    let told = |(name, _)| {
        format!(
            "{name} is asked about, and no starter and no wrong server of an exercise breaks it: write one, or do not ask"
        )
    };
    empty.map(told).collect()
}

/// The files of the solutions that rustfmt would write otherwise. They are in no package, so that
/// `cargo fmt` does not see them.
fn unformatted(entries: &[Entry]) -> Vec<String> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        files.extend([entry.exercise.starter(), entry.exercise.solution()]);
        files.extend(entry.wrong.iter().map(|it| it.path.clone()));
    }
    let mut problems = Vec::new();
    for path in files {
        match is_formatted(&path) {
            Ok(true) => {}
            Ok(false) => problems.push(format!("{}: is not formatted", path.display())),
            Err(error) => problems.push(format!("{}: {error:#}", path.display())),
        }
    }
    problems
}

/// Whether rustfmt, with the settings of the repository, would leave the file as it is. It reads from
/// stdin, where it does not look for the modules that stand beside the file only when it is built.
fn is_formatted(path: &Path) -> anyhow::Result<bool> {
    let text = fs::read_to_string(path)?;
    let mut command = Command::new("rustfmt");
    command.args(["--edition", "2024", "--emit", "stdout", "--quiet"]);
    command.current_dir(path.parent().context("a folder")?);
    let output = bounded::output_of(&mut command, fs::File::open(path)?.into(), TOOL)
        .context("rustfmt (rustup component add rustfmt)")?;
    Ok(String::from_utf8_lossy(&output.stdout) == text)
}
