//! The column of an exercise: which promises it is asked about, and what becomes of them.
//!
//! It stands in the exercise's `exercise.toml`, in a table of this shape, which is the last one:
//!
//! ```toml
//! [rows] # promise = [the starter, the solution]
//! answers_odd_even_invalid = ["does not answer", "holds"]
//! a_half_closed_client_is_answered = ["holds", "holds"]
//! ```
//!
//! The words are those of the table: `holds`, or how it fails. Where the two differ is what the learner
//! has to change; the others must stay as they are.
//!
//! Where the learner writes the test, the table is `[servers]`, the names are those of servers, and the words
//! are what the test says of each: `passes`, `fails`, or `hangs`.
//!
//! Simplified: these lines are read by hand and in this shape alone, so that no chapter's test has to
//! wait for a library that reads TOML. `cargo course` reads the rest of the file with one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::bounded::{self, LAST_WORDS, Listening};
use crate::server::Server;
use crate::verdicts::{self, Row, Verdict};

/// How long a test that a learner wrote may take.
pub const TEST: Duration = Duration::from_secs(10);

/// A promise that an exercise is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The promise.
    pub row: &'static Row,
    /// What the server that is handed out does.
    pub starter: Verdict,
    /// What a server does that solves the exercise.
    pub solution: Verdict,
}

impl Asked {
    /// Whether it is what the learner has to change.
    pub fn is_target(&self) -> bool {
        self.starter != self.solution
    }
}

/// A server that a learner's test meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// The server: `ch04`, or `wrong-reads-text`.
    pub server: String,
    /// What the test that is handed out says of it.
    pub starter: String,
    /// What a right test says of it.
    pub solution: String,
}

/// The rows of the `exercise.toml` with this text, in its order.
///
/// # Errors
///
/// A sentence that names the line, when one is not of the shape, or names no row or no symptom; and when
/// no row is asked about or none changes.
pub fn asked(text: &str) -> Result<Vec<Asked>, String> {
    let mut asked: Vec<Asked> = Vec::new();
    for (line, [name, starter, solution]) in cells(text, "[rows]")? {
        let row = verdicts::find(name).ok_or(format!("`{line}`: the table has no row {name:?}"))?;
        if asked.iter().any(|it| it.row == row) {
            return Err(format!("`{line}`: this row was named before"));
        }
        let verdict = |words: &str| {
            let why = "is no verdict: see tests/src/verdicts.rs";
            Verdict::in_words(words).ok_or(format!("`{line}`: {words:?} {why}"))
        };
        asked.push(Asked { row, starter: verdict(starter)?, solution: verdict(solution)? });
    }
    if !asked.iter().any(Asked::is_target) {
        return Err("no row of [rows] differs between starter and solution".into());
    }
    Ok(asked)
}

/// The servers of the `exercise.toml` with this text, in its order; none where the learner does not write
/// the test.
///
/// # Errors
///
/// A sentence that names the line, when one is not of the shape or has other words.
pub fn met(text: &str) -> Result<Vec<Met>, String> {
    let mut met = Vec::new();
    for (line, [server, starter, solution]) in cells(text, "[servers]").unwrap_or_default() {
        if let Some(word) = [starter, solution].iter().find(|it| !WORDS.contains(it)) {
            return Err(format!("`{line}`: {word:?} is none of {WORDS:?}"));
        }
        let [server, starter, solution] = [server, starter, solution].map(str::to_owned);
        met.push(Met { server, starter, solution });
    }
    Ok(met)
}

/// What a test can say of a server.
const WORDS: [&str; 3] = ["passes", "fails", "hangs"];

type Line<'a> = (&'a str, [&'a str; 3]);

/// The lines below `title`, each with its name and its two cells.
fn cells<'a>(text: &'a str, title: &str) -> Result<Vec<Line<'a>>, String> {
    let mut lines = text.lines().skip_while(|it| !it.starts_with(title));
    lines.next().ok_or(format!("it has no table {title}"))?;
    let lines = lines.map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'));
    let parsed = lines.map(|line| {
        let parts = line.split_once(" = [\"").and_then(|(name, rest)| {
            let (starter, solution) = rest.strip_suffix("\"]")?.split_once("\", \"")?;
            Some([name, starter, solution])
        });
        let shape = "is not of the shape `name = [\"the starter\", \"the solution\"]`";
        Ok((line, parts.ok_or(format!("`{line}`: {shape}"))?))
    });
    parsed.collect()
}

/// Lets the test `exe` meet a server of its own: what it says in one word, and what was seen.
///
/// # Errors
///
/// When either cannot be run.
pub fn meet(exe: &Path, server: &Path) -> anyhow::Result<(&'static str, String)> {
    let server = Server::start(server)?;
    let mut command = Command::new(exe);
    command.arg(server.address().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| exe.display().to_string())?;
    let stderr = Listening::to(child.stderr.take().context("stderr was piped")?, 4096)?;
    let status = bounded::wait_fairly(&mut child, TEST).context("waitpid")?;
    if status.is_none() {
        bounded::end(&mut child).context("the test")?;
    }
    // What it has started itself may hold the pipe.
    let said = stderr.heard(LAST_WORDS).text().trim().to_owned();
    let said = if said.is_empty() { "It said nothing.".into() } else { format!("It said: {said}") };
    Ok(match status {
        None => ("hangs", format!("The test did not end in {} s. {said}", TEST.as_secs())),
        Some(it) if it.success() => ("passes", "The test was content with it.".into()),
        Some(it) if it.code().is_some() => ("fails", said),
        Some(it) => bail!("the test ended by {it}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdicts::Symptom;

    #[test]
    fn rows_are_read_by_their_words() {
        let text = "id = \"ex00\"\n[rows] # promise\n\n# the target\n\
            nothing_leaks = [\"something is not given back\", \"holds\"]\n\
            it_restarts_at_once = [\"holds\", \"holds\"]\n";
        let asked = asked(text).unwrap();
        assert_eq!(asked[0].starter, Verdict::Fails(Symptom::Leaked));
        assert!(asked[0].is_target() && !asked[1].is_target());
        assert_eq!(asked.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let told = |rows: &str| asked(&format!("[rows]\n{rows}\n")).unwrap_err();
        assert!(asked("").unwrap_err().contains("no table"));
        assert!(told("nothing_leaks = \"holds\"").contains("shape"));
        assert!(told("nobody = [\"holds\", \"holds\"]").contains("no row"));
        assert!(told("nothing_leaks = [\"leaks\", \"holds\"]").contains("\"leaks\""));
        assert!(told("nothing_leaks = [\"holds\", \"holds\"]").contains("differs"));
        let twice = "nothing_leaks = [\"something is not given back\", \"holds\"]\n";
        assert!(told(&twice.repeat(2)).contains("before"));
        let told = met("[servers]\nch04 = [\"passes\", \"is fine\"]\n").unwrap_err();
        assert!(told.contains("is fine"), "{told}");
    }

    #[test]
    fn every_verdict_has_words_of_its_own() {
        for row in &verdicts::TABLE {
            for &verdict in row.cells {
                let words = verdict.to_string();
                let words = words.trim_start_matches("fails: ");
                assert_eq!(Verdict::in_words(words), Some(verdict));
            }
        }
    }
}
