//! What is counted of a suite: how many cases went as wished, and which did not.

use super::NAME;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The server that the models are compared with.
const PEER: &str = "nginx";

/// The name of the row that counts all cases.
pub const ALL: &str = "all";

/// A kind of cases of a suite, sent to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// A model, or nginx.
    pub server: &'static str,
    /// The suite.
    pub suite: &'static str,
    /// `invalid` or `valid` of gunicorn's, each also as `…-with-host`; `case` of h1spec's.
    pub kind: &'static str,
    /// How many cases.
    pub total: usize,
    /// Those that went in another way than the suite wishes.
    pub misses: Vec<Miss>,
}

/// A case that did not go as wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// What the suite calls it.
    pub name: String,
    /// What the server said instead.
    pub heard: String,
}

/// One row for each server, suite and kind, and one for each miss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// `suites`.
    pub experiment: String,
    /// A model, or nginx.
    pub server: String,
    /// The suite.
    pub suite: String,
    /// As in [`Tally`].
    pub kind: String,
    /// [`ALL`], or a miss.
    pub name: String,
    /// How many cases.
    pub total: usize,
    /// Of those, how many went as the suite wishes.
    pub as_wished: usize,
    /// The statuses of a miss, or the suite's words; empty for all.
    pub heard: String,
}

impl Tally {
    /// How many cases went as wished.
    pub fn as_wished(&self) -> usize {
        self.total - self.misses.len()
    }

    /// As they are kept.
    pub fn rows(&self) -> Vec<Row> {
        let row = |name: &str, total, as_wished, heard: &str| Row {
            experiment: NAME.into(),
            server: self.server.into(),
            suite: self.suite.into(),
            kind: self.kind.into(),
            name: name.into(),
            total,
            as_wished,
            heard: heard.into(),
        };
        let misses = self.misses.iter().map(|it| row(&it.name, 1, 0, &it.heard));
        [row(ALL, self.total, self.as_wished(), "")].into_iter().chain(misses).collect()
    }

    fn is_same_part(&self, other: &Tally) -> bool {
        (self.suite, self.kind) == (other.suite, other.kind)
    }

    fn names(&self) -> Vec<&str> {
        self.misses.iter().map(|it| it.name.as_str()).collect()
    }
}

/// A sentence for each model that does in fewer cases as wished than nginx.
pub fn behind(tallies: &[Tally]) -> Vec<String> {
    let models = tallies.iter().filter(|it| it.server != PEER);
    let behind = models.filter_map(|ours| {
        let peer = tallies.iter().find(|it| it.server == PEER && it.is_same_part(ours))?;
        let (less, more) = (ours.as_wished(), peer.as_wished());
        (less < more).then(|| {
            let Tally { server, suite, kind, total, .. } = ours;
            format!("{suite}, {kind}: {server} does {less} of {total} as wished, {PEER} {more}")
        })
    });
    behind.collect()
}

/// A sentence for each model that misses other cases than the first one. They have one core.
pub fn differing(tallies: &[Tally]) -> Vec<String> {
    let models = tallies.iter().filter(|it| it.server != PEER);
    let differing = models.clone().filter_map(|it| {
        let first = models.clone().find(|first| first.is_same_part(it))?;
        (first.names() != it.names()).then(|| {
            format!(
                "{}, {}: {} misses {:?}, and {} misses {:?}",
                it.suite,
                it.kind,
                it.server,
                it.names(),
                first.server,
                first.names()
            )
        })
    });
    differing.collect()
}

/// For the reader: how many went as wished, and what did not.
pub fn table(tallies: &[Tally]) -> String {
    let mut text = String::new();
    let parts: Vec<&Tally> = tallies
        .iter()
        .enumerate()
        .filter(|(at, it)| !tallies[..*at].iter().any(|before| before.is_same_part(it)))
        .map(|(_, it)| it)
        .collect();
    for part in parts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}, {}: as wished of {}", part.suite, part.kind, part.total);
        for tally in tallies.iter().filter(|it| it.is_same_part(part)) {
            let misses = tally.misses.iter().map(|it| match it.heard.as_str() {
                "" => it.name.clone(),
                heard => format!("{} ({heard})", it.name),
            });
            let misses = misses.collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "  {:<23}{:>3}   {misses}", tally.server, tally.as_wished());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(server: &'static str, misses: &[&str]) -> Tally {
        let misses = misses.iter().map(|it| Miss { name: (*it).into(), heard: "200".into() });
        Tally { server, suite: "gunicorn", kind: "invalid", total: 3, misses: misses.collect() }
    }

    #[test]
    fn all_are_counted_and_a_miss_has_a_row() {
        let rows = tally("io-uring", &["006"]).rows();
        let of = |at: usize| (rows[at].name.as_str(), rows[at].total, rows[at].as_wished);
        assert_eq!((of(0), of(1), rows.len()), (("all", 3, 2), ("006", 1, 0), 2));
        assert_eq!(rows[1].heard, "200");
    }

    #[test]
    fn a_model_that_is_behind_nginx_is_told() {
        let good = [tally("nginx", &["1"]), tally("io-uring", &["2"])];
        assert!(behind(&good).is_empty());
        let bad = [tally("nginx", &["1"]), tally("io-uring", &["1", "2"])];
        let told = ["gunicorn, invalid: io-uring does 1 of 3 as wished, nginx 2"];
        assert_eq!(behind(&bad), told);
    }

    #[test]
    fn models_that_differ_are_told_and_nginx_may_differ() {
        let alike = [tally("nginx", &[]), tally("io-uring", &["1"]), tally("epoll-edge", &["1"])];
        assert!(differing(&alike).is_empty());
        let other = [tally("io-uring", &["1"]), tally("epoll-edge", &["2"])];
        assert_eq!(differing(&other).len(), 1);
    }

    #[test]
    fn the_table_names_what_was_missed() {
        let text = table(&[tally("nginx", &[]), tally("io-uring", &["006"])]);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[0], "gunicorn, invalid: as wished of 3");
        assert_eq!(lines[1], "  nginx                    3");
        assert_eq!(lines[2], "  io-uring                 2   006 (200)");
    }
}
