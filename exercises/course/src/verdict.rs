//! One word for what became of an exercise.

use std::fmt;

use contract::verdicts::{Symptom, Verdict as Cell};

use crate::judge::Found;

/// What `check` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing has been done yet.
    NotStarted,
    /// The compiler refuses it.
    DoesNotCompile,
    /// Somebody waits who should not.
    Stall,
    /// A promise is broken in another way.
    WrongAnswer,
    /// The program ends, and should not.
    Crash,
    /// What failed at first held when it was tried again.
    Flaky,
    /// This machine cannot run it.
    NeedsLinux,
    /// All rows are as they are to be.
    Pass,
}

const WORDS: [(Verdict, &str); 8] = [
    (Verdict::NotStarted, "NOT STARTED"),
    (Verdict::DoesNotCompile, "DOES NOT COMPILE"),
    (Verdict::Stall, "STALL"),
    (Verdict::WrongAnswer, "WRONG ANSWER"),
    (Verdict::Crash, "CRASH"),
    (Verdict::Flaky, "FLAKY"),
    (Verdict::NeedsLinux, "NEEDS LINUX"),
    (Verdict::Pass, "PASS"),
];

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = WORDS.iter().find(|it| it.0 == *self).map_or("?", |it| it.1);
        f.pad(words)
    }
}

impl Verdict {
    /// The verdict in these words.
    pub fn in_words(words: &str) -> Option<Verdict> {
        WORDS.iter().find(|it| it.1 == words).map(|it| it.0)
    }

    /// What one finding that is not as the solution's means.
    pub fn of(found: &Found) -> Verdict {
        use Symptom::*;
        match Cell::in_words(&found.words) {
            Some(Cell::Fails(Died)) => Verdict::Crash,
            Some(Cell::Fails(
                StalledForEver
                | StalledForItsPatience
                | Late
                | HeldForEver
                | PatienceRenewed
                | QueueOverflowed
                | WentOn,
            )) => Verdict::Stall,
            // Whether somebody waits, or has been turned away, the microscope has seen.
            Some(Cell::Fails(Unanswered)) if found.seen.contains(" sleeps in ") => Verdict::Stall,
            None if found.words == "hangs" => Verdict::Stall,
            _ => Verdict::WrongAnswer,
        }
    }

    /// What all findings together mean, of which none is as the solution's.
    pub fn of_all<'a>(wrong: impl IntoIterator<Item = &'a Found>) -> Verdict {
        let rank = |it: &Verdict| match it {
            Verdict::Crash => 3,
            Verdict::Stall => 2,
            Verdict::WrongAnswer => 1,
            _ => 0,
        };
        wrong.into_iter().map(Verdict::of).max_by_key(rank).unwrap_or(Verdict::Pass)
    }
}
