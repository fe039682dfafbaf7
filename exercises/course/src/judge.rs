//! What the rows, or the servers of a test, find of a program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, bail};
use contract::exercise;
use contract::probes::{self, Trouble};
use serde::{Deserialize, Serialize};

use crate::confine::{Confined, Limits, course};

/// The hidden command that judges, in a process of its own.
pub const JUDGE: &str = "__judge";

/// How many questions are asked at once: they sleep most of the time.
pub const AT_ONCE: usize = 8;

/// A question to a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Whether it keeps this promise of the table.
    Row(String),
    /// What it, being a test, says of this server.
    Server {
        /// The server's name.
        name: String,
        /// The server's program.
        exe: PathBuf,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The row, or the server.
    pub name: String,
    /// `holds` or the words of a symptom; `passes`, `fails` or `hangs`.
    pub words: String,
    /// What was seen, in sentences.
    pub seen: String,
    /// What the machine lacks, when nothing was found for that reason.
    pub needs: Option<String>,
}

impl Question {
    /// The row, or the server.
    pub fn name(&self) -> &str {
        match self {
            Question::Row(name) | Question::Server { name, .. } => name,
        }
    }

    /// Asks `exe`, here and now.
    pub fn ask(&self, exe: &Path) -> Found {
        let found = |words: &str, seen: String, needs| Found {
            name: self.name().to_owned(),
            words: words.to_owned(),
            seen,
            needs,
        };
        match self {
            Question::Row(row) => match probes::run(row, exe) {
                Ok(it) => {
                    let words = it.verdict.to_string();
                    found(words.trim_start_matches("fails: "), it.seen, None)
                }
                Err(Trouble::Needs(what)) => found("", String::new(), Some(what)),
                // It did not even start, or the probe could do nothing with it: no server.
                Err(Trouble::Broken(error)) => {
                    found("the server ends", format!("It could not be tried: {error:#}."), None)
                }
            },
            Question::Server { exe: server, .. } => match exercise::meet(exe, server) {
                Ok((words, seen)) => found(words, seen, None),
                Err(error) if format!("{error:#}").contains("io_uring is ") => {
                    found("", String::new(), Some(format!("{error:#}")))
                }
                Err(error) => found("hangs", format!("It could not be tried: {error:#}."), None),
            },
        }
    }
}

/// Asks all `questions`, so many at once, and hands over each answer as it comes.
pub fn ask_all(exe: &Path, questions: &[Question], mut heard: impl FnMut(Found)) {
    let next = AtomicUsize::new(0);
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(questions.len()) {
            let (say, next) = (say.clone(), &next);
            scope.spawn(move || {
                while let Some(question) = questions.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = say.send(question.ask(exe));
                }
            });
        }
        drop(say);
        said.into_iter().for_each(&mut heard);
    });
}

/// The same in a confined process: nothing that the program does can hold us up.
///
/// # Errors
///
/// When the process cannot be run, or says something else than answers. What it did not come to is
/// among the answers, as a program that hangs.
pub fn ask_confined(
    exe: &Path,
    questions: &[Question],
    folder: &Path,
    mut heard: impl FnMut(&Found),
) -> anyhow::Result<Vec<Found>> {
    let course = course()?;
    let question = serde_json::to_string(questions).context("the questions")?;
    let confined = Confined {
        program: course.clone(),
        course,
        limits: Limits::SERVER,
        arguments: vec![JUDGE.into(), exe.into(), question.into()],
        folder: folder.to_owned(),
        // Of a server that panics, the sentence is wanted and no more.
        variables: vec![("RUST_BACKTRACE".into(), "0".into())],
    };
    let mut answers: Vec<Found> = Vec::new();
    let ended = confined.run(|line| {
        if let Ok(found) = serde_json::from_str::<Found>(line) {
            heard(&found);
            answers.push(found);
        }
    })?;
    if answers.len() < questions.len() && ended.status.is_some() {
        bail!("the judge ended early ({:?}): {}", ended.status, ended.stderr.trim());
    }
    for question in questions {
        if !answers.iter().any(|it| it.name == question.name()) {
            answers.push(Found {
                name: question.name().into(),
                words: "does not answer".into(),
                seen: format!("Nothing was found {}.", ended.doing()),
                needs: None,
            });
        }
    }
    let order = |it: &Found| questions.iter().position(|other| other.name() == it.name);
    answers.sort_by_key(order);
    Ok(answers)
}

/// The main function of the hidden command: `EXE QUESTIONS`, one answer a line.
///
/// # Errors
///
/// When the arguments are none of ours.
pub fn main(arguments: &[std::ffi::OsString]) -> anyhow::Result<()> {
    let [exe, questions] = arguments else { bail!("{JUDGE} EXE QUESTIONS") };
    let questions: Vec<Question> = serde_json::from_str(&questions.to_string_lossy())?;
    ask_all(Path::new(exe), &questions, |found| {
        if let Ok(line) = serde_json::to_string(&found) {
            crate::say::line(line);
        }
    });
    Ok(())
}
