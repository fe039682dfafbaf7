//! Holds a server to its column, and tells what was seen.
//!
//! A row that is broken exactly as the table says is green, and told afterwards: who held, who waited,
//! for how long, which thread slept in which system call on whom. A row that is broken otherwise, or
//! kept where the table says how it fails, is red.
//!
//! Two variables change what is held to what:
//!
//! * `EXPECT=ch04` holds the server to the column of chapter 04: the failing test that it turns green;
//! * `SERVER=path/to/program` puts any program in the chapter's place.

mod models;

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::build;
use crate::exercise::{self, Asked, Met};
use crate::probes::{self, Observation, Trouble};
use crate::server::Unstarted;
use crate::sys;
use crate::verdicts::{self, Row, Symptom, TABLE, Verdict};

pub use models::models;

/// How many rows run at once. They sleep most of the time, and each has servers of its own.
const ROWS_AT_ONCE: usize = 9;

/// How wide a paragraph is.
const COLUMNS: usize = 98;

/// What the rows found, in the order in which they ended.
type Findings = Arc<Mutex<Vec<(&'static Row, Result<Observation, String>)>>>;

/// The `main` of a chapter's `tests/contract.rs`: holds `exe` to the column called `name`.
///
/// The exit status is 0 when every cell is as declared, 101 when one is not, as libtest's.
pub fn hold(name: &'static str, exe: &str) -> ExitCode {
    let (held_to, exe) = match (expectation(name), replacement(exe)) {
        (Ok(column), Ok(exe)) => (column, exe),
        (Err(problem), _) | (_, Err(problem)) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let arguments = arguments(ROWS_AT_ONCE);
    let findings = Findings::default();
    let trials = TABLE.iter().map(|row| trial(row, held_to, exe.clone(), &findings)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let findings = findings.lock().unwrap_or_else(PoisonError::into_inner);
        print!("{}", report(name, held_to, &findings));
    }
    conclusion.exit_code()
}

/// The `main` of a chapter's `tests/beside.rs`: holds the servers that stand beside the chapter to their
/// columns, one test each.
pub fn beside(servers: &[(&'static str, &str)]) -> ExitCode {
    let arguments = arguments(servers.len());
    if env::var_os("EXPECT").is_some() || env::var_os("SERVER").is_some() {
        println!("EXPECT and SERVER concern the chapter: those beside it are left alone.");
        return ExitCode::SUCCESS;
    }
    let trials = servers.iter().map(|&(name, exe)| {
        let exe = PathBuf::from(exe);
        Trial::ignorable_test(name, move || column(name, &exe)).with_kind("all rows")
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// The `main` of an exercise's `tests/contract.rs`: holds `exe` to the rows that `text`, its
/// `exercise.toml`, asks about, as they are when it is solved. Red until then. Where the learner writes
/// the test, `exe` is that test, and it meets the servers that the file names.
///
/// `EXPECT=starter` holds it to what was handed out instead, and `SERVER` is as in [`hold`].
pub fn exercise(name: &'static str, text: &str, exe: &str) -> ExitCode {
    let of_starter = env::var("EXPECT").is_ok_and(|it| it == "starter");
    let trials = replacement(exe).and_then(|exe| match exercise::met(text)?.as_slice() {
        [] => rows_of_exercise(name, text, &exe, of_starter),
        met => Ok(met.iter().map(|it| meeting(name, it, exe.clone(), of_starter)).collect()),
    });
    let trials = match trials {
        Ok(trials) => trials,
        Err(problem) => {
            eprintln!("{name}: {problem}");
            return ExitCode::from(2);
        }
    };
    let arguments = arguments(ROWS_AT_ONCE);
    let conclusion = libtest_mimic::run(&arguments, trials);
    if conclusion.has_failed() && !of_starter {
        println!("{name}: {} to go. Next: cargo course hint {name}", conclusion.num_failed);
    }
    conclusion.exit_code()
}

/// The command line, and `at_once` tests at once where it says nothing else. The clients of all of them are
/// ours, and a server that leaks should be seen to do so before it runs out: the usual soft limit of 1,024
/// descriptors is too small for both.
pub fn arguments(at_once: usize) -> Arguments {
    sys::raise_descriptors();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(at_once);
    arguments
}

fn rows_of_exercise(
    name: &'static str,
    text: &str,
    exe: &Path,
    of_starter: bool,
) -> Result<Vec<Trial>, String> {
    let asked = exercise::asked(text).map_err(|it| format!("exercise.toml: {it}"))?;
    let trials = asked.into_iter().map(|Asked { row, starter, solution }| {
        let (declared, whose) =
            if of_starter { (starter, "starter") } else { (solution, "solution") };
        let declaration = format!("the {whose} of {name} {declared}, says exercise.toml");
        let exe = exe.to_owned();
        let ask = move || end_of_a_hole(declared, probes::run(row.name, &exe));
        let run = move || told(judge_cell(declared, &declaration, ask())).1;
        Trial::ignorable_test(row.name, run).with_kind(match declared {
            Verdict::Holds => "holds",
            Verdict::Fails(_) => "fails here",
        })
    });
    Ok(trials.collect())
}

/// A program with a hole ends before it listens, so that no probe gets hold of a server. Where it is
/// declared to end, that is what it does.
///
/// Of the chapters nobody wants to hear this: a server that cannot be started shows nothing there.
fn end_of_a_hole(declared: Verdict, outcome: probes::Outcome) -> probes::Outcome {
    match outcome {
        Err(Trouble::Broken(error))
            if declared == Verdict::Fails(Symptom::Died) && error.is::<Unstarted>() =>
        {
            Ok(Observation { verdict: declared, seen: format!("{error:#}.") })
        }
        outcome => outcome,
    }
}

/// The learner's test `exe` meets one server.
fn meeting(name: &'static str, met: &Met, exe: PathBuf, of_starter: bool) -> Trial {
    let Met { server, starter, solution } = met.clone();
    let declared = if of_starter { starter } else { solution };
    let kind = declared.clone();
    Trial::ignorable_test(server.clone(), move || {
        let program = build::server(&server).map_err(|it| format!("{it:#}"))?;
        match exercise::meet(&exe, &program) {
            Ok((word, _)) if word == declared => Ok(Completion::Completed),
            Ok((word, seen)) => Err(format!(
                "the test of {name} is to say \"{declared}\" of {server}, and says \"{word}\". {seen}"
            )
            .into()),
            Err(error) if format!("{error:#}").contains("io_uring is ") => {
                Ok(Completion::ignored_with(format!("NEEDS {error:#}")))
            }
            Err(error) => Err(format!("{error:#}").into()),
        }
    })
    .with_kind(kind)
}

/// Every row of one column.
fn column(name: &'static str, exe: &Path) -> Result<Completion, Failed> {
    let mut wrong = String::new();
    let mut needs = Vec::new();
    let next = AtomicUsize::new(0);
    let judged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..ROWS_AT_ONCE {
            scope.spawn(|| {
                while let Some(row) = TABLE.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = judge(row, name, probes::run(row.name, exe));
                    judged.lock().unwrap_or_else(PoisonError::into_inner).push((row, verdict));
                }
            });
        }
    });
    for (row, verdict) in judged.into_inner().unwrap_or_else(PoisonError::into_inner) {
        match verdict {
            Judged::AsDeclared(_) => {}
            Judged::Wrong(why) => wrong += &format!("{}: {why}\n", row.name),
            Judged::Needs(what) => needs.push(format!("{} NEEDS {what}", row.name)),
        }
    }
    match (wrong.is_empty(), needs.is_empty()) {
        (false, _) => Err(wrong.into()),
        (true, false) => Ok(Completion::ignored_with(needs.join("; "))),
        (true, true) => Ok(Completion::Completed),
    }
}

fn expectation(name: &'static str) -> Result<&'static str, String> {
    let Ok(expect) = env::var("EXPECT") else { return Ok(name) };
    let known: Vec<&str> = verdicts::columns().map(|it| it.name).collect();
    known.iter().find(|it| **it == expect).copied().ok_or_else(|| {
        format!("EXPECT={expect}: the table has no such column; it has {}", known.join(", "))
    })
}

fn replacement(exe: &str) -> Result<PathBuf, String> {
    let Some(server) = env::var_os("SERVER") else { return Ok(exe.into()) };
    // Tests run in the folder of their package, not where the reader stands: only a whole path helps.
    let path = PathBuf::from(&server);
    path.canonicalize().map_err(|error| {
        format!("SERVER={}: {error}: give the whole path of a program", path.display())
    })
}

fn trial(row: &'static Row, column: &'static str, exe: PathBuf, findings: &Findings) -> Trial {
    let findings = Arc::clone(findings);
    let kind = match row.cell(column) {
        Some(Verdict::Holds) | None => "holds",
        Some(Verdict::Fails(_)) => "fails here",
    };
    let run = move || {
        let (finding, result) = told(judge(row, column, probes::run(row.name, &exe)));
        findings.lock().unwrap_or_else(PoisonError::into_inner).push((row, finding));
        result
    };
    Trial::ignorable_test(row.name, run).with_kind(kind)
}

/// What is kept of a judgement for the report, and what libtest is told.
fn told(judged: Judged) -> (Result<Observation, String>, Result<Completion, Failed>) {
    match judged {
        Judged::AsDeclared(observation) => (Ok(observation), Ok(Completion::Completed)),
        Judged::Wrong(why) => (Err(why.clone()), Err(Failed::from(why))),
        Judged::Needs(what) => {
            let needs = format!("NEEDS {what}");
            (Err(needs.clone()), Ok(Completion::ignored_with(needs)))
        }
    }
}

/// What an outcome means for a cell.
enum Judged {
    AsDeclared(Observation),
    Wrong(String),
    Needs(String),
}

fn judge(row: &Row, column: &str, outcome: probes::Outcome) -> Judged {
    match row.cell(column) {
        Some(declared) => {
            judge_cell(declared, &format!("{column} {declared}, says the table"), outcome)
        }
        None => Judged::Wrong(format!("the table has no column {column:?}")),
    }
}

/// The same for a cell that stands elsewhere; `declaration` says in a clause what it is and where.
fn judge_cell(declared: Verdict, declaration: &str, outcome: probes::Outcome) -> Judged {
    let observation = match outcome {
        Ok(observation) => observation,
        Err(Trouble::Needs(what)) => return Judged::Needs(what),
        Err(Trouble::Broken(error)) => {
            return Judged::Wrong(format!("could not be tried: {error:#}"));
        }
    };
    if observation.verdict == declared {
        return Judged::AsDeclared(observation);
    }
    let Observation { verdict, seen } = observation;
    Judged::Wrong(match (declared, verdict) {
        (Verdict::Fails(_), Verdict::Holds) => format!(
            "{declaration}, and it held: it no longer shows what it is there to show. {seen}"
        ),
        _ => format!("{declaration}, and it {verdict}. {seen}"),
    })
}

/// What is said when all rows have run: the headline, the other failures, the sum.
fn report(name: &str, held_to: &str, findings: &[(&Row, Result<Observation, String>)]) -> String {
    let find = |row: &Row| findings.iter().find(|it| it.0.name == row.name);
    let broken: Vec<(&Row, &str)> = TABLE
        .iter()
        .filter_map(|row| match find(row)? {
            (_, Ok(Observation { verdict: Verdict::Fails(_), seen })) => Some((row, seen.as_str())),
            _ => None,
        })
        .collect();
    let mut text = String::new();
    let headline = verdicts::headline(name);
    if let Some((row, seen)) = broken.iter().find(|it| Some(it.0.name) == headline) {
        text += &wrap(&format!("{} {seen}", sentence(row, name)));
        text.push('\n');
    }
    let next = verdicts::next(name);
    let others = broken.iter().filter(|it| Some(it.0.name) != headline);
    let mut later = Vec::new();
    for (row, seen) in others {
        match row.mended_by(name) {
            Some(chapter) if Some(chapter) == next => {
                text += &wrap(&format!("{} {seen}", sentence(row, name)));
                text.push('\n');
            }
            Some(chapter) => later.push(format!("{} ({})", row.name, chapter.name)),
            None => later.push(format!("{} (open)", row.name)),
        }
    }
    if !later.is_empty() {
        text += &wrap(&format!("Broken too, and mended later: {}.", later.join(", ")));
        text.push('\n');
    }
    let held = findings.iter().filter(|it| matches!(&it.1, Ok(it) if it.verdict == Verdict::Holds));
    let (held, broken) = (held.count(), broken.len());
    let untried: Vec<&str> = findings
        .iter()
        .filter_map(|it| it.1.as_ref().err())
        .filter_map(|it| it.strip_prefix("NEEDS "))
        .collect();
    let wrong = findings.len() - held - broken - untried.len();
    for needs in &untried {
        text += &wrap(&format!("Not tried on this machine, which lacks what it needs: {needs}."));
        text.push('\n');
    }
    let _ = write!(text, "{name}: {held} promises held, {broken} broken as declared");
    if !untried.is_empty() {
        let _ = write!(text, ", {} NOT TRIED", untried.len());
    }
    if wrong > 0 {
        let _ = write!(text, ", {wrong} NOT AS DECLARED");
    }
    if held_to != name {
        let _ =
            write!(text, " (held to the column of {held_to}: what is red here, it turns green)");
    }
    text + "\n"
}

/// `half_a_line_stalls_nobody fails (others wait for its 2 s of patience). ch04 mends it.`
fn sentence(row: &Row, column: &str) -> String {
    let how = match row.cell(column) {
        Some(Verdict::Fails(symptom)) => format!(" ({symptom})"),
        _ => String::new(),
    };
    let mended = match row.mended_by(column) {
        Some(chapter) => format!("{} mends it", chapter.name),
        None => "no chapter mends it yet".into(),
    };
    format!("{} fails{how}; {mended}.", row.name)
}

/// Breaks a paragraph into lines of at most [`COLUMNS`].
fn wrap(paragraph: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > COLUMNS {
            text.push('\n');
            width = 0;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text += word;
        width += length;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;

    fn observed(verdict: Verdict) -> probes::Outcome {
        Ok(Observation { verdict, seen: "Seen.".into() })
    }

    #[test]
    fn any_cell_turned_over_is_red_in_both_directions() {
        let verdicts = [Verdict::Holds, Verdict::Fails(Symptom::Late)];
        for row in &TABLE {
            for column in verdicts::columns() {
                let declared = row.cell(column.name).unwrap();
                let judged = judge(row, column.name, observed(declared));
                assert!(matches!(judged, Judged::AsDeclared(_)), "{} {}", row.name, column.name);
                for other in verdicts.into_iter().filter(|it| *it != declared) {
                    let judged = judge(row, column.name, observed(other));
                    assert!(matches!(judged, Judged::Wrong(_)), "{} {}", row.name, column.name);
                }
            }
        }
    }

    #[test]
    fn what_could_not_be_tried_is_neither_kept_nor_broken() {
        let needs = judge(&TABLE[0], "ch01", Err(Trouble::Needs("a feature".into())));
        assert!(matches!(needs, Judged::Needs(_)));
        let broken =
            judge(&TABLE[0], "ch01", Err(Trouble::Broken(anyhow::anyhow!("no such file"))));
        assert!(matches!(broken, Judged::Wrong(_)));
    }

    #[test]
    fn a_program_that_ends_before_it_listens_ends_and_keeps_nothing() {
        let ends = Verdict::Fails(Symptom::Died);
        let unstarted = || Server::start(Path::new("/bin/true")).map(|_| ()).unwrap_err();
        let judged = |declared, error| {
            let outcome = end_of_a_hole(declared, Err(Trouble::Broken(error)));
            judge_cell(declared, "declared", outcome)
        };
        assert!(matches!(judged(ends, unstarted()), Judged::AsDeclared(it) if it.verdict == ends));
        assert!(matches!(judged(Verdict::Holds, unstarted()), Judged::Wrong(_)));
        let late = Verdict::Fails(Symptom::Late);
        assert!(matches!(judged(late, unstarted()), Judged::Wrong(_)));
        assert!(matches!(judged(ends, anyhow::anyhow!("no such file")), Judged::Wrong(_)));
    }

    #[test]
    fn a_report_begins_with_the_headline_and_ends_with_the_sum() {
        let findings: Vec<_> = TABLE
            .iter()
            .map(|row| {
                let verdict = row.cell("ch01").unwrap();
                let finding = match row.name {
                    "a_short_send_is_finished" => Err("NEEDS a newer kernel".into()),
                    "nothing_leaks" => Err("ch01 holds, says the table, and it leaked.".into()),
                    _ => Ok(Observation { verdict, seen: format!("What {} showed.", row.name) }),
                };
                (row, finding)
            })
            .collect();
        insta::assert_snapshot!(report("ch01", "ch01", &findings));
        let held_to_another = report("ch01", "ch02", &findings);
        assert!(
            held_to_another.ends_with("what is red here, it turns green)\n"),
            "{held_to_another}"
        );
    }
}
