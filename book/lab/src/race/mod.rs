//! The race: every server meets one stalled client, then a staircase of load with some of them in it.
//!
//! [`stalled`] is the first part, [`staircase`] the second; [`scoreboard`] and [`chart`] show both, of
//! several runs as [`repeats`] makes one of them.

pub mod chart;
pub mod repeats;
pub mod scoreboard;
pub mod staircase;
pub mod stalled;

use crate::{
    binaries::Binary,
    drive::Run,
    experiment::{Bench, Experiment, Form, Outcome, Scale},
    records::{Noise, Record, Table},
    servers::short,
};
use anyhow::Result;
use contract::verdicts::Column;
use scoreboard::Tally;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use staircase::Job;
use stalled::Demonstration;
use std::{sync::atomic::Ordering, time::Duration};
use stress::StallKind;

/// The share of clients that stall in the staircases: of 200 requests, one is followed by such a client.
pub const STALL_SHARE: f64 = 0.005;

/// The two kinds that tell the chapters apart, in the order of the story.
pub const KINDS: [StallKind; 2] = [StallKind::Silent, StallKind::HalfLine];

/// Beside others, so much less answered (in points of a percentage) is a disturbance. 02 varies by more
/// from run to run.
const DISTURBED_POINTS: f64 = 2.0;
/// Beside others, a median latency above twice the one alone is a disturbance, if it is this much more.
const DISTURBED_MS: f64 = 2.0;

/// What 01 and 02 must at least end below 04, in points of a percentage, on any machine.
const SAFE_POINTS: f64 = 20.0;

/// `cargo lab race`
///
/// Simplified: with `repeats` it is the staircases that are repeated. The stalled client is there to be read
/// about, and is met once; the baseline is repeated by itself.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    /// How often each server climbs the staircase with each kind of stalled client.
    pub repeats: u64,
}

impl Race {
    /// As short as it gets.
    pub const ONCE: Race = Race { repeats: 1 };
}

impl Experiment for Race {
    fn name(&self) -> &'static str {
        "race"
    }

    fn question(&self) -> &'static str {
        "Which servers go on serving while a few of their clients stall?"
    }

    fn prediction(&self) -> &'static str {
        "01 and 02 fall, 03 falls when clients stop in the middle of a line, 04 to 06 answer everybody."
    }

    fn parameters(&self) -> Value {
        json!({ "repeats": self.repeats })
    }

    fn scale(&self, form: Form) -> Scale {
        match form {
            Form::Smoke => Scale::smoke(),
            Form::Short => Scale::short(),
            Form::Full => Scale::full(),
        }
    }

    fn about(&self, scale: &Scale, servers: usize) -> Duration {
        let demonstrations = stalled::LONGEST * (KINDS.len() * servers) as u32 / 2;
        let baseline = scale.hold * (2 + servers.div_ceil(scale.side_by_side)) as u32;
        let runs = self.repeats as usize * KINDS.len() * servers;
        let staircases = scale.staircase_length() * runs.div_ceil(scale.side_by_side) as u32;
        if scale.baseline {
            demonstrations + baseline + staircases
        } else {
            stalled::LONGEST * KINDS.len() as u32 + staircases
        }
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let mut race = Running {
            bench,
            repeats: self.repeats,
            outcome: Outcome::default(),
            records: Vec::new(),
            demonstrations: Vec::new(),
        };
        race.meet_one_stalled_client();
        let side_by_side = race.choose_side_by_side();
        race.climb(side_by_side);
        race.finish()
    }
}

/// The runs without stalled clients, as the journal keeps them.
#[derive(Serialize, Deserialize)]
struct Baseline {
    records: Vec<Record>,
    findings: Vec<String>,
    noise: Noise,
}

struct Running<'a> {
    bench: &'a Bench<'a>,
    repeats: u64,
    outcome: Outcome,
    records: Vec<Record>,
    demonstrations: Vec<Demonstration>,
}

impl<'a> Running<'a> {
    /// One stalled client per server and kind. One after the other, to be read; all at once where
    /// nobody reads.
    fn meet_one_stalled_client(&mut self) {
        let bench = self.bench;
        bench.screen.say("\nOne client stalls. How long does the next one wait?");
        let at_once = if bench.scale.baseline { 1 } else { bench.servers.len().max(1) };
        for kind in KINDS {
            let part = |server: &Binary| format!("{} meets one {kind}", server.column.name);
            let mut shown: Vec<Option<Demonstration>> =
                bench.servers.iter().map(|it| bench.journal.get(&part(it))).collect();
            for some in open(&shown).chunks(at_once) {
                if self.stopped() {
                    break;
                }
                let servers: Vec<Binary> =
                    some.iter().map(|&at| bench.servers[at].clone()).collect();
                for (&at, one) in some.iter().zip(stalled::demonstrate_all(bench, &servers, kind)) {
                    match one {
                        // Who has had enough has let the stalled client go early: that is no finding.
                        Ok(_) if self.stopped() => {}
                        Ok(one) => {
                            bench.screen.say(&format!("  {}", one.sentence()));
                            self.keep(&part(&bench.servers[at]), &one);
                            shown[at] = Some(one);
                        }
                        Err(error) => self.lack(format!("{error:#}")),
                    }
                }
            }
            for one in shown.into_iter().flatten() {
                self.outcome.findings.push(one.sentence());
                self.records.push(one.record());
                self.demonstrations.push(one);
            }
        }
    }

    /// How many servers may be driven at once: as many as the scale says, fewer if descriptors do not
    /// suffice, and fewer if a server is seen to suffer from its neighbours. 0 if nothing can run.
    fn choose_side_by_side(&mut self) -> usize {
        let Bench { scale, machine, screen, servers, .. } = *self.bench;
        let each = staircase::descriptors(scale);
        let possible = machine.runs_at_once(scale.side_by_side, each);
        if possible == 0 {
            self.fail(format!(
                "too few descriptors for the staircase: it may hold {each} connections at once, and \
                 RLIMIT_NOFILE is {}: allow more (ulimit -Hn {}, as root)",
                machine.descriptors_max,
                each + 1_000,
            ));
        } else if possible < scale.side_by_side {
            screen.say(&format!(
                "{} descriptors suffice for {possible} at a time, not for {}: it takes longer",
                machine.descriptors_max, scale.side_by_side
            ));
        }
        let Some(last) = servers.last().filter(|_| scale.baseline && possible > 0) else {
            return possible;
        };
        screen.say(
            "\nNobody stalls. Do the servers answer everybody, and do they disturb each other?",
        );
        let Some(mut noise) = self.baseline(last, possible) else {
            self.outcome.missing += 1;
            return possible.min(1);
        };
        noise.side_by_side = match disturbed(&noise) {
            None => 1,
            Some(true) => possible.min(servers.len().div_ceil(4)),
            Some(false) => possible,
        };
        screen.say(&format!("  {}", noise_sentence(&noise)));
        let chosen = noise.side_by_side;
        self.outcome.findings.push(noise_sentence(&noise));
        self.outcome.noise = Some(noise);
        chosen
    }

    /// The highest step without stalled clients: the last server alone, twice, and then every server
    /// beside others.
    fn baseline(&mut self, last: &Binary, at_once: usize) -> Option<Noise> {
        const PART: &str = "the baseline";
        let bench = self.bench;
        if let Some(Baseline { records, findings, noise }) = bench.journal.get(PART) {
            self.records.extend(records);
            self.outcome.findings.extend(findings);
            return Some(noise);
        }
        let (rows, found) = (self.records.len(), self.outcome.findings.len());
        let lacks = self.outcome.missing;
        let job = |server, step| Job {
            server,
            kind: None,
            name: "race-baseline-alone",
            seed: None,
            first_step: step,
        };
        let mut alone = Vec::new();
        for step in [1, 2] {
            let runs = self.run_jobs(&[job(last, step)]);
            alone.extend(runs.into_iter().flatten());
        }
        let beside: Vec<Job<'_>> = bench
            .servers
            .iter()
            .map(|server| Job { name: "race-baseline-beside", ..job(server, 1) })
            .collect();
        let mut together = Vec::new();
        for jobs in beside.rchunks(at_once) {
            let runs = self.run_jobs(jobs);
            let had_company = runs.iter().flatten().count() > 1;
            together.extend(runs.into_iter().flatten().filter(|_| had_company));
        }
        // In the order in which they were made.
        for run in alone.iter().chain(&together) {
            self.add(run);
        }
        let alone: Vec<Record> = alone.into_iter().flat_map(|run| run.records).collect();
        let mut together = together.into_iter().flat_map(|run| run.records);
        let beside = together.find(|record| record.server == last.column.name);
        let first = alone.first()?;
        let noise = Noise {
            server: first.server.clone(),
            qps: first.target_qps,
            alone_percent: alone.iter().map(Record::success_percent).collect(),
            alone_p50_ms: alone.iter().filter_map(|record| record.p50_ms).collect(),
            alone_p99_ms: alone.iter().filter_map(|record| record.p99_ms).collect(),
            beside_percent: beside.as_ref().map(Record::success_percent),
            beside_p50_ms: beside.as_ref().and_then(|record| record.p50_ms),
            beside_p99_ms: beside.as_ref().and_then(|record| record.p99_ms),
            side_by_side: 0,
        };
        if self.outcome.missing == lacks && !self.stopped() {
            let records = self.records[rows..].to_vec();
            let findings = self.outcome.findings[found..].to_vec();
            self.keep(PART, &Baseline { records, findings, noise: noise.clone() });
        }
        Some(noise)
    }

    /// The staircases, some at a time. On a second start those that are left may have other company than
    /// they would have had: the baseline has shown that it does not matter.
    fn climb(&mut self, at_once: usize) {
        let Bench { scale, screen, journal, .. } = *self.bench;
        if at_once == 0 || self.stopped() {
            return;
        }
        let times =
            if self.repeats > 1 { format!(", {} times", self.repeats) } else { String::new() };
        screen.say(&format!(
            "\nThe staircase{times}: {}, and {} % of the clients stall",
            scale.words(),
            STALL_SHARE * 100.0
        ));
        let jobs = self.staircases();
        let mut runs: Vec<Option<Run>> = jobs.iter().map(|job| journal.get(&job.part())).collect();
        for some in open(&runs).chunks(at_once) {
            let now: Vec<Job<'_>> = some.iter().map(|&at| jobs[at]).collect();
            for (&at, run) in some.iter().zip(self.run_jobs(&now)) {
                let Some(run) = run else { continue };
                screen.say(&format!("  {}", run.sentence()));
                if run.is_whole() {
                    self.keep(&jobs[at].part(), &run);
                }
                runs[at] = Some(run);
            }
        }
        for run in runs.iter().flatten() {
            self.add(run);
        }
    }

    /// Repeat by repeat, so that what is done when somebody has had enough is whole for some of them.
    fn staircases(&self) -> Vec<Job<'a>> {
        let bench = self.bench;
        let mut jobs = Vec::new();
        for repeat in 1..=self.repeats {
            for kind in KINDS {
                jobs.extend(bench.servers.iter().map(|server| Job {
                    server,
                    kind: Some(kind),
                    name: "race-staircase",
                    seed: Some(repeat),
                    first_step: 1,
                }));
            }
        }
        jobs
    }

    /// Runs `jobs` side by side, and says what failed of them: `None` for one that did not run at all, and
    /// nothing once the reader has had enough.
    fn run_jobs(&mut self, jobs: &[Job<'_>]) -> Vec<Option<Run>> {
        if self.stopped() {
            return Vec::new();
        }
        let mut runs = Vec::new();
        for result in staircase::run_all(self.bench, jobs) {
            match result {
                Ok(run) => {
                    if let Some(failure) = &run.failure {
                        self.lack(failure.clone());
                    }
                    runs.push(Some(run));
                }
                Err(error) => {
                    self.lack(format!("{error:#}"));
                    runs.push(None);
                }
            }
        }
        runs
    }

    /// Takes what a run has left into the record.
    fn add(&mut self, run: &Run) {
        self.records.extend(run.records.iter().cloned());
        self.outcome.findings.extend(run.warnings.iter().cloned());
    }

    /// Keeps what is done, for a second start.
    fn keep<T: Serialize>(&mut self, part: &str, done: &T) {
        if let Err(error) = self.bench.journal.keep(part, done) {
            self.fail(format!("{error:#}"));
        }
    }

    fn finish(mut self) -> Result<Outcome> {
        let Bench { scale, servers, .. } = *self.bench;
        let columns: Vec<Column> = servers.iter().map(|it| it.column).collect();
        self.outcome.table = Table::of(&self.records)?;
        let records = repeats::as_one(&self.records);
        self.outcome.scoreboard =
            scoreboard::scoreboard(&columns, &records, &self.demonstrations, scale);
        if self.repeats > 1 {
            self.outcome.scoreboard += repeats::DEFINITION;
        }
        self.outcome.answer = scoreboard::answer(&columns, &records, &self.demonstrations);
        self.outcome.chart = chart::chart(&columns, &records, scale);
        if scale.asserts && !self.stopped() {
            let broken = broken_expectations(&records, &columns);
            broken.into_iter().for_each(|sentence| self.fail(sentence));
        }
        Ok(self.outcome)
    }

    /// Notes what is left to be done, and why.
    fn lack(&mut self, sentence: String) {
        self.outcome.missing += 1;
        self.fail(sentence);
    }

    /// Notes what went wrong, once.
    fn fail(&mut self, sentence: String) {
        if !self.outcome.failures.contains(&sentence) {
            self.bench.screen.say(&format!("  {sentence}"));
        }
        self.outcome.fail(sentence);
    }

    fn stopped(&self) -> bool {
        self.bench.stop.load(Ordering::Relaxed)
    }
}

/// The places of those that are still to be done.
fn open<T>(done: &[Option<T>]) -> Vec<usize> {
    done.iter().enumerate().filter(|(_, it)| it.is_none()).map(|(at, _)| at).collect()
}

impl Scale {
    /// In words: steps, length, patience.
    pub fn words(&self) -> String {
        let rates: Vec<String> = self.rates.iter().map(f64::to_string).collect();
        format!(
            "{} requests per second, {} s each; a client waits {} s",
            rates.join(", "),
            self.hold.as_secs_f64(),
            self.timeout.as_secs_f64()
        )
    }
}

/// Whether a server suffers from its neighbours; `None` if that was not measured.
fn disturbed(noise: &Noise) -> Option<bool> {
    let least = noise.alone_percent.iter().copied().fold(f64::INFINITY, f64::min);
    let slowest = noise.alone_p50_ms.iter().copied().fold(0.0, f64::max);
    let fewer = noise.beside_percent? < least - DISTURBED_POINTS;
    // Nobody answered is no latency, and fewer answered than alone, unless nobody was alone either.
    let slower =
        noise.beside_p50_ms.is_some_and(|p50| p50 > 2.0 * slowest && p50 > slowest + DISTURBED_MS);
    Some(fewer || slower)
}

fn noise_sentence(noise: &Noise) -> String {
    let list = |values: &[f64]| {
        values.iter().map(|ms| scoreboard::ms(*ms)).collect::<Vec<_>>().join(" and then ")
    };
    let server = short(&noise.server);
    let percent = noise
        .alone_percent
        .iter()
        .map(|it| format!("{it:.1} %"))
        .collect::<Vec<_>>()
        .join(" and then ");
    let alone = format!(
        "{server} alone at {}/s, twice: {percent} answered, p50 {}, p99 {}",
        noise.qps,
        list(&noise.alone_p50_ms),
        list(&noise.alone_p99_ms)
    );
    let at_a_time = match noise.side_by_side {
        1 => "one server at a time".into(),
        some => format!("{some} at a time"),
    };
    match (noise.beside_percent, noise.beside_p50_ms, noise.beside_p99_ms) {
        (Some(percent), Some(p50), Some(p99)) => format!(
            "{alone}; beside others: {percent:.1} %, {}, {}. So: {at_a_time}",
            scoreboard::ms(p50),
            scoreboard::ms(p99)
        ),
        (Some(percent), ..) => format!("{alone}; beside others: {percent:.1} %. So: {at_a_time}"),
        _ => format!("{alone}. So: {at_a_time}"),
    }
}

/// What is safe to say of any machine and does not hold in `records`, a sentence each. 02 varies a
/// lot from run to run, and so may come out below 01: their order is not asserted.
fn broken_expectations(records: &[Record], servers: &[Column]) -> Vec<String> {
    let mut broken = Vec::new();
    let takes_part = |server: &str| servers.iter().any(|it| it.name == server);
    for kind in KINDS.into_iter().filter(|_| takes_part("ch04")) {
        let percent = |server| Some(Tally::of(records, server, kind.name())?.percent());
        let Some(best) = percent("ch04") else {
            broken.push(format!("with {kind} clients there is no 04 to hold the others to"));
            continue;
        };
        for server in ["ch01", "ch02"].into_iter().filter(|it| takes_part(it)) {
            match percent(server) {
                Some(percent) if percent <= best - SAFE_POINTS => {}
                Some(percent) => broken.push(format!(
                    "{} should end {SAFE_POINTS} points below 04 with {kind} clients, and answered \
                     {percent:.1} % to the {best:.1} % of 04",
                    short(server),
                )),
                None => {
                    broken.push(format!("{} was not measured with {kind} clients", short(server)))
                }
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::verdicts::CHAPTERS;

    fn noise(beside_percent: f64, beside_p50_ms: f64) -> Noise {
        Noise {
            server: "ch04".into(),
            qps: 460.0,
            alone_percent: vec![100.0, 99.9],
            alone_p50_ms: vec![0.2, 0.25],
            alone_p99_ms: vec![1.0, 1.5],
            beside_percent: Some(beside_percent),
            beside_p50_ms: Some(beside_p50_ms),
            beside_p99_ms: Some(2.0),
            side_by_side: 3,
        }
    }

    #[test]
    fn neighbours_disturb_when_less_is_answered_or_later() {
        assert_eq!(disturbed(&noise(99.8, 0.6)), Some(false));
        assert_eq!(disturbed(&noise(97.0, 0.2)), Some(true));
        assert_eq!(disturbed(&noise(100.0, 3.0)), Some(true));
        assert_eq!(disturbed(&Noise { beside_percent: None, ..noise(100.0, 0.2) }), None);
    }

    #[test]
    fn the_sentence_on_noise_says_what_follows() {
        assert_eq!(
            noise_sentence(&noise(100.0, 0.3)),
            "04 alone at 460/s, twice: 100.0 % and then 99.9 % answered, p50 0.20 ms and then 0.25 ms, \
             p99 1.00 ms and then 1.50 ms; beside others: 100.0 %, 0.30 ms, 2.00 ms. So: 3 at a time"
        );
        let one = Noise { beside_percent: None, side_by_side: 1, ..noise(0.0, 0.0) };
        assert!(
            noise_sentence(&one)
                .ends_with("p99 1.00 ms and then 1.50 ms. So: one server at a time")
        );
    }

    #[test]
    fn what_is_safe_to_say_is_held_to() {
        let record = |server: &str, stall: StallKind, correct| Record {
            experiment: "race-staircase".into(),
            server: server.into(),
            stall: stall.name().into(),
            step: 1,
            scheduled: 100,
            correct,
            ..Record::default()
        };
        let all = |first: u64| -> Vec<Record> {
            let correct = [first, 70, 50, 100];
            let per_kind = |kind| {
                CHAPTERS
                    .iter()
                    .zip(correct)
                    .map(move |(it, correct)| record(it.name, kind, correct))
            };
            KINDS.into_iter().flat_map(per_kind).collect()
        };
        assert_eq!(broken_expectations(&all(80), &CHAPTERS), Vec::<String>::new());
        let broken = broken_expectations(&all(81), &CHAPTERS);
        assert_eq!(broken.len(), 2);
        assert_eq!(
            broken[0],
            "01 should end 20 points below 04 with silent clients, and answered 81.0 % to the 100.0 % of 04"
        );
        // Without 04 there is nothing to hold the others to.
        assert!(broken_expectations(&all(81), &CHAPTERS[..3]).is_empty());
        // What was not measured is no reason to be content.
        let without =
            |server| all(10).into_iter().filter(|it| it.server != server).collect::<Vec<_>>();
        assert_eq!(broken_expectations(&without("ch04"), &CHAPTERS).len(), 2);
        assert_eq!(broken_expectations(&without("ch02"), &CHAPTERS).len(), 2);
    }
}
