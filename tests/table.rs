//! The table tells a story, and this proves it: each chapter mends something, no failure is forgotten,
//! and every server and every folder has its column. The README shows the table, and that of chapter 07 its
//! own, and both show it fresh.
//!
//! `UPDATE=1 cargo test -p contract --test table` writes the README's copy again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use contract::probes;
use contract::verdicts::models::{HTTP, MODELS};
use contract::verdicts::{self, BESIDE, CHAPTERS, Column, Row, TABLE, Verdict};

/// The failures that no chapter mends yet: (the last chapter that fails, the row).
/// A chapter that mends one takes it out of here, and the test says so.
const OPEN: &[(&str, &str)] = &[];

/// The folder whose program is no server: the load generator.
const INSTRUMENT: &str = "00-stress";

/// The folder whose program is eleven servers, with a table of their own.
const ARENA: &str = "07-eleven-models";

/// Between these two lines the README's copy stands.
const MARKS: (&str, &str) = ("<!-- verdicts -->", "<!-- /verdicts -->");

const UPDATE: &str = "UPDATE=1 cargo test -p contract --test table";

#[test]
fn every_chapter_mends_something() {
    none(mends_nothing(&TABLE));
}

#[test]
fn every_failure_is_mended_later_or_open() {
    none(forgotten(&TABLE, OPEN));
}

#[test]
fn every_row_and_every_column_has_its_own_name() {
    let rows: Vec<_> = TABLE.iter().map(|it| it.name).collect();
    none(twice("row", &rows));
    let columns: Vec<_> = verdicts::columns().map(|it| it.name).collect();
    none(twice("column", &columns));
    none(nowhere(&BESIDE));
    let rows: Vec<_> = HTTP.rows.iter().map(|it| it.name).collect();
    none(twice("row", &rows));
    // A column is found by its name alone, in whichever table it is.
    let models = MODELS.iter().map(|it| it.name);
    none(twice("column", &columns.into_iter().chain(models).collect::<Vec<_>>()));
}

#[test]
fn every_row_of_the_models_has_its_probe() {
    let rows: Vec<_> = HTTP.rows.iter().map(|it| it.name).collect();
    let probes: Vec<_> = probes::http::names().collect();
    assert_eq!(rows, probes, "models.rs has the rows, probes/http.rs has the probes, in one order");
}

#[test]
fn what_one_model_breaks_another_keeps() {
    none(kept_by_nobody(HTTP.rows, &MODELS));
}

#[test]
fn the_readme_of_the_models_shows_their_table() {
    let path = root().join("chapters").join(ARENA).join("README.md");
    fresh(&path, |text| with_matrix(text, &models(HTTP.rows)));
}

#[test]
fn every_row_has_its_probe() {
    let rows: Vec<_> = TABLE.iter().map(|it| it.name).collect();
    let probes: Vec<_> = probes::names().collect();
    assert_eq!(rows, probes, "verdicts.rs has the rows, probes.rs has the probes, in one order");
}

#[test]
fn every_folder_is_a_column_and_every_column_is_a_folder() {
    let folders = chapters().into_iter().map(|it| it.package).collect();
    let columns = CHAPTERS.iter().map(|it| it.name.to_owned()).collect();
    none(unmatched("the folders of chapters/ and CHAPTERS", &folders, &columns));
}

#[test]
fn every_program_is_a_column_and_every_column_is_a_program() {
    let programs = chapters().into_iter().flat_map(|it| it.programs).collect();
    let columns = verdicts::columns().map(|it| it.name.to_owned()).collect();
    none(unmatched("the [[bin]]s of chapters/*/Cargo.toml and columns()", &programs, &columns));
}

#[test]
fn the_readme_shows_the_table() {
    fresh(&root().join("README.md"), |text| with_matrix(text, &both(&TABLE)));
}

#[test]
fn the_readme_shows_what_ch03_prints() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    none(unlike_its_run(&text, &TABLE, "ch03"));
}

/// Holds the file at `path` to what `write` makes of it, or with UPDATE writes it.
fn fresh(path: &Path, write: impl Fn(&str) -> Result<String, String>) {
    let text = fs::read_to_string(path).expect("text");
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let expected = write(&text).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    if text != expected {
        if std::env::var_os("UPDATE").is_none() {
            panic!("{name} does not show the table as it is.\nTo write it again: {UPDATE}");
        }
        fs::write(path, &expected).expect("the file can be written");
    }
}

fn none(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// The chapters that keep no promise that the chapter before them breaks.
fn mends_nothing(table: &[Row]) -> Vec<String> {
    let pairs = CHAPTERS.windows(2).map(|it| (it[0].name, it[1].name));
    let idle = pairs.filter(|(before, this)| {
        !table.iter().any(|row| fails(row, before) && row.cell(this) == Some(Verdict::Holds))
    });
    idle.map(|(before, this)| {
        format!("{this} mends nothing that {before} breaks: what is it there for?")
    })
    .collect()
}

/// The failures that no later chapter mends and `open` does not name, and what `open` names in vain.
fn forgotten(table: &[Row], open: &[(&str, &str)]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut met = BTreeSet::new();
    for (at, chapter) in CHAPTERS.iter().enumerate() {
        for row in table.iter().filter(|row| fails(row, chapter.name)) {
            let later = &CHAPTERS[at + 1..];
            if later.iter().any(|it| row.cell(it.name) == Some(Verdict::Holds)) {
                continue;
            }
            // The last chapter that fails stands for those before it.
            if later.iter().any(|it| fails(row, it.name)) {
                continue;
            }
            if open.contains(&(chapter.name, row.name)) {
                met.insert((chapter.name, row.name));
            } else {
                problems.push(format!(
                    "{}: {} breaks it and no later chapter mends it: mend it, or name it in OPEN",
                    row.name, chapter.name
                ));
            }
        }
    }
    let vain = open.iter().filter(|it| !met.contains(*it));
    problems.extend(vain.map(|(chapter, row)| {
        format!("OPEN names {row} of {chapter}, which is not open: take it out")
    }));
    problems
}

/// The rows that every one of `columns` breaks: the way of waiting is not to blame.
fn kept_by_nobody(table: &[Row], columns: &[Column]) -> Vec<String> {
    let broken = table.iter().filter(|row| columns.iter().all(|it| fails(row, it.name)));
    broken
        .map(|row| format!("{}: no model keeps it: what is it to be kept by?", row.name))
        .collect()
}

/// The names that stand in `names` more than once.
fn twice(kind: &str, names: &[&str]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let again = names.iter().filter(|it| !seen.insert(**it));
    again.map(|it| format!("there are two {kind}s called {it}: rename one")).collect()
}

/// The columns that claim to stand beside a chapter and do not say which.
fn nowhere(beside: &[Column]) -> Vec<String> {
    let stands = |name: &str| {
        CHAPTERS
            .iter()
            .any(|it| name.strip_prefix(it.name).is_some_and(|rest| rest.starts_with('-')))
    };
    let lost = beside.iter().filter(|it| !stands(it.name));
    lost.map(|it| format!("{} stands beside no chapter: call it chNN-something", it.name)).collect()
}

/// What is in one of two sets that should be equal.
fn unmatched(what: &str, found: &BTreeSet<String>, named: &BTreeSet<String>) -> Vec<String> {
    let differ = found.symmetric_difference(named);
    differ.map(|it| format!("{it} is in one only of {what}: add it to the other")).collect()
}

fn fails(row: &Row, column: &str) -> bool {
    matches!(row.cell(column), Some(Verdict::Fails(_)))
}

/// A numbered folder of `chapters/`.
struct Chapter {
    package: String,
    programs: Vec<String>,
}

/// The numbered folders, without the instrument.
fn chapters() -> Vec<Chapter> {
    let folders = fs::read_dir(root().join("chapters")).expect("the folder chapters");
    let folders = folders.map(|it| it.expect("an entry of chapters").path());
    let numbered = folders.filter(|it| {
        let name = it.file_name().expect("an entry has a name").to_string_lossy();
        name.starts_with(|it: char| it.is_ascii_digit()) && name != INSTRUMENT && name != ARENA
    });
    numbered
        .map(|folder| {
            let manifest = folder.join("Cargo.toml");
            let text = fs::read_to_string(&manifest)
                .unwrap_or_else(|it| panic!("{}: {it}", manifest.display()));
            let package = names(&text, "[package]").remove(0);
            Chapter { package, programs: names(&text, "[[bin]]") }
        })
        .collect()
}

/// The `name = "…"` of every section called `header` of a manifest.
///
/// Simplified: not a TOML parser. Our manifests have one key a line and nothing after it.
fn names(manifest: &str, header: &str) -> Vec<String> {
    let mut here = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            here = line.trim_end() == header;
        } else if here && let Some(rest) = line.strip_prefix("name = \"") {
            names.push(rest.trim_end().trim_end_matches('"').to_owned());
        }
    }
    names
}

/// The chapters, and below them the servers beside them with the rows that one of them breaks.
fn both(table: &[Row]) -> String {
    let broken = |row: &&Row| BESIDE.iter().any(|it| fails(row, it.name));
    let short: Vec<Row> = table.iter().filter(broken).copied().collect();
    format!(
        "{}\nThe servers that stand beside a chapter keep every promise but these:\n\n{}",
        matrix(table, &CHAPTERS),
        matrix(&short, &BESIDE)
    )
}

/// The models as letters, since eleven columns of sentences are no table.
fn models(table: &[Row]) -> String {
    let mut lines = Vec::new();
    let heads = (1..=MODELS.len()).map(|it| format!(" {it} |"));
    lines.push(format!("| a good server … |{}", heads.collect::<String>()));
    lines.push(format!("|---|{}", ":-:|".repeat(MODELS.len())));
    let mut used = Vec::new();
    for row in table {
        let cells = MODELS.iter().map(|it| row.cell(it.name).expect("a model of the table"));
        let letters = cells.map(|it| match it {
            Verdict::Holds => " · |".to_owned(),
            Verdict::Fails(symptom) => {
                used.push(symptom);
                format!(" **{}** |", symptom.letter())
            }
        });
        lines.push(format!("| {} (`{}`) |{}", row.promise, row.name, letters.collect::<String>()));
    }
    lines.push(String::new());
    used.sort_by_key(|it| it.letter());
    used.dedup();
    let used = used.iter().map(|it| format!("**{}** fails: {it}", it.letter()));
    lines.push(format!("A dot: holds. {}.", used.collect::<Vec<_>>().join("; ")));
    lines.push(String::new());
    let numbered = MODELS.iter().enumerate();
    lines.extend(numbered.map(|(at, it)| format!("{}. `{}`: {}", at + 1, it.name, it.about)));
    lines.join("\n") + "\n"
}

/// The rows of `table` for some of its columns, as a Markdown table and a list of what the columns are.
fn matrix(table: &[Row], columns: &[Column]) -> String {
    let mut lines = Vec::new();
    let heads = columns.iter().map(|it| format!(" `{}` |", it.name));
    lines.push(format!("| a good server … |{}", heads.collect::<String>()));
    lines.push(format!("|---|{}", "---|".repeat(columns.len())));
    for row in table {
        let cells = columns.iter().map(|it| cell(row, it.name));
        lines.push(format!("| {} |{}", row.promise, cells.collect::<String>()));
    }
    lines.push(String::new());
    let abouts = columns.iter().map(|it| format!("`{}`: {}", it.name, it.about));
    lines.push(format!("{}.", abouts.collect::<Vec<_>>().join("; ")));
    lines.join("\n") + "\n"
}

fn cell(row: &Row, column: &str) -> String {
    match row.cell(column).expect("a column of the table") {
        Verdict::Holds => " holds |".to_owned(),
        Verdict::Fails(symptom) => format!(" **fails**: {symptom} |"),
    }
}

/// `text` with `matrix` between its two marks, an empty line on each side.
fn with_matrix(text: &str, matrix: &str) -> Result<String, String> {
    let (open, close) = MARKS;
    let alone = |mark| text.matches(mark).count() == 1;
    let between = text.split_once(open).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(close)?;
        Some((before, after))
    });
    let Some((before, after)) = between.filter(|_| alone(open) && alone(close)) else {
        return Err(format!(
            "the table stands between one line {open} and one line {close} below it"
        ));
    };
    Ok(format!("{before}{open}\n\n{matrix}\n{close}{after}"))
}

/// What the sample of a chapter's run in `text` says of the table, and the table does not.
fn unlike_its_run(text: &str, table: &[Row], column: &str) -> Vec<String> {
    let sample = text
        .split_once(&format!("<!-- {column}-output -->"))
        .and_then(|it| it.1.split_once(&format!("<!-- /{column}-output -->")));
    let Some((sample, _)) = sample else {
        return vec![format!("there is no sample between the marks of {column}-output")];
    };
    let broken = table.iter().filter(|it| fails(it, column)).count();
    let held = table.len() - broken;
    let row = |it: &Row| {
        let label = if fails(it, column) { "[fails here]" } else { "[holds]" };
        format!("test {label:12} {:40} ... ok", it.name)
    };
    let can_be_printed: BTreeSet<String> = table.iter().map(row).collect();
    let needed = [
        format!("running {} tests", table.len()),
        format!("{column}: {held} promises held, {broken} broken as declared"),
    ];
    let missing = needed
        .iter()
        .filter(|line| !sample.lines().any(|it| it == *line))
        .map(|line| format!("the sample of {column} lacks the line: {line}"));
    let foreign = sample
        .lines()
        .filter(|it| it.starts_with("test ") && !can_be_printed.contains(*it))
        .map(|line| format!("{column} never prints: {line}"));
    missing.chain(foreign).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The checks themselves: each must be able to fail.
mod checks {
    use super::*;
    use contract::verdicts::Symptom;

    /// The table with one cell turned over.
    fn turned(row: &str, column: &str, cell: Verdict) -> [Row; TABLE.len()] {
        let mut table = TABLE;
        let at = verdicts::columns().position(|it| it.name == column).expect("a column");
        let row = table.iter_mut().find(|it| it.name == row).expect("a row");
        let mut cells = row.cells.to_vec();
        cells[at] = cell;
        row.cells = cells.leak();
        table
    }

    #[test]
    fn a_chapter_that_mends_nothing_is_told() {
        let mut table = TABLE;
        for row in &mut table {
            let mut cells = row.cells.to_vec();
            cells[1] = cells[0]; // Chapter 02 is chapter 01 again.
            row.cells = cells.leak();
        }
        let expected = "ch02 mends nothing that ch01 breaks: what is it there for?";
        assert_eq!(mends_nothing(&table), [expected]);
    }

    #[test]
    fn a_forgotten_failure_is_told_once() {
        let table = turned("nothing_leaks", "ch02", Verdict::Fails(Symptom::Leaked));
        assert_eq!(forgotten(&table, &[]), [""; 0], "ch03 mends it");
        let last = CHAPTERS[CHAPTERS.len() - 1].name;
        let table = turned("nothing_leaks", last, Verdict::Fails(Symptom::Leaked));
        let problems = forgotten(&table, &[]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        let told = format!("nothing_leaks: {last} breaks it");
        assert!(problems[0].starts_with(&told), "{problems:?}");
        assert_eq!(forgotten(&table, &[(last, "nothing_leaks")]), [""; 0]);
    }

    #[test]
    fn a_row_that_no_model_keeps_is_told() {
        let mut row = HTTP.rows[0];
        row.cells = &[Verdict::Fails(Symptom::Late); MODELS.len()];
        assert_eq!(kept_by_nobody(&[row], &MODELS).len(), 1);
        assert_ne!(models(&[row]), models(&HTTP.rows[..1]), "a cell turned over does not show");
    }

    #[test]
    fn what_is_open_in_vain_is_told() {
        let expected = "OPEN names nothing_leaks of ch04, which is not open: take it out";
        assert_eq!(forgotten(&TABLE, &[("ch04", "nothing_leaks")]), [expected]);
    }

    #[test]
    fn a_name_twice_and_a_lost_column_are_told() {
        assert_eq!(twice("row", &["a", "b", "a"]), ["there are two rows called a: rename one"]);
        let lost = Column { name: "ch99-mio", about: "" };
        assert_eq!(nowhere(&[BESIDE[0], lost]).len(), 1);
        let set = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(unmatched("them", &set(&["ch01", "ch05"]), &set(&["ch01", "ch06"])).len(), 2);
    }

    #[test]
    fn manifests_are_read() {
        let manifest = "[package]\nname = \"a\"\n\n[[bin]]\nname = \"b\"\npath = \"c\"\n\n[[test]]\nname = \"d\"\n";
        assert_eq!(names(manifest, "[package]"), ["a"]);
        assert_eq!(names(manifest, "[[bin]]"), ["b"]);
        let chapters = chapters();
        assert!(chapters.iter().all(|it| !it.programs.is_empty()), "a chapter without a program");
    }

    #[test]
    fn a_sample_of_yesterday_is_told() {
        let rows: String = TABLE.iter().take(2).fold(String::new(), |text, it| {
            text + &format!("test [holds]      {:40} ... ok\n", it.name)
        });
        let sample = |count: usize, rest: &str| {
            format!(
                "<!-- ch04-output -->\nrunning {count} tests\n{rows}{rest}\n<!-- /ch04-output -->"
            )
        };
        let last = "ch04: 18 promises held, 3 broken as declared";
        let of = |text: &str| unlike_its_run(text, &TABLE, "ch04");
        assert_eq!(of(&sample(TABLE.len(), last)), [""; 0]);
        assert_eq!(of(&sample(TABLE.len() - 1, last)).len(), 1);
        assert_eq!(of(&sample(TABLE.len(), "")).len(), 1);
        let foreign = format!("test [holds]      {:40} ... ok\n{last}", "every_core_serves");
        assert_eq!(of(&sample(TABLE.len(), &foreign)).len(), 1);
        assert_eq!(of("").len(), 1);
    }

    #[test]
    fn a_stale_copy_is_written_again() {
        let (open, close) = MARKS;
        let stale = format!("before\n{open}\nold\n{close}\nafter\n");
        let fresh = with_matrix(&stale, "new\n").expect("both marks");
        assert_eq!(fresh, format!("before\n{open}\n\nnew\n\n{close}\nafter\n"));
        assert_eq!(with_matrix(&fresh, "new\n").as_deref(), Ok(&*fresh), "writing it again");
        assert!(with_matrix("no marks", "new").is_err());
        assert!(with_matrix(&format!("{open} {open} {close}"), "new").is_err());
        let turned = turned("nothing_leaks", "ch04", Verdict::Fails(Symptom::Leaked));
        assert_ne!(both(&turned), both(&TABLE), "a cell turned over does not show");
    }
}
