//! `cargo course hint`: one level after the other, and then what the failure looks like.

use std::fs;

use anyhow::Context;

use crate::exercise::Exercise;
use crate::home::Home;
use crate::misconception::matching;
use crate::say::{line, wrapped};
use crate::state::State;
use crate::verdict::Verdict;

/// How many levels stand in `HINTS.md`. The one after them looks at how the attempt failed.
const LEVELS: i64 = 3;

/// Shows the next hint of an exercise.
///
/// # Errors
///
/// When the hints or the state cannot be read.
pub fn hint(home: &Home, exercise: &Exercise, again: bool) -> anyhow::Result<()> {
    let id = &exercise.id;
    let mut state = State::read(home)?;
    state.set_current(id);
    let path = exercise.folder.join("HINTS.md");
    let text = fs::read_to_string(&path).with_context(|| home.shown(&path))?;
    let levels = levels(&text);
    let seen = state.hints(id);
    let level = if again { seen.max(1) } else { (seen + 1).min(LEVELS + 1) };
    line(format_args!("{id}: {}. Hint {level} of {}", exercise.title, LEVELS + 1));
    line("");
    match usize::try_from(level - 1).ok().and_then(|it| levels.get(it)) {
        Some(text) => {
            line(text);
            line(format_args!(
                "\nNext: cargo course check {id}. Still stuck? cargo course hint {id}"
            ));
        }
        None => misconception(exercise, &state)?,
    }
    state.set_hints(id, level.max(seen));
    state.save()
}

/// What the last check looks like.
fn misconception(exercise: &Exercise, state: &State) -> anyhow::Result<()> {
    let id = &exercise.id;
    let failed = state.wrong(id);
    let bank = exercise.wrong()?;
    if state.checks(id) == 0 || failed.is_empty() {
        let why = match state.verdict(id) {
            Some(Verdict::Pass) => "The last check passed: there is nothing to hint at.",
            Some(Verdict::DoesNotCompile) => {
                "The last attempt did not compile, so that nothing is known of how it fails."
            }
            _ => "This hint looks at how an attempt fails, and there is none yet.",
        };
        line(why);
        line(format_args!("\nNext: cargo course check {id}"));
        return Ok(());
    }
    let as_handed_out = exercise
        .asks
        .iter()
        .filter(|it| it.is_target())
        .all(|it| failed.iter().any(|(name, words)| *name == it.name && *words == it.starter));
    let alike = matching(&bank, &failed);
    if as_handed_out && (exercise.is_untouched() || alike.is_empty()) {
        line(wrapped("It fails as it was handed out: what was to change has not changed yet.", ""));
    } else if alike.is_empty() {
        let rows: Vec<String> =
            failed.iter().map(|(name, words)| format!("{name} ({words})")).collect();
        line(wrapped(&format!("It fails in a way of its own: {}.", rows.join(", ")), ""));
        line("No attempt that we have seen before fails so.");
    } else {
        line(match alike.len() {
            1 => "An attempt that fails in the same way rests on this idea:",
            _ => "Attempts that fail in the same way rest on these ideas; which is yours?",
        });
        for wrong in alike {
            line("");
            line(wrapped(&format!("“{}”", wrong.misconception), "  "));
            line(wrapped(&wrong.hint, "  "));
        }
    }
    line(format_args!(
        "\nThat was the last hint. Next: cargo course check {id}, or cargo course solution {id} --give-up"
    ));
    Ok(())
}

/// The texts below `## 1`, `## 2`, … of a `HINTS.md`.
pub fn levels(text: &str) -> Vec<String> {
    let mut levels: Vec<String> = Vec::new();
    for line in text.lines() {
        if line == format!("## {}", levels.len() + 1) {
            levels.push(String::new());
        } else if let Some(level) = levels.last_mut() {
            level.push_str(line);
            level.push('\n');
        }
    }
    levels.iter().map(|it| it.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_cut_at_their_titles() {
        let text = "# Hints\n\n## 1\n\nLook.\n\n## 2\nAsk.\n\nAgain.\n";
        assert_eq!(levels(text), ["Look.", "Ask.\n\nAgain."]);
    }
}
