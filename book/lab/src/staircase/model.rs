//! What the link allows: its packets per second, divided by the packets that a request takes.
//!
//! Both numbers are taken from the run itself. Where 04 fails nobody, nothing is sent twice but what the
//! link's dice have lost, and the packets divided by the requests are those of a request. Where the queue
//! of the link overflows, what gets through in a second is the link's budget.

use crate::{
    race::{KINDS, scoreboard::Tally},
    records::{Record, round},
    servers::short,
};
use contract::verdicts::Column;

/// The server that only the link stops.
const LIMITED: &str = "ch04";

/// What 01 and 02 must at least end below 04, in points of a percentage.
const SAFE_POINTS: f64 = 20.0;

/// What one run of 04 says of its link.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Packets of a request, both ways.
    pub packets_per_request: f64,
    /// Packets that the link carries in a second, both ways.
    pub packets_per_second: f64,
    /// The highest rate that it climbed, see [`Tally::climbed_qps`].
    pub sustained_qps: f64,
    /// The rates that were tried.
    pub steps_qps: Vec<f64>,
}

impl Limit {
    /// From the rows of one run. `None` if it climbed no step, or never filled the link.
    pub fn of(rows: &[Record]) -> Option<Limit> {
        let first = rows.first()?;
        let tally = Tally::of(rows, &first.server, &first.stall)?;
        let sustained_qps = tally.climbed_qps?;
        let (mut packets, mut requests, mut most) = (0, 0, 0.0_f64);
        let mut was_full = false;
        for row in rows {
            let (all, full) = (row.link_packets?, row.dropped_full?);
            if row.target_qps <= sustained_qps {
                packets += all - full;
                requests += row.scheduled;
            }
            was_full |= full > 0;
            most = most.max((all - full) as f64 / row.hold_s);
        }
        let mut rates: Vec<f64> = rows.iter().map(|row| row.target_qps).collect();
        rates.sort_by(f64::total_cmp);
        (was_full && requests > 0).then(|| Limit {
            packets_per_request: round(packets as f64 / requests as f64),
            packets_per_second: round(most),
            sustained_qps,
            steps_qps: rates,
        })
    }

    /// The rate that the link allows.
    pub fn predicted_qps(&self) -> f64 {
        self.packets_per_second / self.packets_per_request
    }

    /// Whether what was sustained is within one step of it: the highest step that the link allows, the
    /// one below (near the limit a lost packet more loses a client), or the one above.
    pub fn holds(&self) -> bool {
        let place = |rate: f64| self.steps_qps.iter().filter(|it| **it <= rate).count();
        place(self.sustained_qps).abs_diff(place(self.predicted_qps())) <= 1
    }

    fn sentence(&self) -> String {
        format!(
            "{:.0} packets per second ÷ {:.1} packets per request = {:.0} requests per second; sustained: {}",
            self.packets_per_second,
            self.packets_per_request,
            self.predicted_qps(),
            self.sustained_qps
        )
    }
}

/// The runs of `server`, by what its stalled clients do and by seed.
pub fn runs(records: &[Record], server: &str) -> Vec<Vec<Record>> {
    let mut runs: Vec<Vec<Record>> = Vec::new();
    for record in records.iter().filter(|it| it.server == server) {
        let same = |run: &&mut Vec<Record>| {
            run.first().is_some_and(|it| it.stall == record.stall && it.seed == record.seed)
        };
        match runs.iter_mut().find(same) {
            Some(run) => run.push(record.clone()),
            None => runs.push(vec![record.clone()]),
        }
    }
    runs
}

/// What each run of 04 says of the link, a sentence each.
pub fn findings(records: &[Record]) -> Vec<String> {
    let sentence =
        |run: &Vec<Record>| Some(format!("{}: {}", name(run)?, Limit::of(run)?.sentence()));
    runs(records, LIMITED).iter().filter_map(sentence).collect()
}

fn name(run: &[Record]) -> Option<String> {
    let first = run.first()?;
    let seed = first.seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
    Some(format!("{}, {} clients{seed}", short(&first.server), first.stall))
}

/// A sentence on the runs whose link was late each time, if there are any.
pub fn spoiled(records: &[Record]) -> Option<String> {
    let spoiled: std::collections::BTreeSet<_> = records
        .iter()
        .filter(|it| it.spoiled == Some(true))
        .map(|it| (&it.server, &it.stall, it.seed))
        .collect();
    (!spoiled.is_empty()).then(|| {
        let runs = match spoiled.len() {
            1 => "one run is spoiled".to_owned(),
            several => format!("{several} runs are spoiled"),
        };
        format!(
            "{runs}: the machine was too busy for the link or the clients (column `spoiled`); let fewer go on \
             at once (--side-by-side)"
        )
    })
}

/// What is safe to say of any machine and does not hold, a sentence each.
pub fn broken_expectations(records: &[Record], servers: &[Column]) -> Vec<String> {
    let mut broken = Vec::new();
    if !servers.iter().any(|it| it.name == LIMITED) {
        return broken;
    }
    let best_runs = runs(records, LIMITED);
    for best in &best_runs {
        let (Some(name), Some(first)) = (name(best), best.first()) else { continue };
        match Limit::of(best) {
            Some(limit) if limit.holds() => {}
            Some(limit) => broken.push(format!(
                "{name}: should sustain what the link allows, within one step: {}",
                limit.sentence()
            )),
            None => broken.push(format!(
                "{name}: the link was never full, or the first step failed: it says nothing of the link"
            )),
        }
        if !KINDS.iter().any(|kind| kind.name() == first.stall) {
            continue; // Who never reads the answer keeps nobody waiting.
        }
        let percent = |rows: &[Record]| {
            Tally::of(rows, &rows.first()?.server, &first.stall).map(|it| it.percent())
        };
        let Some(most) = percent(best) else { continue };
        for server in
            ["ch01", "ch02"].into_iter().filter(|it| servers.iter().any(|c| c.name == *it))
        {
            let same = |run: &&Vec<Record>| {
                run.first().is_some_and(|it| it.stall == first.stall && it.seed == first.seed)
            };
            match runs(records, server).iter().find(same).and_then(|run| percent(run)) {
                Some(percent) if percent <= most - SAFE_POINTS => {}
                Some(percent) => broken.push(format!(
                    "{} should end {SAFE_POINTS} points below {name}, and answered {percent:.1} % to its \
                     {most:.1} %",
                    short(server)
                )),
                None => broken.push(format!("{} was not measured beside {name}", short(server))),
            }
        }
    }
    if best_runs.is_empty() {
        broken.push("there is no 04 to hold the others to".into());
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of 04 that answers nearly everybody up to `sustained`, across a link of 2,150 packets per second.
    fn run(sustained: f64) -> Vec<Record> {
        let row = |target_qps: f64| {
            let scheduled = (target_qps * 3.0) as u64;
            let offered = scheduled * 10;
            let errors = if target_qps > sustained { scheduled / 20 } else { scheduled / 200 };
            Record {
                server: LIMITED.into(),
                stall: "silent".into(),
                seed: Some(1),
                target_qps,
                hold_s: 3.0,
                scheduled,
                correct: scheduled - errors,
                errors,
                link_packets: Some(offered),
                dropped_full: Some(offered.saturating_sub(2_150 * 3)),
                ..Record::default()
            }
        };
        [110.0, 160.0, 210.0, 260.0, 310.0].map(row).to_vec()
    }

    #[test]
    fn the_limit_is_the_links_packets_by_those_of_a_request() {
        let limit = Limit::of(&run(210.0)).unwrap();
        assert_eq!(limit.packets_per_request, 10.0);
        assert_eq!(limit.packets_per_second, 2_150.0);
        assert_eq!(limit.predicted_qps(), 215.0);
    }

    #[test]
    fn within_a_step_is_the_step_below_the_limit_or_its_neighbour() {
        let holds = |sustained| Limit::of(&run(sustained)).unwrap().holds();
        assert_eq!([110.0, 160.0, 210.0, 260.0].map(holds), [false, true, true, true]);
        // One step more is two beyond the highest that the link allows.
        assert!(!Limit { sustained_qps: 310.0, ..Limit::of(&run(260.0)).unwrap() }.holds());
    }

    #[test]
    fn a_link_that_was_never_full_says_nothing() {
        let mut rows = run(210.0);
        rows.iter_mut().for_each(|it| it.dropped_full = Some(0));
        assert_eq!(Limit::of(&rows), None);
    }

    #[test]
    fn a_spoiled_run_is_told_once() {
        let mut rows = run(210.0);
        assert_eq!(spoiled(&rows), None);
        rows.iter_mut().for_each(|it| it.spoiled = Some(true));
        assert!(spoiled(&rows).unwrap().starts_with("one run is spoiled: "));
    }

    #[test]
    fn servers_that_end_close_to_04_are_told() {
        let best = run(210.0);
        let as_server = |name: &str, percent: u64| -> Vec<Record> {
            let poor = |it: &Record| {
                let correct = it.scheduled * percent / 100;
                let errors = it.scheduled - correct;
                Record { server: name.into(), correct, errors, ..it.clone() }
            };
            best.iter().map(poor).collect()
        };
        let all = |of_02| [best.clone(), as_server("ch01", 1), as_server("ch02", of_02)].concat();
        let servers: Vec<Column> = contract::verdicts::columns().collect();
        assert_eq!(broken_expectations(&all(30), &servers), [""; 0]);
        assert_eq!(broken_expectations(&all(90), &servers).len(), 1);
    }
}
