//! The kill matrix: every wrong server of `wrong/` against every row of the table.
//!
//! A row that no wrong server breaks holds nothing, and a wrong server that no row breaks shows
//! that a row is missing. Each server names the row that kills it, and the symptom.
//!
//! To put one in a chapter's place, and see what a reader would see of it:
//!
//! ```text
//! cargo build -p contract && SERVER=$PWD/target/debug/wrong-reads-text cargo test -p ch04
//! ```

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, ensure};
use contract::probes::{self, Observation, Trouble};
use contract::verdicts::{self, Row, Symptom, TABLE, Verdict, find};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// How many servers are probed at once: they mostly sleep.
const SERVERS_MAX: usize = 8;

/// A file of `wrong/`, as its header has it.
struct Wrong {
    name: String,
    exe: PathBuf,
    misconception: String,
    row: &'static Row,
    symptom: String,
    /// Whether what it breaks besides depends on how long the clients before took.
    timing_decides: bool,
}

/// What the rows found of a server, in the order of the table. `None`: nothing.
type Column = [Option<Verdict>; TABLE.len()];

/// The line of a header that says of a server whose mistake is one of time: how fast this machine is
/// today decides which other rows it breaks, so that no record can hold them.
const TIMING_DECIDES: &str = "//! In other rows, timing decides whether it is seen.";

/// Where a run leaves what was seen of each cell, for whoever wonders about one.
const SEEN: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/kill-matrix-seen.txt");

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(SERVERS_MAX);
    let bank = match bank() {
        Ok(bank) => Arc::new(bank),
        Err(error) => {
            eprintln!("the bank of wrong servers cannot be read: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let found = Arc::new(Mutex::new(vec![None::<(Column, String)>; bank.len()]));
    let trials = (0..bank.len()).map(|at| {
        let (bank, found) = (bank.clone(), found.clone());
        Trial::ignorable_test(
            format!("{}_is_killed_by_{}", bank[at].name, bank[at].row.name),
            move || {
                let (column, seen, result) = probe(&bank[at], at);
                found.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some((column, seen));
                result
            },
        )
    });
    let killed = libtest_mimic::run(&arguments, trials.collect());
    if arguments.list {
        return killed.exit_code();
    }
    let found = found.lock().unwrap_or_else(PoisonError::into_inner);
    let seen: String = found.iter().flatten().map(|(_, seen)| seen.as_str()).collect();
    if let Err(error) = fs::write(SEEN, seen) {
        eprintln!("{SEEN}: {error}");
    }
    println!("What was seen of each cell: {SEEN}\n");
    let columns = found.iter().map(|it| it.as_ref().map(|&(column, _)| column));
    let Some(columns) = columns.collect::<Option<Vec<Column>>>() else {
        return killed.exit_code(); // Some were filtered out: there is no matrix to judge.
    };
    let matrix = matrix(&bank, &columns);
    println!("{matrix}");
    let arguments = Arguments { test_threads: Some(1), ..Arguments::default() };
    let judged = libtest_mimic::run(&arguments, judgements(&bank, columns, matrix));
    if killed.has_failed() { killed.exit_code() } else { judged.exit_code() }
}

/// What is held of the matrix as a whole.
fn judgements(bank: &[Wrong], columns: Vec<Column>, matrix: String) -> Vec<Trial> {
    // What a lack of the machine, or a probe that has failed already, has left out is not judged.
    let untested = columns.iter().flatten().filter(|it| it.is_none()).count();
    let judge = move |name: &str, judgement: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        Trial::ignorable_test(name, move || match untested {
            0 => judgement().map(|()| Completion::Completed),
            _ => {
                Ok(Completion::ignored_with(format!("{untested} cells were not tested, see above")))
            }
        })
    };
    let record = move || {
        insta::assert_snapshot!("matrix", matrix);
        Ok(())
    };
    let named = bank.iter().map(|it| (it.name.clone(), it.row)).collect();
    let again = columns.clone();
    vec![
        judge("every_row_is_broken_by_some_wrong_server", Box::new(move || no_empty_row(&columns))),
        judge("none_passes_for_a_chapter", Box::new(move || no_chapter(named, &again))),
        judge("the_matrix_is_the_one_on_record", Box::new(record)),
    ]
}

/// The wrong servers, in the order of the rows that kill them.
fn bank() -> anyhow::Result<Vec<Wrong>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("wrong");
    let mut bank = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "rs") {
            bank.push(wrong(&path).with_context(|| path.display().to_string())?);
        }
    }
    let rank = |it: &Wrong| TABLE.iter().position(|row| row.name == it.row.name);
    bank.sort_by_cached_key(|it| (rank(it), it.name.clone()));
    Ok(bank)
}

/// What the header of the file at `path` says.
fn wrong(path: &Path) -> anyhow::Result<Wrong> {
    let text = fs::read_to_string(path)?;
    let misconception = text.lines().next().and_then(|it| it.strip_prefix("//! Misconception: "));
    let killed_by = text.lines().find_map(|it| it.strip_prefix("//! Killed by: "));
    let (row, symptom) = killed_by
        .and_then(|it| it.strip_suffix(')')?.split_once(" ("))
        .context("there is no line `//! Killed by: ROW (SYMPTOM)`")?;
    let name = path.file_stem().context("a name")?.to_string_lossy().replace('_', "-");
    // All programs of a package are built into one folder; cargo tells where one of them is.
    let exe =
        Path::new(env!("CARGO_BIN_EXE_wrong-reads-text")).with_file_name(format!("wrong-{name}"));
    ensure!(exe.exists(), "{} is not built: has it a [[bin]] in tests/Cargo.toml?", exe.display());
    Ok(Wrong {
        exe,
        misconception: misconception.context("line 1 is not its misconception")?.into(),
        row: find(row).with_context(|| format!("the table has no row {row:?}"))?,
        symptom: symptom.into(),
        timing_decides: text.lines().any(|it| it == TIMING_DECIDES),
        name,
    })
}

/// Holds `wrong` to every row, and fails when the row that it names did not break as it says, or when
/// some row found nothing.
fn probe(wrong: &Wrong, at: usize) -> (Column, String, Result<Completion, Failed>) {
    let mut column = [None; TABLE.len()];
    let (mut failures, mut needs) = (String::new(), String::new());
    let mut all_seen = String::new();
    let expected = format!("fails: {}", wrong.symptom);
    // Each begins with another row, so that those running now are at different rows: some rows take a
    // core for a moment.
    for row in (0..TABLE.len()).map(|it| (it + at) % TABLE.len()) {
        let name = TABLE[row].name;
        let start = Instant::now();
        match probes::run(name, &wrong.exe) {
            Ok(Observation { verdict, seen }) => {
                column[row] = Some(verdict);
                let took = start.elapsed().as_secs_f64();
                let _ =
                    writeln!(all_seen, "{} / {name} ({took:.1} s): {verdict}: {seen}", wrong.name);
                if name == wrong.row.name && verdict.to_string() != expected {
                    let _ =
                        writeln!(failures, "{name}: not \"{expected}\" but \"{verdict}\": {seen}");
                }
            }
            Err(Trouble::Needs(what)) => {
                let _ = write!(needs, "{name} was not tested: it needs {what} ");
            }
            Err(Trouble::Broken(error)) => {
                let _ = writeln!(failures, "{name}: the probe found nothing: {error:#}");
            }
        }
    }
    let result = match (failures.is_empty(), needs.is_empty()) {
        (false, _) => Err(failures.into()),
        (true, false) => Ok(Completion::ignored_with(needs)),
        (true, true) => Ok(Completion::Completed),
    };
    (column, all_seen, result)
}

/// Every promise is broken by somebody, or its probe may be one that cannot fail.
fn no_empty_row(columns: &[Column]) -> Result<(), Failed> {
    let broken = |row: usize| columns.iter().any(|it| matches!(it[row], Some(Verdict::Fails(_))));
    let empty: Vec<_> =
        (0..TABLE.len()).filter(|&it| !broken(it)).map(|it| TABLE[it].name).collect();
    if empty.is_empty() {
        return Ok(());
    }
    Err(format!("no wrong server breaks {}: write one", empty.join(", ")).into())
}

/// No wrong server passes for a server that keeps the promise which it breaks. For one that breaks it too
/// it may: chapter 04 is no worse than a server that is wrong about what 05 is there to mend.
fn no_chapter(named: Vec<(String, &Row)>, columns: &[Column]) -> Result<(), Failed> {
    for ((name, row), column) in named.iter().zip(columns) {
        for (at, chapter) in verdicts::columns().enumerate() {
            let passes = TABLE.iter().zip(column).all(|(row, &found)| found == Some(row.cells[at]));
            if row.cells[at] == Verdict::Holds && passes {
                return Err(format!("{name} would pass for {}", chapter.name).into());
            }
        }
    }
    Ok(())
}

/// The matrix as it is read.
fn matrix(bank: &[Wrong], columns: &[Column]) -> String {
    let width = TABLE.iter().map(|it| it.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut used: Vec<Symptom> = Vec::new();
    let labels: Vec<String> = (1..=bank.len()).map(|it| format!("{it:>3}")).collect();
    let _ = writeln!(text, "{:width$} {}", "", labels.concat());
    for (at, row) in TABLE.iter().enumerate() {
        let _ = write!(text, "{:width$} ", row.name);
        for (wrong, column) in bank.iter().zip(columns) {
            let named = wrong.row.name == row.name;
            let cell = match column[at] {
                None => "?".into(),
                Some(_) if wrong.timing_decides && !named => "~".into(),
                Some(Verdict::Holds) => ".".into(),
                Some(Verdict::Fails(symptom)) => {
                    used.push(symptom);
                    let letter = letter(symptom);
                    if named { letter.to_uppercase().to_string() } else { letter.into() }
                }
            };
            let _ = write!(text, "{cell:>3}");
        }
        text.push('\n');
    }
    text.push_str("\n. the promise is kept; a capital is the cell that the server names\n");
    text.push_str("~ timing decides, as the server says\n");
    used.sort_by_key(|&it| letter(it));
    used.dedup();
    for symptom in used {
        let _ = writeln!(text, "{} {symptom}", letter(symptom));
    }
    text.push('\n');
    for (wrong, label) in bank.iter().zip(labels) {
        let _ = writeln!(text, "{label} {}: {}", wrong.name, wrong.misconception);
    }
    text
}

fn letter(symptom: Symptom) -> char {
    match symptom {
        Symptom::StalledForEver => 'f',
        Symptom::StalledForItsPatience => 'p',
        Symptom::Late => 't',
        Symptom::HeldForEver => 'h',
        Symptom::PatienceRenewed => 'n',
        Symptom::QueueOverflowed => 'q',
        Symptom::Spun => 's',
        Symptom::WrongAnswer => 'w',
        Symptom::Reset => 'r',
        Symptom::Unanswered => 'u',
        Symptom::Died => 'd',
        Symptom::Leaked => 'l',
        Symptom::AddressTaken => 'a',
        Symptom::OneCore => 'c',
        Symptom::WentOn => 'g',
        Symptom::ManyCalls => 'm',
    }
}
