//! The results, in the form that Gradescope reads: `results.json`, written again after each scenario, so
//! that a grader which is stopped leaves what is earned until then.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// The whole file. No other keys are allowed, here and below: the test of the grader reads it so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// The sum of the tests' scores.
    pub score: f64,
    /// How long grading has taken, in seconds.
    pub execution_time: f64,
    /// What concerns all of it, in sentences.
    pub output: String,
    /// Who sees it.
    pub visibility: Visibility,
    /// Who sees what the grader itself printed.
    pub stdout_visibility: Visibility,
    /// The scenarios.
    pub tests: Vec<Test>,
}

/// A scenario's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The points that it got.
    pub score: f64,
    /// The points that it could get.
    pub max_score: f64,
    /// Whether it has got them.
    pub status: Status,
    /// The scenario.
    pub name: String,
    /// The milestone and the place in it: `2.3`.
    pub number: String,
    /// What was seen.
    pub output: String,
    /// `text`: what a submission has said is in it, and must not become part of a page.
    pub output_format: Format,
    /// Who sees it.
    pub visibility: Visibility,
}

/// Whether a test has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It has all its points.
    Passed,
    /// It has none.
    Failed,
}

/// How an output is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// As it is.
    Text,
}

/// Who sees something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// The student too.
    Visible,
    /// Those who grade.
    Hidden,
}

/// The results and their file.
#[derive(Debug)]
pub struct Book {
    path: PathBuf,
    start: Instant,
    /// What is written.
    pub results: Results,
}

impl Book {
    /// Begins the file at `path` with `tests`, none of which has any points yet.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn begin(path: &Path, tests: Vec<Test>) -> anyhow::Result<Book> {
        let results = Results {
            score: 0.0,
            execution_time: 0.0,
            output: String::new(),
            visibility: Visibility::Visible,
            stdout_visibility: Visibility::Hidden,
            tests,
        };
        let mut book = Book { path: path.to_owned(), start: Instant::now(), results };
        book.write()?;
        Ok(book)
    }

    /// Adds a sentence that concerns all of it.
    pub fn say(&mut self, sentence: &str) {
        if !self.results.output.is_empty() {
            self.results.output.push('\n');
        }
        self.results.output.push_str(sentence);
    }

    /// Enters what became of the test called `name`: all of its points or none.
    pub fn enter(&mut self, name: &str, has_passed: bool, seen: &str) {
        let Some(test) = self.results.tests.iter_mut().find(|it| it.name == name) else { return };
        test.status = if has_passed { Status::Passed } else { Status::Failed };
        test.score = if has_passed { test.max_score } else { 0.0 };
        test.output =
            seen.chars().filter(|it| !it.is_control() || *it == '\n').take(4000).collect();
    }

    /// Writes the file: beside it first, so that nobody ever reads a half.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&mut self) -> anyhow::Result<()> {
        let sum: f64 = self.results.tests.iter().map(|it| it.score).sum();
        // Weights that were shared out anew have many digits, and nobody wants to read them.
        self.results.score = (sum * 100.0).round() / 100.0;
        self.results.execution_time = (self.start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        let text = serde_json::to_string_pretty(&self.results).context("the results")?;
        let beside = self.path.with_extension("json.new");
        let write = || -> std::io::Result<()> {
            // Whatever somebody has put there: a link, or a file of their own.
            let _ = fs::remove_file(&beside);
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&beside, &self.path)
        };
        write().with_context(|| format!("write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_other_side() {
        let test = Test {
            score: 0.0,
            max_score: 2.5,
            status: Status::Failed,
            name: "a".into(),
            number: "1.1".into(),
            output: "not yet".into(),
            output_format: Format::Text,
            visibility: Visibility::Visible,
        };
        let text = serde_json::to_string(&test).unwrap();
        let expected = r#"{"score":0.0,"max_score":2.5,"status":"failed","name":"a","number":"1.1","output":"not yet","output_format":"text","visibility":"visible"}"#;
        assert_eq!(text, expected);
        assert!(serde_json::from_str::<Test>(&text.replace("\"name\"", "\"title\"")).is_err());
    }
}
