//! `cargo course check`: one exercise, one verdict, and why.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::confine::Limits;
use crate::doctor;
use crate::exercise::{Ask, Exercise, Kind};
use crate::home::Home;
use crate::judge::{self, Found, Question};
use crate::say::{self, line, wrapped};
use crate::scratch::{self, Built, Program};
use crate::state::State;
use crate::verdict::Verdict;

/// What a check found.
#[derive(Debug)]
pub struct Checked {
    /// In one word.
    pub verdict: Verdict,
    /// The rows that are not as the solution's.
    pub wrong: Vec<Found>,
}

/// Checks an exercise, says what was found, and keeps it on record.
///
/// # Errors
///
/// When it could not be found out.
pub fn check(home: &Home, exercise: &Exercise) -> anyhow::Result<Checked> {
    let mut state = State::read(home)?;
    state.set_current(&exercise.id);
    line(format_args!("{}: {}", exercise.id, exercise.title));
    let checked = judged(home, exercise)?;
    let cells: Vec<(String, String)> =
        checked.wrong.iter().map(|it| (it.name.clone(), it.words.clone())).collect();
    state.checked(&exercise.id, checked.verdict, &cells);
    state.save()?;
    line("");
    line(next(home, exercise, &checked, &state)?);
    Ok(checked)
}

fn judged(home: &Home, exercise: &Exercise) -> anyhow::Result<Checked> {
    let only = |verdict| Checked { verdict, wrong: Vec::new() };
    if let Some(lack) = lack(exercise) {
        line(format_args!("\n{}: {lack}", Verdict::NeedsLinux));
        return Ok(only(Verdict::NeedsLinux));
    }
    let main = exercise.main();
    let text = fs::read_to_string(&main).with_context(|| home.shown(&main))?;
    if let Some(hole) = hole(&text) {
        line(format_args!("\n{}: there is a todo!() to fill", Verdict::NotStarted));
        line(format_args!("  {}:{hole}", home.shown(&main)));
        return Ok(only(Verdict::NotStarted));
    }
    for path in changed_helpers(home, exercise) {
        line(format_args!(
            "  note: {path} is not as it was handed out; edit {} alone",
            home.shown(&main)
        ));
    }
    let mut programs = servers(home, exercise)?;
    programs.push(overlay(exercise, &exercise.id, main));
    let crate_name = format!("check-{}", exercise.id);
    let building = || scratch::build(home, &crate_name, &programs);
    let what = format!("compiling {}", exercise.id);
    let built = say::while_waiting(&what, scratch::AT_MOST, building)?;
    if let Some(why) = built.refused.get(&exercise.id) {
        line(format_args!("\n{}\n\n{}", Verdict::DoesNotCompile, why.trim_end()));
        return Ok(only(Verdict::DoesNotCompile));
    }
    let exe = built.program(&exercise.id)?.to_owned();
    let questions = questions(exercise, &built)?;
    let solution = |name: &str| exercise.asks.iter().find(|it| it.name == name);
    let is_right = |it: &Found| solution(&it.name).is_some_and(|ask| ask.solution == it.words);
    let asking = || {
        judge::ask_confined(&exe, &questions, &exercise.folder, |found| {
            line(format_args!("  {}", cell(found, is_right(found))));
        })
    };
    let found = say::while_waiting("asking", Limits::SERVER.at_most(), asking)?;
    let (found, untold): (Vec<Found>, Vec<Found>) =
        found.into_iter().partition(|it| it.needs.is_none());
    if lacks_a_target(exercise, &untold) {
        return Ok(only(Verdict::NeedsLinux));
    }
    let wrong: Vec<Found> = found.into_iter().filter(|it| !is_right(it)).collect();
    if exercise.is_untouched() {
        line(format_args!(
            "\n{}: {} is as it was handed out. As it stands it gets {}:",
            Verdict::NotStarted,
            home.shown(&exercise.main()),
            Verdict::of_all(&wrong)
        ));
        tell(home, exercise, &wrong);
        return Ok(Checked { verdict: Verdict::NotStarted, wrong });
    }
    let wrong_again = again(&exe, &questions, exercise, &wrong)?;
    Ok(attempted(home, exercise, wrong, wrong_again))
}

/// Tells of the rows that could not be asked: whether one of them is what the exercise is about.
fn lacks_a_target(exercise: &Exercise, untold: &[Found]) -> bool {
    let is_target =
        |it: &Found| exercise.asks.iter().any(|ask| ask.name == it.name && ask.is_target());
    let lacks = untold.iter().any(is_target);
    if lacks {
        line(format_args!("\n{}", Verdict::NeedsLinux));
    }
    for Found { name, needs, .. } in untold {
        let needs = needs.as_deref().unwrap_or_default();
        line(wrapped(&format!("{name} could not be asked: this machine lacks {needs}"), "  "));
    }
    lacks
}

/// The verdict on an attempt of which these rows were `wrong`, and those of them `wrong_again`.
fn attempted(
    home: &Home,
    exercise: &Exercise,
    wrong: Vec<Found>,
    wrong_again: Vec<Found>,
) -> Checked {
    let verdict = match (wrong.is_empty(), wrong_again.is_empty()) {
        (true, _) => Verdict::Pass,
        (false, true) => Verdict::Flaky,
        (false, false) => Verdict::of_all(&wrong_again),
    };
    line(format_args!("\n{verdict}"));
    let wrong = if verdict == Verdict::Flaky {
        line(wrapped(
            "What failed at first held when it was asked once more: the program depends on who comes \
             first, or this machine is very busy.",
            "  ",
        ));
        wrong
    } else {
        wrong_again
    };
    tell(home, exercise, &wrong);
    Checked { verdict, wrong }
}

/// Asks what was wrong once more: what is wrong again.
fn again(
    exe: &std::path::Path,
    questions: &[Question],
    exercise: &Exercise,
    wrong: &[Found],
) -> anyhow::Result<Vec<Found>> {
    let once_more: Vec<Question> = questions
        .iter()
        .filter(|it| wrong.iter().any(|found| found.name == it.name()))
        .cloned()
        .collect();
    if once_more.is_empty() {
        return Ok(Vec::new());
    }
    line(format_args!("  … {} once more, to be sure", plural(once_more.len(), "row")));
    let asking = || judge::ask_confined(exe, &once_more, &exercise.folder, |_| {});
    let found = say::while_waiting("asking again", Limits::SERVER.at_most(), asking)?;
    let is_wrong = |it: &Found| {
        exercise.asks.iter().any(|ask| ask.name == it.name && ask.solution != it.words)
    };
    Ok(found.into_iter().filter(is_wrong).collect())
}

/// Tells what was seen of the rows that are wrong: the first at length, as far as it is a stall, the
/// others by name.
fn tell(home: &Home, exercise: &Exercise, wrong: &[Found]) {
    let verdict = Verdict::of_all(wrong);
    let is_first = |it: &&Found| Verdict::of(it) == verdict;
    // Of those that have a sentence, the row that the exercise is about.
    let target =
        |it: &&Found| exercise.asks.iter().any(|ask| ask.name == it.name && ask.is_target());
    let first = wrong.iter().filter(is_first).find(target).or(wrong.iter().find(is_first));
    let Some(first) = first else { return };
    let seen = with_known_paths(home, exercise, &first.seen);
    line(wrapped(&format!("{}: {}. {seen}", first.name, first.words), "  "));
    let others: Vec<&str> =
        wrong.iter().filter(|it| it.name != first.name).map(|it| it.name.as_str()).collect();
    if !others.is_empty() {
        line(wrapped(&format!("Not as they are to be either: {}.", others.join(", ")), "  "));
    }
}

/// `text` with the learner's own paths in the place of those of the scratch crate, and without what Rust
/// says below a panic.
fn with_known_paths(home: &Home, exercise: &Exercise, text: &str) -> String {
    let Exercise { id, .. } = exercise;
    let text = text.replace(&format!("programs/{id}/main.rs"), &home.shown(&exercise.main()));
    let text = text.replace(
        "\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
        "",
    );
    let ours = format!("/bin/{id} ");
    let words =
        text.split_inclusive(' ').map(|it| if it.ends_with(&ours) { &ours[5..] } else { it });
    words.collect()
}

/// One line of the list: `[ok]        half_a_line_stalls_nobody: holds`.
fn cell(found: &Found, is_right: bool) -> String {
    let Found { name, words, needs, .. } = found;
    match (needs, is_right) {
        (Some(_), _) => format!("[not asked] {name}"),
        (None, true) => format!("[ok]        {name}: {words}"),
        (None, false) => format!("[not yet]   {name}: {words}"),
    }
}

/// What to do next.
fn next(
    home: &Home,
    exercise: &Exercise,
    checked: &Checked,
    state: &State,
) -> anyhow::Result<String> {
    let id = &exercise.id;
    let main = home.shown(&exercise.main());
    Ok(match checked.verdict {
        Verdict::Pass => {
            let why = format!("Why it is so: cargo course solution {id}");
            match after(home, id, state)? {
                Some(other) => format!("{why}\nNext: cargo course start {}", other.id),
                None => format!("{why}\nThat was the last one. Next: cargo course progress"),
            }
        }
        Verdict::NotStarted => {
            let readme = home.shown(&exercise.folder.join("README.md"));
            format!("Next: read {readme}, edit {main}, cargo course check {id}")
        }
        Verdict::DoesNotCompile => format!("Next: mend {main}, cargo course check {id}"),
        Verdict::NeedsLinux => format!("Next: cargo course doctor, then cargo course check {id}"),
        Verdict::Flaky => format!("Next: cargo course check {id}, when nothing else runs"),
        Verdict::Stall | Verdict::WrongAnswer | Verdict::Crash => {
            format!("Next: edit {main}, cargo course check {id}. Stuck? cargo course hint {id}")
        }
    })
}

/// The exercise to go on to: the first after this one that has not passed, or else the first before it.
///
/// # Errors
///
/// Those of [`Home::exercises`].
pub fn after(home: &Home, id: &str, state: &State) -> anyhow::Result<Option<Exercise>> {
    let all = home.exercises()?;
    let here = all.iter().position(|it| it.id == id).unwrap_or(0);
    let order = all.iter().skip(here + 1).chain(all.iter().take(here));
    Ok(order.into_iter().find(|it| !state.has_passed(&it.id)).cloned())
}

/// The files beside the learner's that the chapter has too, and has otherwise.
fn changed_helpers(home: &Home, exercise: &Exercise) -> Vec<String> {
    let Ok(chapter) = chapter(home, &exercise.chapter) else { return Vec::new() };
    let files = fs::read_dir(exercise.folder.join("src")).into_iter().flatten().flatten();
    let is_changed = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        let original = fs::read(chapter.join("src").join(name));
        name != "main.rs" && original.is_ok_and(|it| fs::read(path).is_ok_and(|now| now != it))
    };
    files.map(|it| it.path()).filter(is_changed).map(|it| home.shown(&it)).collect()
}

/// The folder of the chapter with this package.
fn chapter(home: &Home, name: &str) -> anyhow::Result<PathBuf> {
    let number = name.strip_prefix("ch").with_context(|| format!("{name} is no chapter"))?;
    let chapters = fs::read_dir(home.path("chapters")).context("chapters")?;
    let mut folders = chapters.flatten().map(|it| it.path());
    let is_it = |it: &PathBuf| {
        it.file_name().is_some_and(|it| it.to_string_lossy().starts_with(&format!("{number}-")))
    };
    folders.find(is_it).with_context(|| format!("there is no chapter {number}"))
}

/// What this machine lacks for the exercise, in a sentence.
pub fn lack(exercise: &Exercise) -> Option<String> {
    let wants_ring = exercise.needs.iter().any(|it| it == "io_uring");
    wants_ring.then(doctor::ring).and_then(|it| it.err()).map(|it| format!("{it:#}"))
}

/// The line of the first `todo!` outside of comments.
///
/// Simplified: one in a string counts, too.
pub fn hole(text: &str) -> Option<usize> {
    let is_hole = |line: &str| line.split("//").next().is_some_and(|it| it.contains("todo!("));
    text.lines().position(is_hole).map(|it| it + 1)
}

/// `main` in the place of the exercise's `src/main.rs`.
pub fn overlay(exercise: &Exercise, name: &str, main: PathBuf) -> Program {
    Program {
        name: name.into(),
        main,
        beside: Some(exercise.folder.join("src")),
        manifest: exercise.folder.join("Cargo.toml"),
    }
}

/// The servers that a test of the learner's has to meet, as programs to build.
///
/// # Errors
///
/// When the repository has no server of that name.
pub fn servers(home: &Home, exercise: &Exercise) -> anyhow::Result<Vec<Program>> {
    if exercise.kind != Kind::Test {
        return Ok(Vec::new());
    }
    exercise.asks.iter().map(|it| server(home, &it.name)).collect()
}

fn server(home: &Home, name: &str) -> anyhow::Result<Program> {
    if let Some(wrong) = name.strip_prefix("wrong-") {
        let main = home.path("tests/wrong").join(wrong.replace('-', "_")).with_extension("rs");
        if !main.is_file() {
            bail!("there is no wrong server {name}: {} is not there", home.shown(&main));
        }
        let manifest = home.path("tests/Cargo.toml");
        return Ok(Program { name: name.into(), main, beside: None, manifest });
    }
    let folder = chapter(home, name)?;
    Ok(Program {
        name: name.into(),
        main: folder.join("src/main.rs"),
        beside: Some(folder.join("src")),
        manifest: folder.join("Cargo.toml"),
    })
}

/// What a program of the exercise is asked.
///
/// # Errors
///
/// When a server that a test has to meet was not built.
pub fn questions(exercise: &Exercise, built: &Built) -> anyhow::Result<Vec<Question>> {
    let question = |ask: &Ask| match exercise.kind {
        Kind::Test => {
            let exe = built.program(&ask.name)?.to_owned();
            Ok(Question::Server { name: ask.name.clone(), exe })
        }
        Kind::Mend | Kind::Hole => Ok(Question::Row(ask.name.clone())),
    };
    exercise.asks.iter().map(question).collect()
}

/// `3 rows`.
fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_found_outside_of_comments() {
        assert_eq!(hole("a\n// todo!()\nb\n"), None);
        assert_eq!(hole("a\n    todo!(\"accept\")\n"), Some(2));
    }
}
