//! What is shown of a part, and the answer to its question.

use super::{
    Part,
    parts::{BASELINE, BASELINE_AGAIN, MODELS},
    row::Row,
};
use std::fmt::Write;

/// A column of a board: its title, its width, how a group of equal rows fills it, and what it says.
type Column = (&'static str, usize, fn(&[&Row]) -> String, &'static str);

const RATE: Column = (
    "answers/s",
    11,
    |rows| whole(median(rows, |it| Some(it.answers_per_s))),
    "right answers in a second, of all connections together",
);
const SERVER: Column = (
    "server CPU s/M",
    15,
    |rows| decimal(median(rows, |it| it.server_cpu_s_per_million)),
    "CPU seconds of the server for a million answers",
);
const CLIENT: Column = (
    "client CPU s/M",
    15,
    |rows| decimal(median(rows, |it| it.client_cpu_s_per_million)),
    "CPU seconds of the load generator for a million answers",
);
const MEAN: Column = (
    "mean ms",
    9,
    |rows| decimal(median(rows, |it| it.mean_ms)),
    "mean latency of what was answered",
);
const P50: Column = (
    "p50 ms",
    8,
    |rows| decimal(median(rows, |it| it.p50_ms)),
    "half of the answers took at most this",
);
const P999: Column = (
    "p99.9 ms",
    10,
    |rows| decimal(median(rows, |it| it.p999_ms)),
    "99.9 of 100 answers took at most this",
);
const LONGEST: Column = (
    "longest ms",
    11,
    |rows| whole(most(rows, |it| it.longest_wait_ms)),
    "the longest that any connection waited, one that was never answered included",
);
const STARVED: Column = (
    "starved",
    8,
    |rows| whole(most(rows, |it| Some(it.starved as f64))),
    "connections without any answer",
);
const LOST: Column = (
    "lost",
    8,
    |rows| whole(most(rows, |it| Some(it.lost as f64))),
    "requests without a right answer",
);
const CALLS: Column = (
    "calls/answer",
    13,
    |rows| decimal(median(rows, |it| it.calls_per_answer)),
    "system calls of the server for an answer",
);
const RESIDENT: Column = (
    "RSS MiB",
    8,
    |rows| mebibytes(rows, |it| it.resident_bytes.map(|it| it as f64)),
    "resident memory of all its processes, a page that two share counted twice",
);
const SHARED_OUT: Column = (
    "PSS MiB",
    8,
    |rows| mebibytes(rows, |it| it.proportional_bytes.map(|it| it as f64)),
    "the same, such a page divided between them",
);
const STACKS: Column = (
    "stacks MiB",
    10,
    |rows| mebibytes(rows, |it| it.kernel_stack_bytes.map(|it| it as f64)),
    "stacks of threads in the kernel",
);
const TABLES: Column = (
    "tables MiB",
    10,
    |rows| mebibytes(rows, |it| it.page_table_bytes.map(|it| it as f64)),
    "page tables of all its processes",
);
const SLAB: Column = (
    "slab MiB",
    9,
    |rows| mebibytes(rows, |it| it.slab_bytes.map(|it| it as f64)),
    "the kernel's objects, the clients' sockets among them",
);
const IN: Column = (
    "answered",
    9,
    |rows| whole(median(rows, |it| it.idle_answered.map(|it| it as f64))),
    "idle connections that were answered once before they fell silent (it stops asking after some in vain)",
);

/// The whole board of a part: a table for each load.
pub fn of(part: Part, rows: &[Row]) -> String {
    let columns: &[Column] = match part {
        Part::Quick | Part::Capacity => {
            &[RATE, SERVER, CLIENT, MEAN, P999, LONGEST, STARVED, RESIDENT]
        }
        Part::Latency => &[RATE, P50, P999, LONGEST, STARVED, LOST],
        Part::C10k => &[IN, RATE, LOST, STARVED, RESIDENT, SHARED_OUT, STACKS, TABLES, SLAB],
        Part::Syscalls => &[CALLS, RATE],
        Part::Scaling | Part::Peers => &[RATE, SERVER, CLIENT, P999, STARVED],
        Part::Client | Part::Profile => &[RATE, CLIENT],
    };
    let mut text = String::new();
    for load in in_order(rows, |it| &it.load) {
        let of_load: Vec<&Row> = rows.iter().filter(|it| it.load == load).collect();
        // Writing to a string cannot fail.
        let _ = write!(text, "{load:<26}");
        for (title, width, ..) in columns {
            let _ = write!(text, " {title:>width$}");
        }
        text.push('\n');
        for server in in_order_of(&of_load, |it| &it.server) {
            let of_server: Vec<&Row> =
                of_load.iter().copied().filter(|it| it.server == server).collect();
            let _ = write!(text, "  {server:<24}");
            for (_, width, fill, _) in columns {
                let _ = write!(text, " {:>width$}", fill(&of_server));
            }
            text.push('\n');
        }
        text.push('\n');
    }
    for (title, _, _, says) in columns {
        let _ = writeln!(text, "  {title:<16} {says}");
    }
    text
}

/// The answer in a sentence, from what was measured; empty where it is missing.
pub fn answer(part: Part, rows: &[Row]) -> String {
    let cost = |row: &Row| row.server_cpu_s_per_million;
    let best = |load: &str, value: fn(&Row) -> Option<f64>| {
        let of_load: Vec<&Row> = rows.iter().filter(|it| it.load == load).collect();
        let of = |name: &'static str| {
            let of_name: Vec<&Row> =
                of_load.iter().copied().filter(|it| it.server == name).collect();
            median(&of_name, value).map(|it| (name, it))
        };
        MODELS.into_iter().filter_map(of).min_by(|one, other| one.1.total_cmp(&other.1))
    };
    let sentence = match part {
        Part::Quick | Part::Capacity => best("64 connections", cost).map(|(name, cost)| {
            let starving = |name: &&str| {
                let of = |it: &Row| it.server == *name && it.load == "64 connections";
                rows.iter().any(|it| of(it) && it.starved > 0)
            };
            let starving: Vec<&str> = MODELS.into_iter().filter(starving).collect();
            let who = match &starving[..] {
                [] => "nobody starves".to_owned(),
                [one] => format!("{one} lets somebody starve"),
                some => format!("{} let somebody starve", some.join(", ")),
            };
            format!("{name} spends least CPU time for an answer ({cost:.2} s a million); {who}")
        }),
        Part::Syscalls => best("64 connections", |it| it.calls_per_answer)
            .map(|(name, calls)| format!("{name} makes fewest: {calls:.3} for an answer")),
        Part::Peers => ratio(rows, "io-uring", "nginx")
            .zip(ratio(rows, "multireactor", "nginx"))
            .map(|(ring, reactor)| {
                format!(
                    "io-uring takes {ring:.2} of nginx's CPU time for an answer, one reactor \
                     {reactor:.2}"
                )
            }),
        Part::Client => beside_wrk(rows, |it| it.client_cpu_s_per_million, |_| true)
            .zip(beside_wrk(rows, |it| Some(it.answers_per_s), |it| it.cores == 2))
            .map(|(cost, rate)| {
                format!(
                    "stress takes {cost:.2} of wrk's CPU time for an answer, and hears {rate:.2} of its \
                     answers of a server that is the limit"
                )
            }),
        Part::Latency | Part::C10k | Part::Scaling | Part::Profile => None,
    };
    sentence.unwrap_or_default()
}

/// What the baseline at both ends of a round differs by.
pub fn findings(rows: &[Row]) -> Vec<String> {
    let pairs: Vec<f64> = rows
        .iter()
        .filter(|it| it.server == BASELINE_AGAIN)
        .filter_map(|again| {
            let first = rows.iter().find(|it| {
                it.server == BASELINE && it.seed == again.seed && it.load == again.load
            })?;
            Some(again.server_cpu_s_per_million? / first.server_cpu_s_per_million?)
        })
        .collect();
    let (Some(least), Some(most)) = (
        pairs.iter().copied().min_by(f64::total_cmp),
        pairs.iter().copied().max_by(f64::total_cmp),
    ) else {
        return Vec::new();
    };
    vec![format!(
        "the baseline, measured again at the end of its round, took {least:.2} to {most:.2} of the CPU \
         time that it took at the start: a smaller difference between two models is noise"
    )]
}

/// The median over the rounds of what `one` costs over what `other` costs in the same round.
fn ratio(rows: &[Row], one: &str, other: &str) -> Option<f64> {
    let cost = |name: &str, seed: u64| {
        let found = rows.iter().find(|it| it.server == name && it.seed == seed && it.step == 1);
        found?.server_cpu_s_per_million
    };
    let seeds = rows.iter().filter(|it| it.server == one && it.step == 1).map(|it| it.seed);
    middle(seeds.filter_map(|seed| Some(cost(one, seed)? / cost(other, seed)?)).collect())
}

/// The median of what `stress` has over what wrk has of the same server in the same round, of those rows that
/// `is_meant`.
fn beside_wrk(
    rows: &[Row],
    value: fn(&Row) -> Option<f64>,
    is_meant: fn(&Row) -> bool,
) -> Option<f64> {
    let theirs = |of: &Row| {
        let same = |it: &&Row| it.server == "wrk" && it.seed == of.seed && it.load == of.load;
        rows.iter().find(same).and_then(value)
    };
    let ours = rows.iter().filter(|it| it.server == "stress" && is_meant(it));
    middle(ours.filter_map(|it| Some(value(it)? / theirs(it)?)).collect())
}

fn in_order(rows: &[Row], key: fn(&Row) -> &str) -> Vec<&str> {
    in_order_of(&rows.iter().collect::<Vec<_>>(), key)
}

/// Each value of `key` once, in the order in which they come.
fn in_order_of<'a>(rows: &[&'a Row], key: fn(&Row) -> &str) -> Vec<&'a str> {
    let mut keys: Vec<&str> = Vec::new();
    for row in rows {
        if !keys.contains(&key(row)) {
            keys.push(key(row));
        }
    }
    keys
}

fn median(rows: &[&Row], value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
    middle(rows.iter().filter_map(|row| value(row)).collect())
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (first, second) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[first] + values[second]) / 2.0)
}

fn most(rows: &[&Row], value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
    rows.iter().filter_map(|row| value(row)).max_by(f64::total_cmp)
}

fn mebibytes(rows: &[&Row], value: impl Fn(&Row) -> Option<f64>) -> String {
    median(rows, value).map_or_else(none, |it| format!("{:.1}", it / 1_048_576.0))
}

fn whole(value: Option<f64>) -> String {
    value.map_or_else(none, |it| format!("{it:.0}"))
}

fn decimal(value: Option<f64>) -> String {
    value.map_or_else(none, |it| format!("{it:.3}"))
}

fn none() -> String {
    "–".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &str, seed: u64, cost: f64) -> Row {
        Row {
            server: server.into(),
            load: "64 connections".into(),
            seed,
            step: 1,
            answers_per_s: 1e6 / cost,
            server_cpu_s_per_million: Some(cost),
            starved: u64::from(server == "iterative") * 63,
            ..Row::default()
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let rows = [
            row("nginx", 1, 4.0),
            row("io-uring", 1, 2.0),
            row("multireactor", 1, 3.0),
            row("nginx", 2, 8.0),
            row("io-uring", 2, 4.0),
            row("multireactor", 2, 6.0),
        ];
        assert_eq!(
            answer(Part::Peers, &rows),
            "io-uring takes 0.50 of nginx's CPU time for an answer, one reactor 0.75"
        );
        assert_eq!(answer(Part::Peers, &rows[..2]), "");
    }

    #[test]
    fn stress_is_held_against_wrk_with_the_same_server() {
        let duel = |server: &str, cores, answers_per_s, cost| Row {
            server: server.into(),
            load: if cores == 2 { "haproxy apart" } else { "nginx" }.into(),
            cores,
            answers_per_s,
            client_cpu_s_per_million: Some(cost),
            ..Row::default()
        };
        let rows = [
            duel("wrk", 1, 100.0, 4.0),
            duel("stress", 1, 130.0, 2.0),
            duel("wrk", 2, 200.0, 5.0),
            duel("stress", 2, 190.0, 4.0),
        ];
        assert_eq!(
            answer(Part::Client, &rows),
            "stress takes 0.65 of wrk's CPU time for an answer, and hears 0.95 of its answers of a \
             server that is the limit"
        );
        assert_eq!(answer(Part::Client, &rows[..2]), "", "no server was the limit");
    }

    #[test]
    fn a_board_has_each_server_once_and_says_who_starves() {
        let rows = [
            row("iterative", 1, 2.0),
            row("epoll-level", 1, 3.0),
            row("epoll-level-again", 1, 3.3),
            row("iterative", 2, 2.2),
        ];
        insta::assert_snapshot!(of(Part::Capacity, &rows) + &answer(Part::Capacity, &rows));
        assert_eq!(findings(&rows).len(), 1);
        assert!(findings(&rows)[0].contains("1.10 to 1.10"), "{}", findings(&rows)[0]);
    }

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        assert_eq!(middle(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(middle(vec![]), None);
    }
}
