//! `cargo course start` and `progress`: where to begin, and how far one has come.

use std::fs;

use anyhow::Context;

use crate::check::lack;
use crate::exercise::{Exercise, Kind};
use crate::home::Home;
use crate::say::{line, wrapped};
use crate::state::State;
use crate::verdict::Verdict;

/// Begins an exercise: what it is about, and what to do.
///
/// # Errors
///
/// When a file cannot be read or the state cannot be written.
pub fn start(home: &Home, exercise: &Exercise) -> anyhow::Result<()> {
    let mut state = State::read(home)?;
    let is_first = state.current().is_none();
    if is_first {
        line(wrapped(
            "Welcome. An exercise is a small server with something wrong or missing in it. You predict \
             what it does, see it fail, and mend it; the same table of promises that holds the chapters \
             then says what became of it.",
            "",
        ));
        line("What this machine can run: cargo course doctor\n");
    }
    state.set_current(&exercise.id);
    state.save()?;
    let Exercise { id, title, chapter, minutes, .. } = exercise;
    line(format_args!(
        "{id}: {title} (chapter {}, about {minutes} minutes)\n",
        chapter.trim_start_matches("ch")
    ));
    let path = exercise.folder.join("README.md");
    let text = fs::read_to_string(&path).with_context(|| home.shown(&path))?;
    line(section(&text, "## The task"));
    line(match exercise.kind {
        Kind::Test => "Done when your test says this of each server:",
        Kind::Hole | Kind::Mend => {
            "Done when these hold, and what holds already still does. A good server …"
        }
    });
    for ask in exercise.asks.iter().filter(|it| exercise.kind == Kind::Test || it.is_target()) {
        let promise =
            contract::verdicts::find(&ask.name).map_or(ask.solution.as_str(), |it| it.promise);
        line(format_args!("  {}: {promise}", ask.name));
    }
    line(format_args!("\nPredict first, aloud or on paper:\n"));
    line(section(&text, "## Predict first").split("<details>").next().unwrap_or_default().trim());
    if let Some(lack) = lack(exercise) {
        line(format_args!("\n{}", wrapped(&format!("{}: {lack}", Verdict::NeedsLinux), "")));
    }
    line(format_args!("\nAll of it, and the answer to that, folded: {}", home.shown(&path)));
    line(format_args!("What you edit: {}", home.shown(&exercise.main())));
    line(format_args!(
        "\nNext: cargo course check {id}, or cargo course watch to check whenever you save"
    ));
    Ok(())
}

/// The text of a README below `title`, to the next title.
fn section(text: &str, title: &str) -> String {
    let lines = text.lines().skip_while(|it| *it != title).skip(1);
    let mut is_code = false;
    let lines = lines.take_while(|it| {
        is_code ^= it.starts_with("```");
        is_code || !it.starts_with("## ")
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned() + "\n"
}

/// Lists all exercises and what became of each.
///
/// # Errors
///
/// When the exercises or the state cannot be read.
pub fn progress(home: &Home) -> anyhow::Result<()> {
    let state = State::read(home)?;
    let all = home.exercises()?;
    for exercise in &all {
        line(entry(exercise, &state));
    }
    let passed = all.iter().filter(|it| state.has_passed(&it.id)).count();
    let minutes: u32 = all.iter().filter(|it| !state.has_passed(&it.id)).map(|it| it.minutes).sum();
    line(format_args!(
        "\n{passed} of {} passed; the others take about {minutes} minutes",
        all.len()
    ));
    match all.iter().find(|it| !state.has_passed(&it.id)) {
        Some(next) => line(format_args!("Next: cargo course start {}", next.id)),
        None => line("All have passed. Next: the project, in exercises/project"),
    }
    Ok(())
}

/// One line of the list.
fn entry(exercise: &Exercise, state: &State) -> String {
    let Exercise { id, title, chapter, minutes, .. } = exercise;
    let here = if state.current() == Some(id) { ">" } else { " " };
    let verdict = match (state.has_passed(id), state.verdict(id)) {
        // What has passed once stays so, whatever was tried afterwards.
        (true, _) => Verdict::Pass,
        (false, last) => last.unwrap_or(Verdict::NotStarted),
    };
    format!("{here} {id}  {verdict:<16}  {chapter}  {minutes:>3} min  {title}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_ends_at_the_next_title_outside_of_code() {
        let text = "# E\n\n## The task\n\nDo.\n```sh\n## no title\n```\n\n## Predict first\n";
        assert_eq!(section(text, "## The task"), "Do.\n```sh\n## no title\n```\n");
    }
}
