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
//! Simplified: these lines are read by hand and in this shape alone, so that no chapter's test has to
//! wait for a library that reads TOML. `cargo course` reads the rest of the file with one.

use crate::verdicts::{self, Row, Verdict};

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

/// The rows of the `exercise.toml` with this text, in its order.
///
/// # Errors
///
/// A sentence that names the line, when one is not of the shape, or names no row or no symptom; and when
/// no row is asked about or none changes.
pub fn asked(text: &str) -> Result<Vec<Asked>, String> {
    let mut lines = text.lines().skip_while(|it| !it.starts_with("[rows]"));
    lines.next().ok_or("it has no table [rows]")?;
    let mut asked: Vec<Asked> = Vec::new();
    for line in lines {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let row = one(line).map_err(|it| format!("`{line}`: {it}"))?;
        if asked.iter().any(|it| it.row == row.row) {
            return Err(format!("`{line}`: this row was named before"));
        }
        asked.push(row);
    }
    if !asked.iter().any(Asked::is_target) {
        return Err("no row of [rows] differs between starter and solution".into());
    }
    Ok(asked)
}

fn one(line: &str) -> Result<Asked, String> {
    let (name, cells) = line
        .split_once(" = [\"")
        .and_then(|(name, rest)| Some((name, rest.strip_suffix("\"]")?.split_once("\", \"")?)))
        .ok_or("is not of the shape `promise = [\"the starter\", \"the solution\"]`")?;
    let row = verdicts::find(name).ok_or(format!("the table has no row {name:?}"))?;
    let verdict = |words: &str| {
        Verdict::in_words(words)
            .ok_or(format!("{words:?} is no verdict: see tests/src/verdicts.rs"))
    };
    Ok(Asked { row, starter: verdict(cells.0)?, solution: verdict(cells.1)? })
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
        let twice = "nothing_leaks = [\"burns CPU time\", \"holds\"]\n";
        assert!(told(&twice.repeat(2)).contains("before"));
    }

    #[test]
    fn every_verdict_has_words_of_its_own() {
        for row in &verdicts::TABLE {
            for verdict in row.cells {
                let words = verdict.to_string();
                let words = words.trim_start_matches("fails: ");
                assert_eq!(Verdict::in_words(words), Some(verdict));
            }
        }
    }
}
