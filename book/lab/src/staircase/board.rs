//! The scoreboard: what was measured, beside what the blog says of its servers.

use crate::{
    experiment::Scale,
    race::scoreboard::{Tally, ms},
    records::{Record, read_csv},
    scaling::board::Spread,
    servers::short,
    staircase::{
        STALL_PERCENT,
        model::{self, runs},
    },
};
use contract::verdicts::Column;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The blog's numbers, as its table and its report have them.
const BLOG: &[u8] = include_bytes!("../../../data/blog-staircase.csv");

/// What the blog says of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Blog {
    /// `blog-staircase`
    pub experiment: String,
    /// The chapter that is this server.
    pub server: String,
    /// `wifi`
    pub link: String,
    /// Requests that were due.
    pub scheduled: u64,
    /// Answered right.
    pub correct: u64,
    /// Ended by the client's patience.
    pub timed_out: Option<u64>,
    /// Refused.
    pub refused: Option<u64>,
    /// Reset.
    pub reset: Option<u64>,
    /// The highest rate with everybody answered.
    pub sustained_qps: f64,
    /// The rate at which about half were answered.
    pub knee_qps: f64,
    /// Median latency at 10 requests per second.
    pub p50_at_10_ms: Option<f64>,
    /// The same at 160.
    pub p50_at_160_ms: Option<f64>,
}

/// The blog's table. It is part of this program, and was read by its tests.
pub fn blog() -> Vec<Blog> {
    read_csv(BLOG).unwrap_or_default()
}

/// All of it, a table for each kind of stalled client.
pub fn board(servers: &[Column], records: &[Record], scale: &Scale) -> String {
    let mut text = format!("THE STAIRCASE ACROSS THE RADIO: {}\n", scale.words());
    let mut kinds: Vec<&str> = Vec::new();
    for record in records {
        if !kinds.contains(&record.stall.as_str()) {
            kinds.push(&record.stall);
        }
    }
    let blog = blog();
    for kind in kinds {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\n{STALL_PERCENT} % of the clients: {kind}\n  {:<16} {:>9} {:>9} {:>16} {:>9}  | {:>9} {:>6} {:>9} {:>7}",
            "server",
            "sustained",
            "knee",
            "answered",
            "p50",
            "the blog's",
            "knee",
            "answered",
            "p50"
        );
        for server in servers {
            let of_kind: Vec<Vec<Record>> = runs(records, server.name)
                .into_iter()
                .filter(|run| run.iter().all(|it| it.stall == kind))
                .collect();
            // The blog's third is the one that it printed, which reads once for an event.
            let as_printed = |it: &&Blog| {
                it.server == server.name || server.name == format!("{}-one-recv", it.server)
            };
            let theirs = blog.iter().find(as_printed);
            let _ = writeln!(text, "{}", line(server, &of_kind, kind, theirs).trim_end());
        }
    }
    let model = model::findings(records);
    if !model.is_empty() {
        text += "\nWHAT STOPS 04\n";
        for sentence in model {
            let _ = writeln!(text, "  {sentence}");
        }
    }
    if let Some(sentence) = model::spoiled(records) {
        let _ = writeln!(text, "\n{sentence}");
    }
    text + DEFINITIONS
}

const DEFINITIONS: &str = "
sustained  the highest step with at least 99 % answered right, and all steps below it too; the blog's: 100 %
knee       the first step with at most 50 % answered right
answered   of what was scheduled; of several runs the middle one, and the least and the most
p50        at the first step
the blog's its own table: one run, of which nobody knows how many clients stalled
";

fn line(server: &Column, runs: &[Vec<Record>], kind: &str, theirs: Option<&Blog>) -> String {
    let tallies: Vec<Tally> =
        runs.iter().filter_map(|run| Tally::of(run, server.name, kind)).collect();
    let name = short(server.name);
    let Some(percent) = Spread::of(tallies.iter().map(Tally::percent)) else {
        return format!("  {name:<16} not measured");
    };
    let rates = |rate: fn(&Tally) -> Option<f64>| {
        let spread = Spread::of(tallies.iter().map(|it| rate(it).unwrap_or(f64::INFINITY)));
        spread.map_or_else(String::new, |it| match (it.least, it.most) {
            (least, most) if least == most => qps(least),
            (least, most) => format!("{}–{}", qps(least), qps(most)),
        })
    };
    let p50 = Spread::of(tallies.iter().filter_map(|it| it.first.p50_ms));
    let answered = if tallies.len() > 1 {
        format!("{:.1} ({:.1}–{:.1})", percent.middle, percent.least, percent.most)
    } else {
        format!("{:.1} %", percent.middle)
    };
    let mut text = format!(
        "  {name:<16} {:>9} {:>9} {answered:>16} {:>9}  |",
        rates(|it| Some(it.climbed_qps.unwrap_or(0.0))),
        rates(|it| it.knee_qps),
        p50.map_or_else(|| "–".into(), |it| ms(it.middle)),
    );
    if let Some(blog) = theirs {
        text += &format!(
            " {:>10} {:>6} {:>9} {:>7}",
            qps(blog.sustained_qps),
            qps(blog.knee_qps),
            format!("{:.1} %", 100.0 * blog.correct as f64 / blog.scheduled as f64),
            blog.p50_at_10_ms.map_or_else(|| "–".into(), ms),
        );
    }
    text
}

fn qps(rate: f64) -> String {
    match rate {
        0.0 => "none".into(),
        f64::INFINITY => "beyond".into(),
        rate => rate.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::verdicts::CHAPTERS;

    #[test]
    fn the_blogs_numbers_add_up() {
        let blog = blog();
        assert_eq!(blog.len(), 4);
        for row in &blog {
            let others = [row.timed_out, row.refused, row.reset].into_iter().flatten().sum::<u64>();
            let nowhere = row.scheduled - row.correct - others;
            assert_eq!(nowhere, if row.server == "ch02" { 5 } else { 0 }, "{row:?}");
            assert_eq!(row.scheduled, Scale::full().requests());
        }
    }

    #[test]
    fn several_runs_are_told_by_their_spread() {
        let mut records = Vec::new();
        for (server, seed, correct) in
            [("ch01", 1, 3), ("ch04", 1, 50), ("ch04", 2, 48), ("ch04", 3, 53)]
        {
            for (step, target_qps) in [(1, 10.0), (2, 460.0)] {
                records.push(Record {
                    server: server.into(),
                    stall: "silent".into(),
                    seed: Some(seed),
                    step,
                    target_qps,
                    scheduled: 100,
                    correct: if step == 1 { 100 } else { correct },
                    p50_ms: Some(60.0 + seed as f64),
                    ..Record::default()
                });
            }
        }
        insta::assert_snapshot!(board(&CHAPTERS[..4], &records, &Scale::full()));
    }
}
