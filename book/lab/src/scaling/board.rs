//! The tables of what was measured, to be read on a terminal.

use crate::{
    race::scoreboard::thousands,
    records::Record,
    scaling::{ALL_CORES, BARE, BARE_AGAIN, BARE_LEAST, ONE_CORE},
    servers::short,
};
use std::fmt::Write;

/// A share of its cores from which on somebody is taken to have no time left.
const BUSY: f64 = 0.85;

/// What the rounds of one server with one number of reactors amount to.
struct Line<'a> {
    server: &'a str,
    reactors: usize,
    rounds: Vec<&'a Record>,
}

/// The middle, the least and the most of some rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median: of an even number of rounds, the higher of the two in the middle.
    pub middle: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = *values.get(values.len() / 2)?;
        Some(Spread { middle, least: *values.first()?, most: *values.last()? })
    }
}

/// Both tables as text.
pub fn board(records: &[Record]) -> String {
    let mut text = String::new();
    let one = lines(records, ONE_CORE);
    if !one.is_empty() {
        text += "SERVER AND CLIENTS ON ONE CORE: CPU seconds of the server for 100,000 answers\n";
        text += &one_core(&one, records);
        text += "\n";
    }
    let all = lines(records, ALL_CORES);
    if let Some(cores) = all.first().and_then(|it| it.rounds.first()?.cores) {
        let _ = writeln!(text, "SERVER AND CLIENTS ON ALL CORES ({cores}): more reactors");
        text += &all_cores(&all, cores);
        text += "\n";
    }
    if !text.is_empty() {
        text += DEFINITIONS;
    }
    text
}

const DEFINITIONS: &str = "\
CPU        of the server, in seconds for 100,000 answers: ten times as many microseconds for one.
           One connection for each answer; the median of the rounds, and the least and the most
of bare    the same as a multiple of the bare loop's in the same round
bare       a loop that makes the calls of 04 and keeps no books; once more at the end of each round,
           which shows the noise; `bare-least` leaves its clients with close alone
busy       how many of the cores the server and its clients took, together at most all of them
";

fn lines<'a>(records: &'a [Record], experiment: &str) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for record in records.iter().filter(|it| it.experiment == experiment) {
        let reactors = record.reactors.unwrap_or(1);
        let same = |it: &&mut Line<'_>| it.server == record.server && it.reactors == reactors;
        match lines.iter_mut().find(same) {
            Some(line) => line.rounds.push(record),
            None => lines.push(Line { server: &record.server, reactors, rounds: vec![record] }),
        }
    }
    lines
}

fn one_core(lines: &[Line<'_>], records: &[Record]) -> String {
    let mut text = format!(
        "  {:<12} {:>6} {:>15}   {:>7} {:>15}   {:>9}\n",
        "server", "CPU", "", "of bare", "", "answers/s"
    );
    for line in lines {
        let Some(cpu) = Spread::of(line.rounds.iter().filter_map(|it| it.server_cpu_s_per_100k))
        else {
            continue;
        };
        let rate = Spread::of(line.rounds.iter().map(|it| it.achieved_qps));
        let ratio = ratio(records, line.server).map_or_else(String::new, |it| {
            format!("{:>7.2} {:>15}", it.middle, format!("({:.2} – {:.2})", it.least, it.most))
        });
        let _ = writeln!(
            text,
            "  {:<12} {:>6.3} {:>15}   {ratio:<23}   {:>9}",
            short(line.server),
            cpu.middle,
            format!("({:.3} – {:.3})", cpu.least, cpu.most),
            thousands(rate.map_or(0.0, |it| it.middle) as u64),
        );
    }
    text
}

fn all_cores(lines: &[Line<'_>], cores: usize) -> String {
    let mut text = format!(
        "  {:<8} {:>8} {:>9}   {:>6} {:>15}   {:>11} {:>12}   {}\n",
        "server", "reactors", "answers/s", "CPU", "", "server busy", "clients busy", "the limit"
    );
    for line in lines {
        let median = |value: fn(&Record) -> Option<f64>| {
            Spread::of(line.rounds.iter().filter_map(|it| value(it))).map_or(0.0, |it| it.middle)
        };
        let Some(rate) = Spread::of(line.rounds.iter().map(|it| it.achieved_qps)) else { continue };
        let Some(cpu) = Spread::of(line.rounds.iter().filter_map(|it| it.server_cpu_s_per_100k))
        else {
            continue;
        };
        let (server, clients) = (
            median(|it| Some(it.server_cpu_s_per_100k? * it.achieved_qps / 1e5)),
            median(|it| Some(it.client_cpu_s_per_100k? * it.achieved_qps / 1e5)),
        );
        let range = format!("({:.3} – {:.3})", cpu.least, cpu.most);
        let _ = writeln!(
            text,
            "  {:<8} {:>8} {:>9}   {:>6.3} {range:>15}   {server:>11.2} {clients:>12.2}   {}",
            short(line.server),
            line.reactors,
            thousands(rate.middle as u64),
            cpu.middle,
            limit(server, clients, line.reactors, cores),
        );
    }
    text
}

/// Who had no time left.
fn limit(server: f64, clients: f64, reactors: usize, cores: usize) -> &'static str {
    if server > BUSY * reactors as f64 {
        "the server"
    } else if server + clients > BUSY * cores as f64 {
        "all cores"
    } else if clients > BUSY * cores as f64 {
        "the clients"
    } else {
        "neither"
    }
}

/// CPU time as a multiple of the bare loop's, round by round, so that what slows down a whole round
/// slows down both.
pub fn ratio(records: &[Record], server: &str) -> Option<Spread> {
    let one_core = || records.iter().filter(|it| it.experiment == ONE_CORE);
    Spread::of(one_core().filter(|it| it.server == server).filter_map(|it| {
        let bare = one_core().find(|other| other.server == BARE && other.step == it.step)?;
        Some(it.server_cpu_s_per_100k? / bare.server_cpu_s_per_100k?)
    }))
}

/// How much the bare loop differs from itself within a round, in a sentence.
fn noise(records: &[Record]) -> Option<String> {
    let again = ratio(records, BARE_AGAIN)?;
    Some(format!(
        "the bare loop, measured again at the end of each round, cost {:.2} times what it had cost at \
         its beginning ({:.2} to {:.2}): what differs by less is noise",
        again.middle, again.least, again.most
    ))
}

/// The answer to the experiment's question.
pub fn answer(records: &[Record]) -> String {
    let servers = lines(records, ONE_CORE);
    let servers = servers.iter().map(|it| it.server).filter(|it| it.starts_with("ch"));
    let costs: Vec<String> = servers
        .filter_map(|it| Some(format!("{} {:.2}", short(it), ratio(records, it)?.middle)))
        .collect();
    if costs.is_empty() {
        return "nothing was measured beside the bare loop".into();
    }
    format!("CPU time of an answer as a multiple of the bare loop's: {}", costs.join(", "))
}

/// What was seen, in sentences.
pub fn findings(records: &[Record]) -> Vec<String> {
    let least = ratio(records, BARE_LEAST).map(|it| {
        format!(
            "leaving the client with close alone costs {:.2} times what leaving it politely costs",
            it.middle
        )
    });
    let answer = (!records.is_empty()).then(|| answer(records));
    noise(records).into_iter().chain(least).chain(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(experiment: &str, server: &str, round: u32, cpu: f64) -> Record {
        Record {
            experiment: experiment.into(),
            server: server.into(),
            step: round,
            achieved_qps: 40_000.0,
            cores: Some(2),
            reactors: Some(1),
            server_cpu_s_per_100k: Some(cpu),
            client_cpu_s_per_100k: Some(2.0),
            ..Record::default()
        }
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        let rows = [
            row(ONE_CORE, BARE, 1, 1.0),
            row(ONE_CORE, "ch04", 1, 1.1),
            // A round in which everything took twice as long.
            row(ONE_CORE, BARE, 2, 2.0),
            row(ONE_CORE, "ch04", 2, 2.4),
            row(ONE_CORE, BARE_AGAIN, 2, 2.1),
            // A round that was ended before its bare loop.
            row(ONE_CORE, "ch04", 3, 9.0),
        ];
        let spread = ratio(&rows, "ch04").unwrap();
        assert!((spread.least - 1.1).abs() < 1e-9 && (spread.most - 1.2).abs() < 1e-9);
        assert_eq!(ratio(&rows, "ch05"), None);
        assert_eq!(
            answer(&rows),
            "CPU time of an answer as a multiple of the bare loop's: 04 1.20"
        );
        assert!(findings(&rows)[0].contains("cost 1.05 times what it had cost"));
        assert_eq!(answer(&rows[..1]), "nothing was measured beside the bare loop");
    }

    #[test]
    fn the_limit_is_who_has_no_time_left() {
        assert_eq!(limit(0.95, 0.8, 1, 2), "the server");
        assert_eq!(limit(0.5, 1.4, 2, 2), "all cores");
        assert_eq!(limit(0.1, 0.3, 1, 2), "neither");
    }

    #[test]
    fn the_tables_are_narrow_and_say_everything() {
        let rows = [
            row(ONE_CORE, BARE, 1, 0.9),
            row(ONE_CORE, "ch05", 1, 0.9),
            row(ALL_CORES, "ch05", 1, 1.3),
        ];
        let text = board(&rows);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{widest:?} columns:\n{text}");
        assert_eq!(text.lines().filter(|it| it.starts_with("  05")).count(), 2, "{text}");
        assert_eq!(board(&[]), "");
    }
}
