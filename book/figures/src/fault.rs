//! What is wrong with a directive, and what to do about it.

use std::fmt;

/// A thing that cannot be done, in a sentence, and its remedy in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong, without a full stop.
    pub what: String,
    /// What to do, without a full stop.
    pub remedy: String,
}

/// The result of whatever a directive asks for.
pub type Result<T> = std::result::Result<T, Fault>;

/// A fault as a result.
pub fn fault<T>(what: impl Into<String>, remedy: impl Into<String>) -> Result<T> {
    Err(Fault { what: what.into(), remedy: remedy.into() })
}

/// Some names for a sentence: `a, b, c`, and no more than a reader would read.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 12;
    let mut names: Vec<_> = names.into_iter().collect();
    let left_out = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    match (names.is_empty(), left_out) {
        (true, _) => "nothing".to_owned(),
        (_, 0) => names.join(", "),
        (_, more) => format!("{} and {more} more", names.join(", ")),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n    {}", self.what, self.remedy)
    }
}

impl std::error::Error for Fault {}
