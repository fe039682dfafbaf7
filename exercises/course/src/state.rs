//! What the learner has done: `.course/progress.toml`, by the stable ids of the exercises.
//!
//! An id that this version does not know is left alone, and so is whatever else stands in the file: a
//! learner may change between versions.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use toml::{Table, Value};

use crate::home::Home;
use crate::verdict::Verdict;

/// The state of a learner.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    table: Table,
}

impl State {
    /// What is on record.
    ///
    /// # Errors
    ///
    /// When the file is there and cannot be read or is not TOML; the sentence says what to do.
    pub fn read(home: &Home) -> anyhow::Result<State> {
        let path = home.path(".course/progress.toml");
        let shown = home.shown(&path);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(shown),
        };
        let table = text.parse().with_context(|| {
            format!("{shown} is not TOML: mend it, or remove it and begin anew")
        })?;
        Ok(State { path, table })
    }

    fn of(&self, id: &str) -> Option<&Table> {
        self.table.get("exercises")?.get(id)?.as_table()
    }

    fn set(&mut self, id: &str, key: &str, value: impl Into<Value>) {
        let exercises = self.table.entry("exercises").or_insert_with(|| Table::new().into());
        let Some(exercises) = exercises.as_table_mut() else { return };
        let entry = exercises.entry(id).or_insert_with(|| Table::new().into());
        if let Some(entry) = entry.as_table_mut() {
            entry.insert(key.into(), value.into());
        }
    }

    /// Writes it down.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn save(&self) -> anyhow::Result<()> {
        let shown = || self.path.display().to_string();
        fs::create_dir_all(self.path.parent().context("a folder")?).with_context(shown)?;
        let text = toml::to_string(&self.table).context("the progress")?;
        // Whole or not at all: somebody may press Ctrl-C at any moment.
        let new = self.path.with_extension("toml.new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path)).with_context(shown)
    }

    /// The exercise that the learner is at.
    pub fn current(&self) -> Option<&str> {
        self.table.get("current")?.as_str()
    }

    /// From now on, the learner is at this exercise.
    pub fn set_current(&mut self, id: &str) {
        self.table.insert("current".into(), id.into());
    }

    /// The last verdict of an exercise.
    pub fn verdict(&self, id: &str) -> Option<Verdict> {
        Verdict::in_words(self.of(id)?.get("verdict")?.as_str()?)
    }

    /// Whether the exercise has once passed.
    pub fn has_passed(&self, id: &str) -> bool {
        self.of(id).and_then(|it| it.get("passed")).and_then(Value::as_bool) == Some(true)
    }

    /// How often it was checked.
    pub fn checks(&self, id: &str) -> i64 {
        self.of(id).and_then(|it| it.get("checks")).and_then(Value::as_integer).unwrap_or(0)
    }

    /// What is remembered of a check: the verdict, and the rows that were not as the solution's.
    pub fn checked(&mut self, id: &str, verdict: Verdict, wrong: &[(String, String)]) {
        let checks = self.checks(id) + 1;
        self.set(id, "checks", checks);
        self.set(id, "verdict", verdict.to_string());
        let cells = wrong.iter().map(|(name, words)| (name.clone(), Value::from(words.clone())));
        self.set(id, "wrong", Table::from_iter(cells));
        if verdict == Verdict::Pass {
            self.set(id, "passed", true);
        }
    }

    /// The rows that were not as the solution's at the last check, and what they found.
    pub fn wrong(&self, id: &str) -> Vec<(String, String)> {
        let cells = self.of(id).and_then(|it| it.get("wrong")).and_then(Value::as_table);
        let words = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        cells.into_iter().flatten().map(|(name, value)| (name.clone(), words(value))).collect()
    }

    /// The highest level of hints that was shown.
    pub fn hints(&self, id: &str) -> i64 {
        self.of(id).and_then(|it| it.get("hints")).and_then(Value::as_integer).unwrap_or(0)
    }

    /// Notes the level of hints that was shown.
    pub fn set_hints(&mut self, id: &str, level: i64) {
        self.set(id, "hints", level);
    }

    /// Notes that the solution was shown before it passed.
    pub fn gave_up(&mut self, id: &str) {
        self.set(id, "gave_up", true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_kept() {
        let text =
            "current = \"ex99\"\nelse = 1\n\n[exercises.ex99]\nverdict = \"PASS\"\nnew = 2\n";
        let mut state = State { path: PathBuf::new(), table: text.parse().unwrap() };
        state.checked("ex01", Verdict::Stall, &[("row".into(), "held for ever".into())]);
        assert_eq!(state.verdict("ex01"), Some(Verdict::Stall));
        assert_eq!(state.wrong("ex01"), [("row".into(), "held for ever".into())]);
        assert!(!state.has_passed("ex01"));
        let written = toml::to_string(&state.table).unwrap();
        assert!(written.contains("else = 1") && written.contains("new = 2"), "{written}");
    }
}
