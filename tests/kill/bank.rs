//! A kill matrix: every wrong server of a folder against every row of a table.
//!
//! A row that no wrong server breaks holds nothing, and a wrong server that no row breaks shows
//! that a row is missing. Each server names the row that kills it, and the symptom.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, ensure};
use contract::harness;
use contract::probes::{Observation, Outcome, Trouble};
use contract::verdicts::{Row, Symptom, Table, Verdict};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// A file of `wrong/`, as its header has it.
struct Wrong {
    name: String,
    exe: PathBuf,
    misconception: String,
    /// The rows that kill it, and how it breaks them.
    named: Vec<(&'static Row, String)>,
    /// Whether what it breaks besides depends on how long the clients before took.
    timing_decides: bool,
}

/// What the rows found of a server, in the order of the table. `None`: nothing.
type Column = Vec<Option<Verdict>>;

/// A table and the wrong servers that show that each of its rows can fail.
pub struct Bank {
    /// The rows, and whom no wrong server may pass for.
    pub table: Table,
    /// The folder of the servers, below `tests`.
    pub folder: &'static str,
    /// What the names of their programs begin with.
    pub prefix: &'static str,
    /// The name of the record of the matrix.
    pub record: &'static str,
    /// Whether every server is held to every row. Otherwise to those that it names, and to the first, which
    /// every server keeps that serves at all. `WHOLE=1` holds all to all, and judges nothing.
    pub is_whole: bool,
    /// How many servers are probed at once: they mostly sleep.
    pub at_once: usize,
    /// Tries a row on a program.
    pub probe: fn(&str, &Path) -> Outcome,
}

/// The line of a header that says of a server whose mistake is one of time: how fast this machine is
/// today decides which other rows it breaks, so that no record can hold them.
const TIMING_DECIDES: &str = "//! In other rows, timing decides whether it is seen.";

/// The `main` of a test: probes every server of `of`, and judges the matrix.
pub fn main(of: Bank) -> ExitCode {
    let of = Arc::new(of);
    let arguments = harness::arguments(of.at_once);
    let bank = match bank(&of) {
        Ok(bank) => Arc::new(bank),
        Err(error) => {
            eprintln!("the bank of wrong servers cannot be read: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let found = Arc::new(Mutex::new(vec![None::<(Column, String)>; bank.len()]));
    let trials = (0..bank.len()).map(|at| {
        let (of, bank, found) = (of.clone(), bank.clone(), found.clone());
        Trial::ignorable_test(
            format!("{}_is_killed_by_{}", bank[at].name, bank[at].named[0].0.name),
            move || {
                let (column, seen, result) = probe(&of, &bank[at], at);
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
    // Where a run leaves what was seen of each cell, for whoever wonders about one.
    let path = format!("{}/kill-{}-seen.txt", env!("CARGO_TARGET_TMPDIR"), of.record);
    if let Err(error) = fs::write(&path, seen) {
        eprintln!("{path}: {error}");
    }
    println!("What was seen of each cell: {path}\n");
    let columns = found.iter().map(|it| it.as_ref().map(|(column, _)| column.clone()));
    let Some(columns) = columns.collect::<Option<Vec<Column>>>() else {
        return killed.exit_code(); // Some were filtered out: there is no matrix to judge.
    };
    let matrix = matrix(&of.table, &bank, &columns);
    println!("{matrix}");
    if !of.is_whole && is_asked_for_all() {
        return killed.exit_code();
    }
    let arguments = Arguments { test_threads: Some(1), ..Arguments::default() };
    let judged = libtest_mimic::run(&arguments, judgements(&of, &bank, columns, matrix));
    if killed.has_failed() { killed.exit_code() } else { judged.exit_code() }
}

/// Whether every server of a bank that is not whole is to be held to every row.
fn is_asked_for_all() -> bool {
    std::env::var_os("WHOLE").is_some()
}

/// What is held of the matrix as a whole.
fn judgements(of: &Bank, bank: &[Wrong], columns: Vec<Column>, matrix: String) -> Vec<Trial> {
    // What a lack of the machine, or a probe that has failed already, has left out is not judged.
    let of_named = |wrong: &Wrong, column: &Column| {
        let cells =
            of.table.rows.iter().zip(column).filter(|(row, _)| {
                of.is_whole || wrong.named.iter().any(|it| it.0.name == row.name)
            });
        cells.filter(|it| it.1.is_none()).count()
    };
    let untested: usize = bank.iter().zip(&columns).map(|(wrong, it)| of_named(wrong, it)).sum();
    let judge = move |name: &str, judgement: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        Trial::ignorable_test(name, move || match untested {
            0 => judgement().map(|()| Completion::Completed),
            _ => {
                Ok(Completion::ignored_with(format!("{untested} cells were not tested, see above")))
            }
        })
    };
    let (table, name) = (of.table, of.record);
    let record = move || {
        insta::assert_snapshot!(name, matrix);
        Ok(())
    };
    let named = bank.iter().map(|it| (it.name.clone(), it.named[0].0)).collect();
    let again = columns.clone();
    let mut all = vec![
        judge(
            "every_row_is_broken_by_some_wrong_server",
            Box::new(move || no_empty_row(&table, &columns)),
        ),
        judge("the_matrix_is_the_one_on_record", Box::new(record)),
    ];
    if of.is_whole {
        let no_chapter = move || no_chapter(&table, named, &again);
        all.push(judge("none_passes_for_a_chapter", Box::new(no_chapter)));
    }
    all
}

/// The wrong servers, in the order of the rows that kill them.
fn bank(of: &Bank) -> anyhow::Result<Vec<Wrong>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(of.folder);
    let mut bank = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "rs") {
            bank.push(wrong(of, &path).with_context(|| path.display().to_string())?);
        }
    }
    let rank = |it: &Wrong| of.table.rows.iter().position(|row| row.name == it.named[0].0.name);
    bank.sort_by_cached_key(|it| (rank(it), it.name.clone()));
    Ok(bank)
}

/// What the header of the file at `path` says.
fn wrong(of: &Bank, path: &Path) -> anyhow::Result<Wrong> {
    let text = fs::read_to_string(path)?;
    let misconception = text.lines().next().and_then(|it| it.strip_prefix("//! Misconception: "));
    let mut named = Vec::new();
    for killed_by in text.lines().filter_map(|it| it.strip_prefix("//! Killed by: ")) {
        let (row, symptom) = killed_by
            .strip_suffix(')')
            .and_then(|it| it.split_once(" ("))
            .context("a line `//! Killed by:` is not followed by `ROW (SYMPTOM)`")?;
        let found = of.table.rows.iter().find(|it| it.name == row);
        let row = found.with_context(|| format!("the table has no row {row:?}"))?;
        named.push((row, symptom.to_owned()));
    }
    ensure!(!named.is_empty(), "there is no line `//! Killed by: ROW (SYMPTOM)`");
    let name = path.file_stem().context("a name")?.to_string_lossy().replace('_', "-");
    // All programs of a package are built into one folder; cargo tells where one of them is.
    let exe = Path::new(env!("CARGO_BIN_EXE_wrong-reads-text"))
        .with_file_name(format!("{}{name}", of.prefix));
    ensure!(exe.exists(), "{} is not built: has it a [[bin]] in tests/Cargo.toml?", exe.display());
    Ok(Wrong {
        exe,
        misconception: misconception.context("line 1 is not its misconception")?.into(),
        named,
        timing_decides: text.lines().any(|it| it == TIMING_DECIDES),
        name,
    })
}

/// Holds `wrong` to every row, and fails when the row that it names did not break as it says, or when
/// some row found nothing.
fn probe(of: &Bank, wrong: &Wrong, at: usize) -> (Column, String, Result<Completion, Failed>) {
    let rows = of.table.rows;
    let mut column = vec![None; rows.len()];
    let (mut failures, mut needs) = (String::new(), String::new());
    let mut all_seen = String::new();
    let whole = of.is_whole || is_asked_for_all();
    // Each begins with another row, so that those running now are at different rows: some rows take a
    // core for a moment.
    for row in (0..rows.len()).map(|it| (it + at) % rows.len()) {
        let name = rows[row].name;
        let expected = wrong.named.iter().find(|it| it.0.name == name).map(|it| &it.1);
        if !whole && expected.is_none() && row > 0 {
            continue;
        }
        let start = Instant::now();
        match (of.probe)(name, &wrong.exe) {
            Ok(Observation { verdict, seen }) => {
                column[row] = Some(verdict);
                let took = start.elapsed().as_secs_f64();
                let _ =
                    writeln!(all_seen, "{} / {name} ({took:.1} s): {verdict}: {seen}", wrong.name);
                let expected = match expected {
                    Some(symptom) => format!("fails: {symptom}"),
                    None if whole => verdict.to_string(),
                    None => "holds".into(),
                };
                if verdict.to_string() != expected {
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
fn no_empty_row(table: &Table, columns: &[Column]) -> Result<(), Failed> {
    let broken = |row: usize| columns.iter().any(|it| matches!(it[row], Some(Verdict::Fails(_))));
    let empty: Vec<_> =
        (0..table.rows.len()).filter(|&it| !broken(it)).map(|it| table.rows[it].name).collect();
    if empty.is_empty() {
        return Ok(());
    }
    Err(format!("no wrong server breaks {}: write one", empty.join(", ")).into())
}

/// No wrong server passes for a server that keeps the promise which it breaks. For one that breaks it too
/// it may: chapter 04 is no worse than a server that is wrong about what 05 is there to mend.
fn no_chapter(table: &Table, named: Vec<(String, &Row)>, columns: &[Column]) -> Result<(), Failed> {
    for ((name, row), column) in named.iter().zip(columns) {
        for (at, chapter) in table.columns.iter().enumerate() {
            let passes =
                table.rows.iter().zip(column).all(|(row, &found)| found == Some(row.cells[at]));
            if row.cells[at] == Verdict::Holds && passes {
                return Err(format!("{name} would pass for {}", chapter.name).into());
            }
        }
    }
    Ok(())
}

/// The matrix as it is read.
fn matrix(table: &Table, bank: &[Wrong], columns: &[Column]) -> String {
    let width = table.rows.iter().map(|it| it.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut used: Vec<Symptom> = Vec::new();
    let labels: Vec<String> = (1..=bank.len()).map(|it| format!("{it:>3}")).collect();
    let _ = writeln!(text, "{:width$} {}", "", labels.concat());
    for (at, row) in table.rows.iter().enumerate() {
        let _ = write!(text, "{:width$} ", row.name);
        for (wrong, column) in bank.iter().zip(columns) {
            let named = wrong.named.iter().any(|it| it.0.name == row.name);
            let cell = match column[at] {
                None if named => "?".into(),
                None => String::new(),
                Some(_) if wrong.timing_decides && !named => "~".into(),
                Some(Verdict::Holds) => ".".into(),
                Some(Verdict::Fails(symptom)) => {
                    used.push(symptom);
                    let letter = symptom.letter();
                    if named { letter.to_uppercase().to_string() } else { letter.into() }
                }
            };
            let _ = write!(text, "{cell:>3}");
        }
        text.push('\n');
    }
    text.push_str("\n. the promise is kept; a capital is the cell that the server names\n");
    text.push_str("~ timing decides, as the server says\n");
    used.sort_by_key(|it| it.letter());
    used.dedup();
    for symptom in used {
        let _ = writeln!(text, "{} {symptom}", symptom.letter());
    }
    text.push('\n');
    for (wrong, label) in bank.iter().zip(labels) {
        let _ = writeln!(text, "{label} {}: {}", wrong.name, wrong.misconception);
    }
    text
}
