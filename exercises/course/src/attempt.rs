//! A learner's attempt: thrown away (and kept), compared, and compared with the solution.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use similar::TextDiff;

use crate::check::after;
use crate::exercise::Exercise;
use crate::home::Home;
use crate::say::line;
use crate::state::State;

/// Puts the starter back, and keeps the attempt.
///
/// # Errors
///
/// When a file cannot be read or written; then nothing is lost.
pub fn reset(home: &Home, exercise: &Exercise) -> anyhow::Result<()> {
    let (id, main) = (&exercise.id, exercise.main());
    if exercise.is_untouched() {
        line(format_args!("{} is as it was handed out: nothing to do.", home.shown(&main)));
        line(format_args!("Next: cargo course start {id}"));
        return Ok(());
    }
    // Read first: without a starter to put back, nothing may be touched.
    let starter = read(home, &exercise.starter())?;
    let kept = if main.exists() { Some(keep(home, id, &main)?) } else { None };
    fs::write(&main, starter).with_context(|| home.shown(&main))?;
    if let Some(kept) = kept {
        line(format_args!("Your attempt is kept: {}", home.shown(&kept)));
    }
    line(format_args!("{} is as it was handed out.", home.shown(&main)));
    line(format_args!("Next: cargo course check {id}"));
    Ok(())
}

/// Copies an attempt to `.course/attempts`, by the second of the day, never over another.
fn keep(home: &Home, id: &str, main: &Path) -> anyhow::Result<PathBuf> {
    let folder = home.path(".course/attempts").join(id);
    fs::create_dir_all(&folder).with_context(|| home.shown(&folder))?;
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let name = |at: u32| match at {
        0 => format!("main-{second}.rs"),
        _ => format!("main-{second}-{at}.rs"),
    };
    let free = (0..1000).map(|it| folder.join(name(it))).find(|it| !it.exists());
    let to = free.context("a name for the attempt")?;
    fs::copy(main, &to).with_context(|| home.shown(&to))?;
    Ok(to)
}

/// Shows what the learner has changed.
///
/// # Errors
///
/// When a file cannot be read.
pub fn diff(home: &Home, exercise: &Exercise) -> anyhow::Result<()> {
    let id = &exercise.id;
    if exercise.is_untouched() {
        line(format_args!("{} is as it was handed out.", home.shown(&exercise.main())));
        line(format_args!("Next: cargo course start {id}"));
        return Ok(());
    }
    show(home, &exercise.starter(), &exercise.main(), "as handed out")?;
    line(format_args!("\nNext: cargo course check {id}. To begin anew: cargo course reset {id}"));
    Ok(())
}

/// Shows the solution, and why it is so: once the exercise has passed, or when the learner gives up.
///
/// # Errors
///
/// When it may not be shown yet, and when a file cannot be read.
pub fn solution(home: &Home, exercise: &Exercise, give_up: bool) -> anyhow::Result<()> {
    let id = &exercise.id;
    let mut state = State::read(home)?;
    if !state.has_passed(id) {
        if !give_up {
            bail!(
                "{id} has not passed yet: cargo course check {id}, or cargo course hint {id}. To see it \
                 all the same: cargo course solution {id} --give-up"
            );
        }
        state.gave_up(id);
        state.save()?;
    }
    line(read(home, &exercise.solutions.join("WHY.md"))?.trim_end());
    line("\n## From your file to ours\n");
    show(home, &exercise.main(), &exercise.solution(), "yours")?;
    match after(home, id, &state)? {
        Some(other) => line(format_args!("\nNext: cargo course start {}", other.id)),
        None => line("\nNext: cargo course progress"),
    }
    Ok(())
}

fn show(home: &Home, old: &Path, new: &Path, called: &str) -> anyhow::Result<()> {
    let (before, after) = (read(home, old)?, read(home, new)?);
    if before == after {
        line(format_args!("{} and {} are the same.", home.shown(old), home.shown(new)));
        return Ok(());
    }
    let header = format!("{} ({called})", home.shown(old));
    let diff = TextDiff::from_lines(&before, &after);
    line(
        diff.unified_diff()
            .context_radius(3)
            .header(&header, &home.shown(new))
            .to_string()
            .trim_end(),
    );
    Ok(())
}

fn read(home: &Home, path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| home.shown(path))
}
