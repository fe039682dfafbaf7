//! Where a server's staircase bends when only the link can bend it: at the link's packets per second,
//! divided by the packets that a request takes.
//!
//! The first step is slow, and the link's counters say what a request takes. From that follows the
//! prediction; the other steps are close together around it. Then the same with clients who keep their
//! connections: the odd/even protocol has one question for each connection, so that they ask chapter 07, over
//! HTTP.
//!
//! Which step a kept connection has climbed is another question than for 04. TCP sends again what the link has
//! dropped, and who comes too early waits for the answer before: a little beyond the link's limit all are
//! answered all the same, late. So what was due and not sent at the end of a step counts as not answered.

use crate::{
    binaries::Binary,
    drive::{self, Crowd, Job},
    experiment::{Bench, Experiment, Form, Namespaces, Outcome, Scale},
    link::{
        Profile, Side,
        air::{Air, Fate},
    },
    pool::{self, Task},
    race::scoreboard::{CLIMBED_PERCENT, ms, thousands},
    records::{Record, Table, round},
    servers::{CH07, named, short},
    staircase::over::{self, Crossing},
};
use anyhow::{Context, Result};
use contract::verdicts::Column;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{fmt::Write, thread, time::Duration};

/// The name, and that of the rows of steps.
const NAME: &str = "knee";

/// That of the steps of clients who keep their connections.
const KEPT: &str = "knee-kept";

/// The server that only the link stops.
const SERVER: &str = "ch04";

/// Its other parameters are those of the profile.
const PROFILE: &str = "wifi-2.4";

/// Packets that the link carries in a second, both ways.
const BUDGETS: [f64; 3] = [1_200.0, 1_800.0, 2_400.0];

/// By which the steps are placed: SYN, SYN-ACK, ACK; the question and its ACK; the answer and its ACK; FIN,
/// FIN and an ACK. What a request takes is counted all the same.
const PACKETS_EXPECTED: f64 = 10.0;

/// With a connection that is kept: the question, the answer, which acknowledges it, and an ACK.
const PACKETS_KEPT: f64 = 3.0;

/// Connections that are kept: so many that up to the expected rate and beyond, each is silent after an answer
/// for longer than an ACK is put off (40 ms). With half as many the ACK rides on the next question over the
/// widest link, and a request takes two packets.
const CONNECTIONS: usize = 200;

/// The steps, as parts of the rate that is expected. The first counts the packets.
const PARTS: [f64; 9] = [0.2, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2];
/// With a kept connection. They go on farther: where a question has waited for the answer before, it carries
/// the ACK of that answer, and a request takes fewer packets.
const PARTS_KEPT: [f64; 11] = [0.2, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.65];
/// The last is so far beyond that two seconds of it cannot be made up for while its clients wait.
const PARTS_SMOKE: [f64; 3] = [0.2, 0.6, 3.0];

/// What the smallest form says of its link.
const LOSES_NOTHING: &str = "the smallest form: the link drops what does not fit into its queue, and loses \
                             nothing by chance";

/// `cargo lab knee`
pub struct Knee;

/// A row of `knee` and `levers`: a step, or what came of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `knee` and `levers` for a step, `knee-kept` for one of clients who keep their connections; with `-run`
    /// for a whole run.
    pub experiment: String,
    /// The binary.
    pub server: String,
    /// The profile of the link.
    pub link: String,
    /// What stalled clients do: there are none.
    pub stall: String,
    /// As many as there are.
    pub stall_percent: f64,
    /// The dice of the link.
    pub seed: Option<u64>,
    /// From 1; empty for a run.
    pub step: Option<u32>,
    /// What the link carries; empty if it carries whatever comes.
    pub packets_per_second: Option<f64>,
    /// Requests per second of the step.
    pub target_qps: Option<f64>,
    /// Length of the step.
    pub hold_s: f64,
    /// Patience of a client.
    pub timeout_s: f64,
    /// Requests that were due.
    pub scheduled: Option<u64>,
    /// Of those, answered right.
    pub correct: Option<u64>,
    /// The same in percent.
    pub answered_percent: Option<f64>,
    /// Half of those answered took at most this. Of a run: in its first, slow step.
    pub p50_ms: Option<f64>,
    /// 99 of 100.
    pub p99_ms: Option<f64>,
    /// Packets that came to the link, both ways.
    pub link_packets: Option<u64>,
    /// Of those, dropped because the queue was full.
    pub dropped_full: Option<u64>,
    /// Of those, lost by the dice.
    pub dropped_lost: Option<u64>,
    /// Packets that came to the link for each request of the first, slow step.
    pub packets_per_request: Option<f64>,
    /// The rate that the link allows: `packets_per_second` ÷ `packets_per_request`.
    pub predicted_qps: Option<f64>,
    /// The last step before the first that is not climbed; empty if none was climbed.
    pub knee_qps: Option<f64>,
    /// The first step that is not climbed; empty if all were.
    pub failed_qps: Option<f64>,
    /// Half of the requests take at most this if they come one by one, by the model of the link alone.
    pub predicted_p50_ms: Option<f64>,
    /// How late the link delivered, at the 99th percentile of the whole run.
    pub lateness_p99_ms: Option<f64>,
    /// Whether that is more than a run can bear.
    pub spoiled: Option<bool>,
    /// Connections that are kept; empty, as all that follow, where each request has its own.
    pub connections: Option<usize>,
    /// Requests that were due and not sent when the step was over.
    pub waiting: Option<u64>,
}

impl Experiment for Knee {
    fn name(&self) -> &'static str {
        NAME
    }

    fn question(&self) -> &'static str {
        "Was it the link that stopped the blog's last server, and would a kept connection have helped?"
    }

    fn prediction(&self) -> &'static str {
        "04 bends at the link's packets per second ÷ 10 packets per request; a kept connection needs 3."
    }

    fn servers(&self) -> Vec<Column> {
        let mut servers = named(&[SERVER]);
        servers.push(CH07);
        servers
    }

    fn namespaces(&self) -> Namespaces {
        Namespaces::Needed
    }

    fn parameters(&self) -> Value {
        json!({
            "profile": PROFILE,
            "packets_per_second": BUDGETS,
            "climbed_percent": CLIMBED_PERCENT,
            "kept_connections": CONNECTIONS,
            "kept_model": drive::MODEL,
        })
    }

    fn scale(&self, form: Form) -> Scale {
        match form {
            // A client whose SYN is dropped comes a second later, and has to be waited for.
            Form::Smoke => {
                Scale { form: Form::Smoke, hold: Duration::from_secs(2), ..Scale::link_short() }
            }
            Form::Short => Scale { hold: Duration::from_secs(4), ..Scale::link_short() },
            Form::Full => Scale::full(),
        }
    }

    fn about(&self, scale: &Scale, servers: usize) -> Duration {
        let runs = servers * budgets(scale).len() * seeds(scale) as usize;
        // Nearly all of them as long as the longest.
        about(&crowd(scale, BUDGETS[0], servers > 1), runs)
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let wifi = profile(bench.scale)?;
        let mut tasks = Vec::new();
        for seed in 1..=seeds(bench.scale) {
            for &budget in budgets(bench.scale) {
                for server in bench.servers {
                    let profile = Profile { packets_per_second: Some(budget), ..wifi.clone() };
                    let is_kept = server.column == CH07;
                    let crowd = crowd(bench.scale, budget, is_kept);
                    let name = if is_kept { KEPT } else { NAME };
                    tasks.push(Climb::task(name, server, profile, seed, crowd));
                }
            }
        }
        let mut outcome = Outcome::default();
        if wifi.loss_percent == 0.0 {
            bench.screen.say(LOSES_NOTHING);
            outcome.findings.push(LOSES_NOTHING.into());
        }
        let rows = climb(bench, &tasks, &mut outcome)?;
        outcome.scoreboard = board(&rows);
        outcome.findings.extend(rows.iter().filter_map(Row::sentence));
        if bench.scale.asserts && bench.scale.form == Form::Smoke && outcome.missing == 0 {
            broken(&rows).into_iter().for_each(|sentence| outcome.fail(sentence));
        }
        outcome.table = Table::of(&rows)?;
        Ok(outcome)
    }
}

/// A climb across a link, as a task of a pool.
pub struct Climb<'a> {
    job: Job<'a>,
    profile: Profile,
}

impl<'a> Climb<'a> {
    /// `server` and `crowd` across `profile` with the dice of `seed`, in rows called `experiment`.
    pub fn task(
        experiment: &'static str,
        server: &'a Binary,
        profile: Profile,
        seed: u64,
        crowd: Crowd,
    ) -> Task<Climb<'a>> {
        let link = profile.name.clone();
        let job = Job { server, experiment, link, seed: Some(seed), first_step: 1, crowd };
        let budget = profile.packets_per_second.unwrap_or(0.0);
        let part = format!("{} {} {budget} packets/s", job.label(), profile.name);
        Task { part, job: Climb { job, profile } }
    }
}

/// Does all `tasks`, and returns their rows: the steps of each, and one for the run.
///
/// # Errors
/// If there is no link.
pub fn climb(
    bench: &Bench<'_>,
    tasks: &[Task<Climb<'_>>],
    outcome: &mut Outcome,
) -> Result<Vec<Row>> {
    let Some(first) = tasks.first() else { return Ok(Vec::new()) };
    outcome.findings.push(format!("the link: {}", over::probe(&first.job.profile)?));
    let one = |Climb { job, profile }: &Climb<'_>| {
        let crossing = over::cross(bench, job, profile)?;
        bench.screen.say(&format!("  {}: {}", words(profile), crossing.sentence(job)));
        Ok(crossing)
    };
    let done = pool::all(bench, tasks, at_once(), one, Crossing::is_whole);
    let mut rows = Vec::new();
    for (Task { job: climb, .. }, done) in tasks.iter().zip(done) {
        let run = done.map(|it| it.map(|it| it.run));
        let records = drive::gather(vec![run], outcome);
        rows.extend(records.iter().map(|it| Row::of_step(it, &climb.profile)));
        rows.extend(Row::of_run(&records, &climb.profile));
    }
    Ok(rows)
}

/// About how long `runs` of such clients take.
pub fn about(crowd: &Crowd, runs: usize) -> Duration {
    // Each server and link takes a moment to come and to go.
    (crowd.length() + Duration::from_secs(1)) * runs.div_ceil(at_once()) as u32
}

/// How often each run is made, with dice of its own.
pub fn seeds(scale: &Scale) -> u64 {
    if scale.form == Form::Full { 3 } else { 1 }
}

/// Runs at a time: each needs little, and the links are to be on time.
fn at_once() -> usize {
    2 * thread::available_parallelism().map_or(1, usize::from)
}

/// The radio; in the smallest form without its losses. A client of the second step whose packet is lost sends
/// it again a second later, into the load of the third, and may be lost there: of so few requests, two such
/// are more than a step that was climbed may lack.
fn profile(scale: &Scale) -> Result<Profile> {
    let mut profile = Profile::named(PROFILE).context("it has a name")?;
    if scale.form == Form::Smoke {
        profile.loss_percent = 0.0;
    }
    Ok(profile)
}

fn budgets(scale: &Scale) -> &'static [f64] {
    if scale.form == Form::Smoke { &BUDGETS[..1] } else { &BUDGETS }
}

/// Clients of whom nobody stalls, in steps around the rate that is expected.
fn crowd(scale: &Scale, budget: f64, is_kept: bool) -> Crowd {
    let (parts, packets): (&[f64], f64) = match (scale.form, is_kept) {
        (Form::Smoke, true) => (&PARTS_SMOKE, PACKETS_KEPT),
        (Form::Smoke, false) => (&PARTS_SMOKE, PACKETS_EXPECTED),
        (_, true) => (&PARTS_KEPT, PACKETS_KEPT),
        (_, false) => (&PARTS, PACKETS_EXPECTED),
    };
    let rate = |part: &f64| (part * budget / packets).round();
    let rates = parts.iter().map(rate).collect();
    Crowd { rates, kept: is_kept.then_some(CONNECTIONS), ..scale.nobody_stalls() }
}

/// How long half of the requests take at most, in ms, that come one by one and of which no packet is lost:
/// a SYN, its answer, an ACK with the question behind it, an ACK with the answer behind it. Where order is
/// kept, what comes behind has to wait for the first. On a connection that is kept: the question, and the
/// answer.
fn p50_of_an_idle_link(profile: &Profile, is_kept: bool) -> f64 {
    const REQUESTS: u64 = 2_001;
    const APART_NS: u64 = 100_000_000_000;
    let mut air = Air::new(&Profile { loss_percent: 0.0, outage: None, ..profile.clone() }, 1);
    let mut cross = |to, at_ns| match air.arrive(to, at_ns) {
        Fate::At(at_ns) => at_ns,
        Fate::Dropped(_) => at_ns, // It is idle, and loses nothing: there is no such packet.
    };
    let mut took_ns: Vec<u64> = (0..REQUESTS)
        .map(|request| {
            let start_ns = request * APART_NS;
            if is_kept {
                let asked_ns = cross(Side::Server, start_ns);
                return cross(Side::Client, asked_ns) - start_ns;
            }
            let asked_ns = cross(Side::Server, start_ns);
            let connected_ns = cross(Side::Client, asked_ns);
            cross(Side::Server, connected_ns);
            let question_ns = cross(Side::Server, connected_ns);
            cross(Side::Client, question_ns);
            cross(Side::Client, question_ns) - start_ns
        })
        .collect();
    took_ns.sort_unstable();
    took_ns[took_ns.len() / 2] as f64 / 1e6
}

/// Whether so many of a step were answered that the server has climbed it: of clients who keep their
/// connections, without those who waited for their turn when it was over.
fn is_climbed(step: &Record) -> bool {
    let in_time = step.correct.saturating_sub(step.waiting.unwrap_or(0));
    100.0 * in_time as f64 >= CLIMBED_PERCENT * step.scheduled as f64
}

/// Runs whose knee is not where the link has it, a sentence each: as exactly as the steps are close.
fn broken(rows: &[Row]) -> Vec<String> {
    let is_broken = |row: &&Row| {
        row.is_run()
            && row.predicted_qps.is_some_and(|predicted| {
                !row.knee_qps.is_some_and(|knee| knee <= predicted)
                    || !row.failed_qps.is_some_and(|failed| failed >= predicted)
            })
    };
    let sentence = |row: &Row| Some(format!("not where the link has it: {}", row.sentence()?));
    rows.iter().filter(is_broken).filter_map(sentence).collect()
}

/// A line for each run: what was predicted, and what came.
pub fn board(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<8}{:<12}{:>12}{:>18}{:>13}{:>11}{:>12}{:>20}\n",
        "server",
        "link",
        "packets/s",
        "packets/request",
        "predicted",
        "climbed",
        "failed",
        "p50 (predicted)"
    );
    let or_dash = |value: Option<f64>, digits| {
        value.map_or_else(|| "–".to_owned(), |it| format!("{it:.digits$}"))
    };
    for row in rows.iter().filter(|it| it.step.is_none()) {
        let p50 = match (row.p50_ms, row.predicted_p50_ms) {
            (Some(p50), Some(predicted)) => format!("{} ({})", ms(p50), ms(predicted)),
            _ => "not measured".into(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<8}{:<12}{:>12}{:>18}{:>11}/s{:>9}/s{:>10}/s{:>20}{}",
            short(&row.server),
            row.link,
            row.packets_per_second.map_or_else(|| "no limit".into(), |it| thousands(it as u64)),
            or_dash(row.packets_per_request, 1),
            or_dash(row.predicted_qps, 0),
            or_dash(row.knee_qps, 0),
            or_dash(row.failed_qps, 0),
            p50,
            if row.spoiled == Some(true) { "  spoiled" } else { "" }
        );
    }
    text += "predicted: packets/s ÷ packets/request; climbed: the last step of which 99 % were answered\n";
    if rows.iter().any(|it| it.connections.is_some()) {
        text += "07: clients who keep their connections; who was due and had to wait when a step was over is \
                 not answered\n";
    }
    text
}

impl Row {
    fn of_step(record: &Record, profile: &Profile) -> Row {
        Row {
            experiment: record.experiment.clone(),
            step: Some(record.step),
            target_qps: Some(record.target_qps),
            scheduled: Some(record.scheduled),
            correct: Some(record.correct),
            answered_percent: Some(round(record.success_percent())),
            p50_ms: record.p50_ms,
            p99_ms: record.p99_ms,
            link_packets: record.link_packets,
            dropped_full: record.dropped_full,
            dropped_lost: record.dropped_lost,
            waiting: record.waiting,
            ..Row::about(record, profile)
        }
    }

    /// `None` if no step was completed.
    fn of_run(records: &[Record], profile: &Profile) -> Option<Row> {
        let first = records.first()?;
        let climbed = records.iter().take_while(|it| is_climbed(it)).count();
        let packets_per_request =
            first.link_packets.map(|it| round(it as f64 / first.scheduled as f64));
        let predicted = profile.packets_per_second.zip(packets_per_request);
        Some(Row {
            experiment: format!("{}-run", first.experiment),
            p50_ms: first.p50_ms,
            packets_per_request,
            predicted_qps: predicted.map(|(budget, packets)| round(budget / packets)),
            knee_qps: records[..climbed].last().map(|it| it.target_qps),
            failed_qps: records.get(climbed).map(|it| it.target_qps),
            predicted_p50_ms: Some(round(p50_of_an_idle_link(profile, first.clients.is_some()))),
            ..Row::about(first, profile)
        })
    }

    /// What steps and runs have in common.
    fn about(record: &Record, profile: &Profile) -> Row {
        Row {
            server: record.server.clone(),
            link: record.link.clone(),
            stall: record.stall.clone(),
            stall_percent: record.stall_percent,
            seed: record.seed,
            packets_per_second: profile.packets_per_second,
            hold_s: record.hold_s,
            timeout_s: record.timeout_s,
            lateness_p99_ms: record.lateness_p99_ms,
            spoiled: record.spoiled,
            connections: record.clients,
            ..Row::default()
        }
    }

    fn is_run(&self) -> bool {
        self.experiment.ends_with("-run")
    }

    /// What came of a run, for the provenance of the record.
    pub fn sentence(&self) -> Option<String> {
        let (packets, predicted) = (self.packets_per_request?, self.predicted_qps?);
        let or_none =
            |qps: Option<f64>| qps.map_or_else(|| "no step".into(), |it| format!("{it}/s"));
        Some(format!(
            "{}, {}: {} packets/s ÷ {packets:.1} packets/request = {predicted:.0}/s; climbed {}, failed {}",
            short(&self.server),
            self.experiment,
            self.packets_per_second?,
            or_none(self.knee_qps),
            or_none(self.failed_qps)
        ))
    }
}

fn words(profile: &Profile) -> String {
    match profile.packets_per_second {
        Some(budget) => format!("{}, {budget} packets/s", profile.name),
        None => profile.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u32, target_qps: f64, correct: u64) -> Record {
        Record {
            experiment: NAME.into(),
            server: SERVER.into(),
            step,
            target_qps,
            scheduled: 1_000,
            correct,
            link_packets: Some(10_100),
            ..Record::default()
        }
    }

    fn wifi() -> Profile {
        Profile { packets_per_second: Some(1_212.0), ..Profile::named(PROFILE).unwrap() }
    }

    #[test]
    fn a_run_says_what_it_takes_and_where_it_bends() {
        let records =
            [step(1, 24.0, 1_000), step(2, 100.0, 995), step(3, 120.0, 989), step(4, 130.0, 999)];
        let run = Row::of_run(&records, &wifi()).unwrap();
        assert_eq!((run.packets_per_request, run.predicted_qps), (Some(10.1), Some(120.0)));
        // What is answered again after the first failure does not count.
        assert_eq!((run.knee_qps, run.failed_qps), (Some(100.0), Some(120.0)));
        assert!(broken(&[run]).is_empty());
    }

    #[test]
    fn a_knee_elsewhere_is_told() {
        let early = Row::of_run(&[step(1, 24.0, 1_000), step(2, 70.0, 500)], &wifi()).unwrap();
        let never = Row::of_run(&[step(1, 24.0, 1_000), step(2, 300.0, 1_000)], &wifi()).unwrap();
        let sentences = broken(&[early, never]);
        assert_eq!(sentences.len(), 2);
        assert!(sentences[0].ends_with("= 120/s; climbed 24/s, failed 70/s"), "{sentences:?}");
        assert!(sentences[1].ends_with("climbed 300/s, failed no step"), "{sentences:?}");
    }

    #[test]
    fn a_request_crosses_an_idle_link_four_times() {
        let plain =
            Profile { packets_per_second: None, delay_base_ms: 5.0, jitter_mean_ms: 0.0, ..wifi() };
        assert_eq!(p50_of_an_idle_link(&plain, false), 20.0);
        assert_eq!(p50_of_an_idle_link(&plain, true), 10.0, "a kept connection: twice");
        // Of two packets that keep their order, the second is as late as the later.
        let free = p50_of_an_idle_link(&Profile { keep_order: false, ..wifi() }, false);
        let kept = p50_of_an_idle_link(&wifi(), false);
        assert!(free + 4.0 < kept, "{free} ms and {kept} ms");
    }

    #[test]
    fn a_kept_connection_bends_where_requests_begin_to_wait() {
        let kept = |step_number, target_qps, waiting| Record {
            experiment: KEPT.into(),
            server: CH07.name.into(),
            clients: Some(CONNECTIONS),
            link_packets: Some(3_030),
            waiting: Some(waiting),
            ..step(step_number, target_qps, 1_000)
        };
        // All are answered at any rate: what fails is that they are asked when they are due.
        let records = [kept(1, 80.0, 0), kept(2, 380.0, 10), kept(3, 420.0, 11), kept(4, 500.0, 0)];
        let run = Row::of_run(&records, &wifi()).unwrap();
        assert_eq!((run.packets_per_request, run.predicted_qps), (Some(3.03), Some(400.0)));
        assert_eq!((run.knee_qps, run.failed_qps), (Some(380.0), Some(420.0)));
        assert_eq!((run.connections, &*run.experiment), (Some(CONNECTIONS), "knee-kept-run"));
        let sentence = run.sentence().unwrap();
        assert!(sentence.ends_with("= 400/s; climbed 380/s, failed 420/s"), "{sentence}");
        // Without a handshake, a request crosses the link twice in the place of four times.
        let each = Row::of_run(&[step(1, 24.0, 1_000)], &wifi()).unwrap();
        let (kept_ms, each_ms) = (run.predicted_p50_ms.unwrap(), each.predicted_p50_ms.unwrap());
        assert!(1.7 * kept_ms < each_ms && each_ms < 2.5 * kept_ms, "{kept_ms} {each_ms}");
    }
}
