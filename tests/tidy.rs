//! What the compiler cannot check: names that must agree, anchors and includes, copies that must not
//! drift, lengths and the size of each step, and what may not be written at all.
//!
//! Every check is a function of the repository's text, so that the tests at the end can show it one
//! that is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use similar::{Algorithm, ChangeTag, TextDiff};

/// What may stand at the top. A new command, tool or text belongs into one of the folders.
const TOP: &[&str] = &[
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".devcontainer",
    ".github",
    ".gitignore",
    ".rustfmt.toml",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "book",
    "chapters",
    "exercises",
    "tests",
];

/// How long a chapter's loop file may be, and its first step, and any function, without the lines of
/// anchors: those are for the book.
const LOOP_LINES_MAX: usize = 250;
const BARE_LINES_MAX: usize = 120;
const FUNCTION_LINES_MAX: usize = 70;

/// A file that grows out of another.
struct Step {
    from: &'static str,
    to: &'static str,
    /// How many lines may be removed and added together, without the lines of anchors.
    changes_max: usize,
}

/// The steps from chapter to chapter, and then the files that show one thing beside their chapter:
/// what they do not show must stay as it is in the chapter.
#[rustfmt::skip]
const STEPS: &[Step] = &[
    Step { from: LOOPS[0], to: LOOPS[1], changes_max: 150 },
    Step { from: LOOPS[1], to: LOOPS[2], changes_max: 150 },
    Step { from: LOOPS[2], to: BARE, changes_max: 150 },
    Step { from: BARE, to: LOOPS[3], changes_max: 150 },
    Step { from: LOOPS[3], to: LOOPS[4], changes_max: 150 },
    Step { from: LOOPS[1], to: "chapters/02-backlog/src/bin/backlog_only.rs", changes_max: 20 },
    Step { from: LOOPS[1], to: "chapters/02-backlog/src/bin/patience_only.rs", changes_max: 20 },
    Step { from: LOOPS[2], to: "chapters/03-epoll-blocking/src/bin/one_recv.rs", changes_max: 45 },
    Step { from: LOOPS[3], to: "chapters/04-epoll-nonblocking/src/bin/mio.rs", changes_max: 150 },
    Step { from: LOOPS[3], to: "chapters/04-epoll-nonblocking/src/bin/polling.rs", changes_max: 150 },
    Step { from: LOOPS[5], to: "chapters/06-io-uring/src/bin/crate.rs", changes_max: 35 },
];

/// The files that the chapters 01 to 06 are about. From 05 to 06 the waiting is turned round: no budget.
const LOOPS: [&str; 6] = [
    "chapters/01-blocking/src/main.rs",
    "chapters/02-backlog/src/main.rs",
    "chapters/03-epoll-blocking/src/main.rs",
    "chapters/04-epoll-nonblocking/src/main.rs",
    "chapters/05-reuseport/src/main.rs",
    "chapters/06-io-uring/src/main.rs",
];
const BARE: &str = "chapters/04-epoll-nonblocking/src/bin/bare.rs";

/// The functions of a chapter, in this order, as far as it has them.
const ORDER: &[&str] = &["main", "listen", "serve", "accept", "converse", "hang_up"];

/// The one file of chapters 01 to 04 where `unsafe` may stand: a library asks for it.
const UNSAFE: &str = "chapters/04-epoll-nonblocking/src/bin/polling.rs";

/// What a page may include whole; of everything else it shows a part by its anchor.
const WHOLE: &[&str] = &[".svg"];

/// Files with made-up input of checks: no prose and no code of ours.
const INPUT: &[&str] = &["tests/cmd/", "tests/tidy.rs"];

// ---------------------------------------------------------------------------------------------------
// The checks, run on the repository.

#[test]
fn folder_package_page_and_readme_agree() {
    none(disagreeing(&TREE));
}

#[test]
fn exercises_are_all_of_one_shape() {
    none(misshapen(&TREE));
}

#[test]
fn the_top_level_is_what_it_was() {
    none(strangers(&TREE));
}

#[test]
fn anchors_open_close_and_are_shown() {
    none(anchors(&TREE));
}

#[test]
fn includes_resolve_and_go_by_anchor() {
    none(includes(&TREE));
}

#[test]
fn a_helper_of_several_chapters_is_one_file() {
    none(differing_helpers(&TREE));
}

#[test]
fn files_and_functions_are_short() {
    none(too_long(&TREE));
}

#[test]
fn every_step_is_small() {
    none(too_far(&TREE, STEPS));
}

#[test]
fn chapters_have_their_functions_in_one_order() {
    none(disordered(&TREE));
}

#[test]
fn every_file_says_what_it_is() {
    none(untitled(&TREE));
}

#[test]
fn chapters_make_their_calls_themselves() {
    none(forbidden(&TREE));
}

#[test]
fn nothing_belongs_to_one_machine() {
    none(of_one_machine(&TREE));
}

#[test]
fn prose_has_no_measured_number() {
    none(measured(&TREE));
}

#[test]
fn cargo_run_knows_what_to_run() {
    none(without_default(&TREE));
}

#[test]
fn the_gate_can_be_run() {
    let path = root().join(".ci/run");
    let mode = fs::metadata(&path).map(|it| it.permissions().mode());
    let executable = mode.is_ok_and(|it| it & 0o111 != 0);
    assert!(executable, ".ci/run:1: is not there or not executable: chmod +x .ci/run");
}

// ---------------------------------------------------------------------------------------------------
// What the checks look at, and what they say.

/// The texts of a repository by their paths.
struct Tree {
    files: BTreeMap<String, String>,
}

/// This repository. A check of nothing would find nothing, so the chapters must be in it.
static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let tree = Tree::read(&root()).unwrap_or_else(|it| panic!("{}: {it}", root().display()));
    let missing: Vec<_> = LOOPS.iter().filter(|it| tree.get(it).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?} are not there: mend LOOPS in tests/tidy.rs");
    tree
});

/// Something to mend, and where.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

fn problem(path: &str, line: usize, what: impl Into<String>) -> Problem {
    Problem { path: path.to_owned(), line, what: what.into() }
}

/// Fails with all of `problems`, if there are any.
fn none(problems: Vec<Problem>) {
    let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
    assert!(lines.is_empty(), "{} to mend:\n{}\n", lines.len(), lines.join("\n"));
}

impl Tree {
    /// The files below `root` that are text, without what `.gitignore` names and without git's own.
    fn read(root: &Path) -> io::Result<Tree> {
        let ignore = fs::read_to_string(root.join(".gitignore"))?;
        let mut tree = Tree { files: BTreeMap::new() };
        tree.read_below(root, "", &ignore)?;
        Ok(tree)
    }

    fn read_below(&mut self, root: &Path, folder: &str, ignore: &str) -> io::Result<()> {
        for entry in fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            if path == ".git" || is_ignored(&path, ignore) || is_the_learners(&path) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                self.read_below(root, &format!("{path}/"), ignore)?;
            // An editor's file may be gone by now, and an image is not text.
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                self.files.insert(path, text);
            }
        }
        Ok(())
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// The files whose paths begin and end so.
    fn named(&self, start: &str, end: &str) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| path.starts_with(start) && path.ends_with(end))
    }

    /// The files in which every line is ours.
    fn ours(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.named("", end).filter(|(path, _)| !INPUT.iter().any(|it| path.starts_with(it)))
    }

    /// The names of the folders directly in `folder`, which ends in a slash.
    fn folders(&self, folder: &str) -> BTreeSet<&str> {
        let inside = self.files.keys().filter_map(|it| it.strip_prefix(folder));
        inside.filter_map(|it| it.split_once('/')).map(|(name, _)| name).collect()
    }
}

/// Whether `.gitignore` names `path`: a path from the root, or an ending after a star.
fn is_ignored(path: &str, ignore: &str) -> bool {
    ignore.lines().any(|it| match (it.strip_prefix('/'), it.strip_prefix('*')) {
        (Some(from_root), _) => path == from_root.trim_end_matches('/'),
        (_, Some(ending)) => !ending.is_empty() && path.ends_with(ending),
        _ => false,
    })
}

/// Whether a learner writes the file at `path`, who is held to no rule of this house. What is handed out is
/// held to them in `exercises/solutions/exNN/starter.rs`.
fn is_the_learners(path: &str) -> bool {
    path.starts_with("exercises/ex") && path.ends_with("/src/main.rs")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The lines of `text` with their numbers, from 1.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

// ---------------------------------------------------------------------------------------------------
// Names.

/// Folder `NN-slug`, package `chNN`, page `NN-slug.md` and the README must agree, and each must be there.
fn disagreeing(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let summary = tree.get("book/src/SUMMARY.md").unwrap_or_default();
    for folder in tree.folders("chapters/") {
        let manifest = format!("chapters/{folder}/Cargo.toml");
        let number = folder.split('-').next().filter(|it| it.parse::<u8>().is_ok());
        let package = number.map_or(folder.to_owned(), |it| format!("ch{it}"));
        if !tree.get(&manifest).is_some_and(|it| it.contains(&format!("name = \"{package}\"\n"))) {
            problems.push(problem(
                &manifest,
                1,
                format!("call the package {package}, as its folder"),
            ));
        }
        let Some(number) = number else { continue };
        let page = format!("{folder}.md");
        if tree.get(&format!("book/src/{page}")).is_none() {
            let what = format!("chapters/{folder} has no page: write it");
            problems.push(problem(&format!("book/src/{page}"), 1, what));
        }
        if !summary.contains(&format!("({page})")) && !summary.contains(&format!("(./{page})")) {
            problems.push(problem("book/src/SUMMARY.md", 1, format!("name the page {page}")));
        }
        problems.extend(readme_disagrees(tree, folder, number, &package));
        let main = format!("chapters/{folder}/src/main.rs");
        let title = format!("//! Chapter {number}");
        if number != "00" && !tree.get(&main).is_some_and(|it| it.starts_with(&title)) {
            problems.push(problem(&main, 1, format!("begin with `{title}`, as its folder")));
        }
    }
    for (path, _) in tree.named("book/src/", ".md") {
        let name = path.trim_start_matches("book/src/").trim_end_matches(".md");
        let is_chapter = name.starts_with(|it: char| it.is_ascii_digit());
        if is_chapter && !tree.folders("chapters/").contains(name) {
            problems.push(problem(
                path,
                1,
                format!("there is no folder chapters/{name}: rename one"),
            ));
        }
    }
    problems
}

/// The exercises whose names do not agree, whose test is not like the others', or whose helper files are not
/// their chapter's. What they ask, and whether it is so, is for `cargo course verify` to say.
fn misshapen(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let folders = tree.folders("exercises/").into_iter().filter(|it| it.starts_with("ex"));
    let mut ids = BTreeSet::new();
    for folder in folders {
        let id = folder.split('-').next().unwrap_or(folder);
        ids.insert(id);
        let manifest = format!("exercises/{folder}/Cargo.toml");
        if !tree.get(&manifest).is_some_and(|it| it.contains(&format!("\nname = \"{id}\"\n"))) {
            problems.push(problem(&manifest, 1, format!("call the package {id}, as its folder")));
        }
        let test = format!("exercises/{folder}/tests/contract.rs");
        let text = tree.get(&format!("exercises/{folder}/exercise.toml")).unwrap_or_default();
        let what = if text.contains("\nkind = \"test\"\n") { "servers" } else { "rows" };
        if tree.get(&test) != Some(test_of_exercise(id, what).as_str()) {
            problems.push(problem(
                &test,
                1,
                "be as those of the other exercises, but for the number",
            ));
        }
        problems.extend(drifted(tree, folder));
        problems.extend(not_in_the_book(tree, folder));
        if tree.get(&format!("exercises/solutions/{id}/main.rs")).is_none() {
            let path = format!("exercises/solutions/{id}/main.rs");
            problems.push(problem(
                &path,
                1,
                format!("exercises/{folder} has no solution: write it"),
            ));
        }
    }
    for id in tree.folders("exercises/solutions/").into_iter().filter(|it| !ids.contains(it)) {
        let path = format!("exercises/solutions/{id}");
        problems.push(problem(&path, 1, format!("there is no exercise {id}: remove its solution")));
    }
    problems
}

/// The pages of the book that do not say of an exercise what its folder does: its own, which shows its
/// README, the list of all, its chapter's, and the summary.
fn not_in_the_book(tree: &Tree, folder: &str) -> Vec<Problem> {
    let text = tree.get(&format!("exercises/{folder}/exercise.toml")).unwrap_or_default();
    let value = |key: &str| text.lines().find_map(|it| it.strip_prefix(key)).unwrap_or("??");
    let minutes = value("minutes = ");
    let chapter = value("chapter = \"ch").trim_end_matches('"');
    let readme = tree.get(&format!("exercises/{folder}/README.md")).unwrap_or_default();
    let title = readme.lines().next().unwrap_or_default();
    let its_chapter = tree
        .named(&format!("book/src/{chapter}-"), ".md")
        .next()
        .map_or_else(|| format!("book/src/{chapter}-….md"), |(path, _)| path.to_owned());
    let link = format!("exercises/{folder}.md");
    let wanted = [
        (format!("book/src/{link}"), title.to_owned()),
        (format!("book/src/{link}"), format!("{minutes} minutes")),
        (format!("book/src/{link}"), format!("exercises/{folder}/README.md:exercise")),
        ("book/src/SUMMARY.md".into(), format!("({link})")),
        ("book/src/exercises.md".into(), format!("({link}) | [{chapter}]")),
        ("book/src/exercises.md".into(), format!(" | {minutes} | ")),
        (its_chapter, format!("({link}) ({minutes} minutes)")),
    ];
    let lacks = |(path, words): &(String, String)| {
        !tree.get(path).is_some_and(|it| it.contains(words.as_str()))
    };
    wanted
        .iter()
        .filter(|it| lacks(it))
        .map(|(path, words)| problem(path, 1, format!("show exercises/{folder}: `{words}`")))
        .collect()
}

/// What `tests/contract.rs` of an exercise is, to the last byte.
fn test_of_exercise(id: &str, what: &str) -> String {
    let number = id.trim_start_matches("ex");
    format!(
        "//! Holds exercise {number} to its {what}, as they are when it is solved: red until then.

use std::process::ExitCode;

fn main() -> ExitCode {{
    contract::harness::exercise(
        \"{id}\",
        include_str!(\"../exercise.toml\"),
        env!(\"CARGO_BIN_EXE_{id}\"),
    )
}}
"
    )
}

/// The helper files of an exercise that are not as its chapter has them.
fn drifted(tree: &Tree, folder: &str) -> Vec<Problem> {
    let text = tree.get(&format!("exercises/{folder}/exercise.toml")).unwrap_or_default();
    let chapter = text.lines().find_map(|it| it.strip_prefix("chapter = \"ch")?.get(..2));
    let start = format!("chapters/{}-", chapter.unwrap_or("??"));
    let sources = format!("exercises/{folder}/src/");
    let mut problems = Vec::new();
    for (path, text) in tree.named(&sources, ".rs") {
        let name = &path[sources.len()..];
        let original = tree.named(&start, &format!("/src/{name}")).next();
        if let Some((original, _)) = original.filter(|it| it.1 != text) {
            problems.push(problem(path, 1, format!("differs from {original}: copy it")));
        }
    }
    problems
}

/// The README of a chapter: a title with its number, its page and its package by name.
fn readme_disagrees(tree: &Tree, folder: &str, number: &str, package: &str) -> Vec<Problem> {
    let path = format!("chapters/{folder}/README.md");
    let Some(text) = tree.get(&path) else {
        return vec![problem(&path, 1, format!("chapters/{folder} has no README: write it"))];
    };
    let mut problems = Vec::new();
    let title = text.lines().next().unwrap_or_default();
    if !title.starts_with("# ") || !title.contains(number) {
        problems.push(problem(
            &path,
            1,
            format!("begin with a title that has the number {number}"),
        ));
    }
    for name in [package, &format!("{folder}.md")] {
        if !text.contains(name) {
            problems.push(problem(&path, 1, format!("name {name} in it")));
        }
    }
    problems
}

/// What stands at the top and is not in [`TOP`].
fn strangers(tree: &Tree) -> Vec<Problem> {
    let tops: BTreeSet<_> = tree.files.keys().filter_map(|it| it.split('/').next()).collect();
    let strange = tops.into_iter().filter(|it| !TOP.contains(it));
    let what = "does not belong at the top: move it into a folder, or name it in .gitignore";
    strange.map(|it| problem(it, 1, what)).collect()
}

/// The packages with a main program and others beside it, where `cargo run` does not know which is
/// meant. The wrong servers of the contract are not there to be run by hand, and have no main one.
fn without_default(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, manifest) in tree.ours("/Cargo.toml") {
        let folder = path.trim_end_matches("Cargo.toml");
        if tree.get(&format!("{folder}src/main.rs")).is_none() {
            continue;
        }
        let found = 1 + tree.named(&format!("{folder}src/bin/"), ".rs").count();
        let programs = found.max(manifest.lines().filter(|it| it.trim() == "[[bin]]").count());
        if programs > 1 && !manifest.contains("\ndefault-run = ") {
            let what =
                format!("{programs} programs: say which one `cargo run` runs with default-run");
            problems.push(problem(path, 1, what));
        }
    }
    problems
}

// ---------------------------------------------------------------------------------------------------
// Anchors and includes.

/// The anchor that `line` opens or closes, as mdBook finds it.
fn anchor<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let name = line.split_once(mark)?.1.trim_start();
    let length = name.find(|it: char| !(it.is_alphanumeric() || "_-".contains(it)));
    let name = &name[..length.unwrap_or(name.len())];
    (!name.is_empty()).then_some(name)
}

const OPENS: &str = "ANCHOR:";
const CLOSES: &str = "ANCHOR_END:";

/// The text without the lines that are there for the book alone.
fn without_anchors(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|it| anchor(it, OPENS).or(anchor(it, CLOSES)).is_none()).collect()
}

/// Every anchor is opened once, closed once after that, and shown by some page.
fn anchors(tree: &Tree) -> Vec<Problem> {
    let shown: BTreeSet<_> = all_includes(tree).into_iter().map(|it| (it.file, it.part)).collect();
    let mut problems = Vec::new();
    for (path, text) in tree.ours("").filter(|(path, _)| !path.ends_with(".md")) {
        let mut open = BTreeMap::new();
        let mut closed = BTreeSet::new();
        for (line, content) in numbered(text) {
            if let Some(name) = anchor(content, OPENS) {
                if closed.contains(name) || open.insert(name, line).is_some() {
                    problems.push(problem(
                        path,
                        line,
                        format!("{name} is opened twice: rename one"),
                    ));
                } else if !shown.contains(&(path.to_owned(), Some(name.to_owned()))) {
                    let what = format!("no page includes the anchor {name}: show it or remove it");
                    problems.push(problem(path, line, what));
                }
            } else if let Some(name) = anchor(content, CLOSES) {
                if open.remove(name).is_none() {
                    let what = format!("{name} is closed and was not open: open it once, above");
                    problems.push(problem(path, line, what));
                }
                closed.insert(name);
            }
        }
        let left = open.into_iter();
        problems
            .extend(left.map(|(name, line)| problem(path, line, format!("close {name} below"))));
    }
    problems
}

/// An include of a page.
struct Include<'a> {
    page: &'a str,
    line: usize,
    file: String,
    part: Option<String>,
}

/// The includes of all pages. `\{{#` is text about an include.
fn all_includes(tree: &Tree) -> Vec<Include<'_>> {
    let mut found = Vec::new();
    for (page, text) in tree.named("book/src/", ".md") {
        for (line, content) in numbered(text) {
            for (at, _) in content.match_indices("{{#") {
                if content[..at].ends_with('\\') {
                    continue;
                }
                let mut words =
                    content[at + 3..].split("}}").next().unwrap_or("").split_whitespace();
                let (Some("include" | "rustdoc_include" | "playground"), Some(what)) =
                    (words.next(), words.next())
                else {
                    continue;
                };
                let (path, part) = match what.split_once(':') {
                    Some((path, part)) => (path, Some(part.to_owned())),
                    None => (what, None),
                };
                found.push(Include { page, line, file: resolved(page, path), part });
            }
        }
    }
    found
}

/// The path from the root of what `page` calls `path`.
fn resolved(page: &str, path: &str) -> String {
    let mut parts: Vec<_> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." if !parts.is_empty() => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Every include names a file that is there, and a part of it by an anchor that is there.
fn includes(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for include in all_includes(tree) {
        let Include { page, line, file, part } = &include;
        let mut tell = |what| problems.push(problem(page, *line, what));
        let Some(text) = tree.get(file) else {
            tell(format!("{file} is not there: mdBook would print nothing and say nothing"));
            continue;
        };
        let Some(part) = part else {
            if !WHOLE.iter().any(|it| file.ends_with(it)) {
                tell(format!("include a part of {file} by its anchor, not all of it"));
            }
            continue;
        };
        if part.is_empty() || part.contains(':') || part.starts_with(|it: char| it.is_ascii_digit())
        {
            tell(format!("{file}:{part}: line numbers drift: include an anchor"));
        } else if !text.lines().any(|it| anchor(it, OPENS) == Some(part)) {
            tell(format!(
                "{file} has no anchor {part}: mdBook would print nothing and say nothing"
            ));
        }
    }
    problems
}

// ---------------------------------------------------------------------------------------------------
// Copies and lengths.

/// The helper files that stand in several chapters: a file missing from a diff says that nothing
/// changed in it. The loop file is no helper, and the instrument (00) is no chapter of the walk.
fn differing_helpers(tree: &Tree) -> Vec<Problem> {
    let mut first: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut problems = Vec::new();
    for (path, text) in tree.named("chapters/", ".rs") {
        let Some((folder, name)) = path["chapters/".len()..].split_once("/src/") else { continue };
        let is_numbered =
            folder.starts_with(|it: char| it.is_ascii_digit()) && folder[..2] != *"00";
        if !is_numbered || name.contains('/') || ["main.rs", "lib.rs"].contains(&name) {
            continue;
        }
        let (original, expected) = *first.entry(name).or_insert((path, text));
        if text != expected {
            let same =
                text.lines().zip(expected.lines()).take_while(|(it, other)| it == other).count();
            problems.push(problem(
                path,
                same + 1,
                format!("differs from {original}: copy one to the other"),
            ));
        }
    }
    problems
}

/// Loop files, the first step, and functions that are too long. Lines of anchors are not counted.
fn too_long(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.ours(".rs") {
        let is_chapter = path.starts_with("chapters/") && is_walked(path);
        let lines_max = match path {
            BARE => BARE_LINES_MAX,
            _ if is_chapter && path.ends_with("/src/main.rs") => LOOP_LINES_MAX,
            _ => usize::MAX,
        };
        let lines = without_anchors(text).lines().count();
        if lines > lines_max {
            let what = format!("{lines} lines without anchors, {lines_max} may be: show less");
            problems.push(problem(path, lines_max + 1, what));
        }
        for Function { name, line, lines } in functions(text) {
            if lines > FUNCTION_LINES_MAX {
                let what =
                    format!("{name} has {lines} lines, {FUNCTION_LINES_MAX} may be: divide it");
                problems.push(problem(path, line, what));
            }
        }
    }
    problems
}

/// Whether `path` is in a chapter of the walk: numbered, and not the instrument.
fn is_walked(path: &str) -> bool {
    let folder = path.strip_prefix("chapters/").unwrap_or_default();
    folder.starts_with(|it: char| it.is_ascii_digit()) && !folder.starts_with("00")
}

struct Function<'a> {
    name: &'a str,
    line: usize,
    /// From its first line to its brace, without those of anchors.
    lines: usize,
}

/// The functions of a Rust file that rustfmt has formatted: each ends at the first line that is as far
/// in as its first line and begins with a brace.
fn functions(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        if line.ends_with('}') || line.ends_with(';') {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let length =
            lines[at..].iter().position(|it| *it == end).map_or(lines.len() - at, |it| it + 1);
        let body = &lines[at..at + length];
        let counted = body.iter().filter(|it| anchor(it, OPENS).or(anchor(it, CLOSES)).is_none());
        found.push(Function { name, line: at + 1, lines: counted.count() });
    }
    found
}

/// The name of the function that begins on `line`.
fn function_name(line: &str) -> Option<&str> {
    let (before, rest) =
        line.trim_start().split_once("fn ").or(line.strip_prefix("fn ").map(|it| ("", it)))?;
    let qualifies = |it: &str| {
        ["const", "async", "unsafe", "extern", "\"C\"", "default"].contains(&it)
            || it.starts_with("pub")
    };
    let length = rest.find(|it: char| !(it.is_alphanumeric() || it == '_'))?;
    (length > 0 && before.split_whitespace().all(qualifies)).then_some(&rest[..length])
}

/// The steps that change more lines than they may.
fn too_far(tree: &Tree, steps: &[Step]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for Step { from, to, changes_max, .. } in steps {
        let (Some(old), Some(new)) = (tree.get(from), tree.get(to)) else {
            problems.push(problem(
                to,
                1,
                format!("it or {from} is not there: mend STEPS in tests/tidy.rs"),
            ));
            continue;
        };
        let (old, new) = (without_anchors(old), without_anchors(new));
        let changes =
            diff(&old, &new).iter_all_changes().filter(|it| it.tag() != ChangeTag::Equal).count();
        if changes > *changes_max {
            let what = format!(
                "{changes} lines differ from {from}, {changes_max} may: make the change easy first, in both"
            );
            problems.push(problem(to, 1, what));
        }
    }
    problems
}

/// Functions of a chapter that stand in another order than in the chapters beside it.
fn disordered(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.named("chapters/", ".rs").filter(|(path, _)| is_walked(path)) {
        if !path.ends_with("/src/main.rs") && !path.contains("/src/bin/") {
            continue;
        }
        let mut last = 0;
        for Function { name, line, .. } in functions(text) {
            let Some(at) = ORDER.iter().position(|it| *it == name) else { continue };
            if at < last {
                let what = format!(
                    "{name} stands below {}: the order is {}",
                    ORDER[last],
                    ORDER.join(", ")
                );
                problems.push(problem(path, line, what));
            }
            last = last.max(at);
        }
    }
    problems
}

fn diff<'a>(old: &'a str, new: &'a str) -> TextDiff<'a, 'a, 'a, str> {
    TextDiff::configure().algorithm(Algorithm::Patience).diff_lines(old, new)
}

// ---------------------------------------------------------------------------------------------------
// What files must say, and what they may not.

/// Rust files that do not begin with what they are.
fn untitled(tree: &Tree) -> Vec<Problem> {
    let untitled = tree
        .named("", ".rs")
        .filter(|(path, text)| !path.starts_with("tests/cmd/") && !text.starts_with("//! "));
    untitled
        .map(|(path, _)| problem(path, 1, "begin with a line `//! …` that says what it is"))
        .collect()
}

/// `unsafe`, and sockets of the standard library, in the chapters whose point is the system calls.
fn forbidden(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.named("chapters/", ".rs").filter(|(path, _)| is_walked(path)) {
        if !["01", "02", "03", "04"].contains(&&path["chapters/".len()..][..2]) {
            continue;
        }
        for (line, content) in numbered(text) {
            let code = content.split("//").next().unwrap_or_default();
            for word in code.split(|it: char| !(it.is_alphanumeric() || it == '_')) {
                if word == "unsafe" && path != UNSAFE {
                    problems.push(problem(path, line, "no `unsafe` in 01 to 04: nix has the call"));
                }
                let socket = ["TcpListener", "TcpStream", "UdpSocket", "ToSocketAddrs"];
                if path.contains("/src/") && socket.contains(&word) {
                    let what =
                        format!("{word} hides the calls that this chapter is about: use nix");
                    problems.push(problem(path, line, what));
                }
            }
        }
    }
    problems
}

/// Paths and hosts that only one machine has.
fn of_one_machine(tree: &Tree) -> Vec<Problem> {
    let paths = ["/work", "/root", "/home", "/tmp/bash", "/tmp/target"];
    let texts = ["../shared", "DEVELOPERS.md"];
    let mut problems = Vec::new();
    for (path, text) in tree.ours("") {
        for (line, content) in numbered(text) {
            let mut tell = |what| problems.push(problem(path, line, what));
            for name in paths.iter().filter(|it| has_path(content, it)) {
                tell(format!("{name} is a path of one machine: write one that everybody has"));
            }
            for name in texts.iter().filter(|it| content.contains(**it)) {
                tell(format!("{name} is not in this repository: say what it says"));
            }
            if path.ends_with("Cargo.lock") || path.contains(".cargo/") {
                let host = ["source = \"", "registry = \"", "index = \""];
                let from = host.iter().find_map(|it| content.trim_start().strip_prefix(it));
                let public = "registry+https://github.com/rust-lang/crates.io-index";
                if from.is_some_and(|it| !it.starts_with(public)) {
                    tell("only crates.io is everybody's: take the crate from there".to_owned());
                }
            }
        }
    }
    problems
}

/// Whether `line` has the absolute path `name`, or one below it.
fn has_path(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + name.len()..].chars().next();
        // In `docs/work` it is a part of a longer path, and so it is in `/workspaces`.
        let begins = before.is_none_or(|it| !(it.is_alphanumeric() || "._-~}/>".contains(it)));
        begins && after.is_none_or(|it| !(it.is_alphanumeric() || "_".contains(it)))
    })
}

/// Numbers that somebody measured and typed in, in the prose of pages and of chapter READMEs.
///
/// Outside of code and of directives, a digit may be followed by one of [`UNITS`] only in a paragraph
/// that links to where the number comes from (`](https://…`). A patience of 2 s or a step of 3 s is no
/// measurement: it is a constant, and has none of these units. In the measurement of a page, where all
/// numbers come from records, one of [`MEASURED_UNITS`] is too much as well, unless its line says that
/// it is the post's: what somebody wrote once does not drift.
fn measured(tree: &Tree) -> Vec<Problem> {
    let pages = tree.named("book/src/", ".md");
    let readmes = tree.named("chapters/", "/README.md");
    let mut problems = Vec::new();
    for (path, text) in pages.chain(readmes) {
        let text = without_directives(text);
        let is_all_measured = MEASURED_PAGES.contains(&path);
        let mut paragraph = Vec::new();
        let mut is_code = false;
        let mut is_measured = is_all_measured;
        // An empty line at the end closes the last paragraph.
        for (line, content) in numbered(&text).chain([(0, "")]) {
            let is_fence =
                content.trim_start().starts_with("```") || content.trim_start().starts_with("~~~");
            is_code ^= is_fence;
            if content.starts_with("## ") && !is_code {
                is_measured = is_all_measured || content == MEASURED_SECTION;
            }
            if !is_code && !is_fence && !content.trim().is_empty() {
                paragraph.push((line, content, is_measured));
                continue;
            }
            let cites = paragraph.iter().any(|it| it.1.contains("](http"));
            for (line, content, is_measured) in paragraph.drain(..).filter(|_| !cites) {
                let is_ours =
                    is_measured && !content.contains("the post") && !content.contains('«');
                let more = || is_ours.then(|| unit_of(&without_code(content), MEASURED_UNITS));
                if let Some(unit) = unit_of(content, UNITS).or_else(|| more().flatten()) {
                    let what = format!(
                        "a number with `{unit}` is typed in: write {{{{#number …}}}} or {{{{#claim …}}}}, \
                         give the command that measures it, or link its source"
                    );
                    problems.push(problem(path, line, what));
                }
            }
        }
    }
    problems
}

/// The pages that are about measurements from end to end, and the section of the others that is.
const MEASURED_PAGES: &[&str] = &[
    "book/src/staircase-explained.md",
    "book/src/what-the-blog-saw.md",
    "book/src/c10k.md",
    "book/src/calls-and-throughput.md",
    "book/src/public-suites.md",
    "book/src/throughput-and-tail.md",
    "book/src/where-the-time-goes.md",
    "book/src/which-one.md",
];
const MEASURED_SECTION: &str = "## The measurement";

/// `text` with blanks in the place of the directives, which take their numbers from the records.
fn without_directives(text: &str) -> String {
    let mut pieces = text.split("{{#");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let mut is_quoted = false;
        let end = piece.char_indices().find(|(at, letter)| {
            is_quoted ^= *letter == '"';
            !is_quoted && piece[*at..].starts_with("}}")
        });
        let (directive, rest) = piece.split_at(end.map_or(piece.len(), |it| it.0));
        plain.extend(directive.chars().filter(|it| *it == '\n'));
        plain += rest.strip_prefix("}}").unwrap_or(rest);
    }
    plain
}

/// `line` without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("…")
}

/// The units that only measurements have.
const UNITS: &[&str] = &[
    "req/s",
    "requests/s",
    "connections/s",
    "answers/s",
    "requests per second",
    "answers per second",
    "connections per second",
    "µs",
    "μs",
    "ms p50",
    "ms p90",
    "ms p99",
];

/// The units that may be constants elsewhere, and in a measurement are not. Requests and requests a
/// second may be: they are the schedule's.
const MEASURED_UNITS: &[&str] = &["ms", "%", "percent", "CPU seconds", "KiB", "MiB"];

/// The first of `units` that follows a number in `line`. A chapter is no number: `02 answers`.
fn unit_of(line: &str, units: &[&'static str]) -> Option<&'static str> {
    units.iter().copied().find(|unit| {
        line.match_indices(unit).any(|(at, _)| {
            let before = line[..at].trim_end_matches([' ', '\u{a0}', '\u{202f}', '`', '*']);
            let start = before.rfind(|it: char| !(it.is_ascii_digit() || ".,".contains(it)));
            let number = &before[start
                .map_or(0, |it| it + before[it..].chars().next().map_or(1, char::len_utf8))..];
            let is_chapter = number.len() == 2 && number.starts_with('0');
            number.ends_with(|it: char| it.is_ascii_digit()) && !is_chapter
        })
    })
}

// ---------------------------------------------------------------------------------------------------
// The checks themselves: each must be able to fail.

mod checks {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Tree { files: files.collect() }
    }

    /// The places of `problems`, and a word of each that it must have.
    fn assert_told(problems: &[Problem], expected: &[(&str, usize, &str)]) {
        let told: Vec<_> = problems.iter().map(Problem::to_string).collect();
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (path, line, word) in expected {
            let place = format!("{path}:{line}: ");
            let is_there = told.iter().any(|it| it.starts_with(&place) && it.contains(word));
            assert!(is_there, "no {place}…{word}… in {told:#?}");
        }
    }

    #[test]
    fn names_that_disagree_are_told() {
        let good = [
            ("chapters/07-eleven/Cargo.toml", "[package]\nname = \"ch07\"\n"),
            (
                "chapters/07-eleven/README.md",
                "# 07: eleven\n\n`cargo test -p ch07`, 07-eleven.md\n",
            ),
            ("chapters/07-eleven/src/main.rs", "//! Chapter 07: eleven.\n"),
            ("book/src/07-eleven.md", "# Eleven\n"),
            ("book/src/SUMMARY.md", "- [Eleven](07-eleven.md)\n"),
        ];
        assert_told(&disagreeing(&tree(&good)), &[]);
        let bad = [
            ("chapters/07-eleven/Cargo.toml", "[package]\nname = \"ch70\"\n"),
            ("chapters/07-eleven/README.md", "# 70: eleven\n"),
            ("chapters/07-eleven/src/main.rs", "//! Chapter 70: eleven.\n"),
            ("book/src/07-twelve.md", "# Twelve\n"),
            ("book/src/SUMMARY.md", "- [Twelve](07-twelve.md)\n"),
        ];
        let expected = [
            ("chapters/07-eleven/Cargo.toml", 1, "ch07"),
            ("book/src/07-eleven.md", 1, "no page"),
            ("book/src/SUMMARY.md", 1, "07-eleven.md"),
            ("chapters/07-eleven/README.md", 1, "number 07"),
            ("chapters/07-eleven/README.md", 1, "name ch07"),
            ("chapters/07-eleven/README.md", 1, "name 07-eleven.md"),
            ("chapters/07-eleven/src/main.rs", 1, "//! Chapter 07"),
            ("book/src/07-twelve.md", 1, "no folder"),
        ];
        assert_told(&disagreeing(&tree(&bad)), &expected);
    }

    #[test]
    fn a_misshapen_exercise_is_told() {
        const PAGE: &str =
            "# Exercise 07: x\n25 minutes\n\\{{#include …/exercises/ex07-x/README.md:exercise}}";
        let test = test_of_exercise("ex07", "rows");
        let good = [
            ("exercises/ex07-x/Cargo.toml", "[package]\nname = \"ex07\"\n"),
            ("exercises/ex07-x/exercise.toml", "minutes = 25\nchapter = \"ch04\"\n"),
            ("exercises/ex07-x/README.md", "# Exercise 07: x\n"),
            ("book/src/exercises/ex07-x.md", PAGE),
            ("book/src/SUMMARY.md", "(exercises/ex07-x.md)"),
            ("book/src/exercises.md", "| [07](exercises/ex07-x.md) | [04](04-x.md) | 25 | "),
            ("book/src/04-x.md", "- [X](exercises/ex07-x.md) (25 minutes): x."),
            ("exercises/ex07-x/tests/contract.rs", test.as_str()),
            ("exercises/ex07-x/src/help.rs", "one\n"),
            ("exercises/solutions/ex07/main.rs", ""),
            ("chapters/04-x/src/help.rs", "one\n"),
            ("chapters/05-x/src/help.rs", "two\n"),
        ];
        assert_told(&misshapen(&tree(&good)), &[]);
        let bad = [
            ("exercises/ex07-x/Cargo.toml", "[package]\nname = \"ex70\"\n"),
            ("exercises/ex07-x/exercise.toml", "minutes = 30\nchapter = \"ch05\"\n"),
            ("exercises/ex07-x/README.md", "# Exercise 07: x\n"),
            ("book/src/exercises/ex07-x.md", PAGE),
            ("book/src/SUMMARY.md", "(exercises/ex07-x.md)"),
            ("exercises/ex07-x/tests/contract.rs", "//! Green.\nfn main() {}\n"),
            ("exercises/ex07-x/src/help.rs", "one\n"),
            ("exercises/solutions/ex70/main.rs", ""),
            ("chapters/05-x/src/help.rs", "two\n"),
        ];
        let expected = [
            ("exercises/ex07-x/Cargo.toml", 1, "ex07"),
            ("exercises/ex07-x/tests/contract.rs", 1, "the other"),
            ("exercises/ex07-x/src/help.rs", 1, "05-x"),
            ("book/src/exercises/ex07-x.md", 1, "30 minutes"),
            ("book/src/exercises.md", 1, "[05]"),
            ("book/src/exercises.md", 1, "| 30 |"),
            ("book/src/05-….md", 1, "(30 minutes)"),
            ("exercises/solutions/ex07/main.rs", 1, "no solution"),
            ("exercises/solutions/ex70", 1, "no exercise"),
        ];
        assert_told(&misshapen(&tree(&bad)), &expected);
        // What a learner has written is never looked at.
        assert!(is_the_learners("exercises/ex07-x/src/main.rs"));
        assert!(!is_the_learners("exercises/course/src/main.rs"));
    }

    #[test]
    fn strangers_are_told() {
        let found =
            strangers(&tree(&[("NOTES.md", ""), ("book/x", ""), (".vscode/settings.json", "")]));
        assert_told(&found, &[("NOTES.md", 1, "top"), (".vscode", 1, "top")]);
        assert!(is_ignored("target", "/target\n") && !is_ignored("a/target", "/target\n"));
        assert!(
            is_ignored("a/b.snap.new", "*.snap.new\n") && !is_ignored("a/b.snap", "*.snap.new\n")
        );
    }

    #[test]
    fn a_package_without_a_default_is_told() {
        let two = "[package]\nname = \"a\"\n\n[[bin]]\nname = \"a\"\n\n[[bin]]\nname = \"b\"\n";
        let chosen = two.replace("name = \"a\"\n\n", "name = \"a\"\ndefault-run = \"a\"\n\n");
        let files = [
            ("a/Cargo.toml", two),
            ("x/Cargo.toml", two),
            ("x/src/main.rs", ""),
            ("y/Cargo.toml", &chosen),
            ("y/src/main.rs", ""),
            ("z/Cargo.toml", "[package]\n"),
            ("z/src/main.rs", ""),
            ("z/src/bin/b.rs", ""),
        ];
        let expected = [("x/Cargo.toml", 1, "default-run"), ("z/Cargo.toml", 1, "default-run")];
        assert_told(&without_default(&tree(&files)), &expected);
    }

    #[test]
    fn anchors_that_go_wrong_are_told() {
        let rust = "// ANCHOR: a\n// ANCHOR_END: a\n// ANCHOR: b\n// ANCHOR: a\n// ANCHOR_END: c\n// ANCHOR: d\n// ANCHOR_END: d\n";
        let page =
            "{{#include ../../x.rs:a}} {{#include ../../x.rs:b}} \\{{#include ../../x.rs:d}}\n";
        let expected = [
            ("x.rs", 4, "twice"),
            ("x.rs", 5, "not open"),
            ("x.rs", 3, "close b"),
            ("x.rs", 6, "no page"),
        ];
        assert_told(&anchors(&tree(&[("x.rs", rust), ("book/src/p.md", page)])), &expected);
    }

    #[test]
    fn includes_that_go_wrong_are_told() {
        let page = "{{#include ../../x.rs:a}}\n{{#include ../../x.rs:b}}\n{{#include ../../y.rs:a}}\n\
            {{#include ../../x.rs}}\n{{#include ../../x.rs:3:4}}\n{{#include d/x.svg}}\n\\{{#include z}}\n";
        let files = [
            ("x.rs", "// ANCHOR: a\n// ANCHOR_END: a\n"),
            ("book/src/d/x.svg", ""),
            ("book/src/p.md", page),
        ];
        let expected = [
            ("book/src/p.md", 2, "no anchor b"),
            ("book/src/p.md", 3, "not there"),
            ("book/src/p.md", 4, "by its anchor"),
            ("book/src/p.md", 5, "line numbers"),
        ];
        assert_told(&includes(&tree(&files)), &expected);
    }

    #[test]
    fn a_helper_that_drifted_is_told() {
        let files = [
            ("chapters/00-x/src/help.rs", "other\n"),
            ("chapters/01-x/src/help.rs", "one\ntwo\n"),
            ("chapters/02-x/src/help.rs", "one\nthree\n"),
            ("chapters/02-x/src/main.rs", "two\n"),
            ("chapters/http/src/help.rs", "other\n"),
        ];
        let expected = [("chapters/02-x/src/help.rs", 2, "chapters/01-x/src/help.rs")];
        assert_told(&differing_helpers(&tree(&files)), &expected);
    }

    #[test]
    fn what_is_too_long_is_told() {
        let function = format!(
            "//! F.\n\n    pub const fn f() {{\n// ANCHOR: f\n{}    }}\n",
            "        x;\n".repeat(69)
        );
        let main = "//! M.\n".to_owned() + &"// line\n".repeat(LOOP_LINES_MAX);
        let bare = "// line\n".repeat(BARE_LINES_MAX) + "// ANCHOR: x\n";
        let files = [
            ("tests/f.rs", function.as_str()),
            ("chapters/09-x/src/main.rs", main.as_str()),
            (BARE, bare.as_str()),
        ];
        let expected = [
            ("tests/f.rs", 3, "f has 71 lines"),
            ("chapters/09-x/src/main.rs", LOOP_LINES_MAX + 1, "251 lines"),
        ];
        assert_told(&too_long(&tree(&files)), &expected);
    }

    #[test]
    fn functions_are_found() {
        let text = "fn a() {\n}\n\nimpl X {\n    pub(crate) async fn b<T>() {\n        if x {\n        }\n    }\n    fn c();\n}\n\
            // a fn d() {\nlet it = fn_e();\nconst fn f(\n    x: u8,\n) -> u8 {\n    x\n}\n";
        let found: Vec<_> = functions(text).iter().map(|it| (it.name, it.line, it.lines)).collect();
        assert_eq!(found, [("a", 1, 2), ("b", 5, 4), ("f", 13, 5)]);
    }

    #[test]
    fn a_step_too_far_is_told() {
        let files = [("a", "1\n2\n3\n"), ("b", "1\n// ANCHOR: x\n3\n4\n5\n")];
        let step = |changes_max, to| Step { from: "a", to, changes_max };
        let steps = [step(2, "b"), step(3, "b"), step(3, "c")];
        assert_told(&too_far(&tree(&files), &steps), &[("b", 1, "3 lines"), ("c", 1, "not there")]);
    }

    #[test]
    fn functions_out_of_order_are_told() {
        let text = "fn main() {\n}\nfn converse() {\n}\nfn help() {\n}\nfn accept() {\n}\n";
        let files = [("chapters/01-x/src/main.rs", text), ("chapters/00-x/src/main.rs", text)];
        assert_told(
            &disordered(&tree(&files)),
            &[("chapters/01-x/src/main.rs", 7, "below converse")],
        );
    }

    #[test]
    fn a_file_without_a_title_is_told() {
        let files = [("a.rs", "\n//! Late.\n"), ("b.rs", "//! In time.\n"), ("tests/cmd/c.rs", "")];
        assert_told(&untitled(&tree(&files)), &[("a.rs", 1, "//!")]);
    }

    #[test]
    fn unsafe_and_sockets_of_the_library_are_told() {
        let text = "// unsafe TcpStream\n#[expect(unsafe_code)]\nunsafe { f() }\nuse std::net::{TcpStream};\n";
        let path = "chapters/01-x/src/main.rs";
        let files = [(path, text), ("chapters/05-x/src/main.rs", text), (UNSAFE, "unsafe {}\n")];
        assert_told(&forbidden(&tree(&files)), &[(path, 3, "unsafe"), (path, 4, "TcpStream")]);
    }

    #[test]
    fn what_one_machine_has_is_told() {
        let text = "see /home/me/x\n/workspaces .github/workflows a/work\n`/root`\n";
        let lock = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\nsource = \"registry+https://mirror/\"\n";
        let files = [("a.md", text), ("Cargo.lock", lock), ("tests/cmd/a.toml", text)];
        let expected = [("a.md", 1, "/home"), ("a.md", 3, "/root"), ("Cargo.lock", 2, "crates.io")];
        assert_told(&of_one_machine(&tree(&files)), &expected);
    }

    #[test]
    fn numbers_typed_in_are_told() {
        let text = "It answers 250 requests/s.\n\nThe blog saw 160 req/s\nin [its table](https://example.org).\n\n\
            ```\n12 µs\n```\nIt took **90** µs.\n\nWe wait 2 s, at `requests/s`.\n\nlast 9 ms p99";
        let found = measured(&tree(&[("book/src/p.md", text), ("README.md", text)]));
        let page = "book/src/p.md";
        assert_told(&found, &[(page, 1, "requests/s"), (page, 9, "µs"), (page, 13, "ms p99")]);
    }

    #[test]
    fn numbers_typed_into_a_measurement_are_told() {
        let text = "It waits 5 ms.\n\n## The measurement\n\n04 answers `0.5 %` more.\n\
            It takes {{#number a[x=5].b | unit=ms}}{{#claim 5 < 6\n | text=\"about 5 ms, {a.b}}\"}}\nand 5 ms.\n\n\
            It takes 9 ms ([source](https://example.org)).\n\nIt took 9 ms.\nThere it took 8 ms, says the post.\n\n\
            ### More\n\nOf them 97.5 % were right.\n\n## After\n\n2 % of patience.\n";
        let page = "book/src/p.md";
        let found = measured(&tree(&[(page, text)]));
        let expected = [(page, 8, "ms"), (page, 12, "ms"), (page, 17, "%")];
        assert_told(&found, &expected);
        let found = measured(&tree(&[(MEASURED_PAGES[0], "It waits 5 ms.\n")]));
        assert_told(&found, &[(MEASURED_PAGES[0], 1, "ms")]);
    }
}
