//! Several runs of one staircase, as one: for the scoreboard and the chart. The record keeps each by itself.

use crate::records::Record;

/// What the words of the scoreboard mean when there were several runs.
pub const DEFINITION: &str = "\
several    of several runs the answered and the scheduled are added up, and p50 and p99 are the middle one;
           the record has each of them, and the book draws the least and the greatest
";

/// The rows that differ in nothing but the run, each as one row. Requests are added up; of latencies it is
/// the middle one, of those runs in which anybody was answered, and the longest is the longest of all.
pub fn as_one(records: &[Record]) -> Vec<Record> {
    let mut groups: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let is_same = |it: &&mut Vec<&Record>| it.first().is_some_and(|it| is_repeat(it, record));
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(record),
            None => groups.push(vec![record]),
        }
    }
    groups.iter().filter_map(|group| one(group)).collect()
}

/// Whether they differ in nothing but the run. Without a seed, each is by itself.
fn is_repeat(one: &Record, other: &Record) -> bool {
    let place = |it: &Record| (it.experiment.clone(), it.server.clone(), it.stall.clone(), it.step);
    one.seed.is_some() && other.seed.is_some() && place(one) == place(other)
}

fn one(group: &[&Record]) -> Option<Record> {
    let first = *group.first()?;
    let sum = |of: fn(&Record) -> u64| group.iter().map(|it| of(it)).sum();
    let middle = |of: fn(&Record) -> Option<f64>| middle(group.iter().filter_map(|it| of(it)));
    Some(Record {
        achieved_qps: middle(|it| Some(it.achieved_qps))?,
        scheduled: sum(|it| it.scheduled),
        correct: sum(|it| it.correct),
        wrong: sum(|it| it.wrong),
        errors: sum(|it| it.errors),
        p50_ms: middle(|it| it.p50_ms),
        p90_ms: middle(|it| it.p90_ms),
        p99_ms: middle(|it| it.p99_ms),
        max_ms: group.iter().filter_map(|it| it.max_ms).max_by(f64::total_cmp),
        client_bound: group.iter().any(|it| it.client_bound),
        ..first.clone()
    })
}

/// The one in the middle; of an even number, the mean of both.
fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seed: Option<u64>, step: u32, correct: u64, p50_ms: Option<f64>) -> Record {
        Record {
            experiment: "race-staircase".into(),
            seed,
            step,
            scheduled: 100,
            correct,
            p50_ms,
            max_ms: p50_ms.map(|it| 2.0 * it),
            client_bound: seed == Some(2),
            ..Record::default()
        }
    }

    #[test]
    fn runs_are_added_up_step_by_step() {
        let rows = [
            row(Some(1), 1, 100, Some(1.0)),
            row(Some(1), 2, 90, Some(9.0)),
            row(Some(2), 1, 98, Some(5.0)),
            row(Some(2), 2, 0, None),
            row(Some(3), 1, 99, Some(2.0)),
        ];
        let one = as_one(&rows);
        assert_eq!(one.len(), 2);
        assert_eq!((one[0].scheduled, one[0].correct), (300, 297));
        assert_eq!((one[0].p50_ms, one[0].max_ms), (Some(2.0), Some(10.0)));
        assert!(one[0].client_bound);
        // Nobody answered is no latency.
        assert_eq!((one[1].scheduled, one[1].p50_ms), (200, Some(9.0)));
    }

    #[test]
    fn one_run_stays_as_it_is_and_rounds_without_a_seed_are_not_mixed() {
        let rows = [row(Some(1), 1, 7, None), row(None, 1, 8, None), row(None, 1, 9, None)];
        assert_eq!(as_one(&rows), rows);
    }

    #[test]
    fn the_middle_of_two_is_between_them() {
        assert_eq!(middle([4.0, 1.0].into_iter()), Some(2.5));
        assert_eq!(middle(std::iter::empty()), None);
    }
}
