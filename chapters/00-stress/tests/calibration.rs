//! The instrument against servers whose behaviour is known: what it reports is what happened.
//!
//! Nothing here compares a time with a short constant: the machine may be busy. What is compared are the
//! order of events, and the reported latency with the server's own log of the same run.

use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};
use stress::{
    Outcome, Plan, Report, Summary,
    calibrate::{against, truth},
    known::{Behaviour, KnownServer},
};

static GO_ON: AtomicBool = AtomicBool::new(false);

fn run(plan: &Plan) -> Report {
    stress::run(plan, &mut |_| {}, &GO_ON).expect("it runs")
}

fn steady(target: SocketAddr, qps: f64, seconds: u64) -> Plan {
    Plan::steady(target, qps, Duration::ZERO, Duration::from_secs(seconds))
}

/// The server fails nobody. What a busy machine was too late to send is not the server's to answer.
#[track_caller]
fn all_that_were_sent(report: &Report) {
    assert!(report.totals.correct > 0);
    assert_eq!(report.totals.correct, report.totals.issued, "{:?}", report.totals.rows);
}

#[test]
fn latency_is_what_the_servers_log_says() {
    let delay = Duration::from_millis(600);
    let (report, log) =
        against(Behaviour::Answer(delay), 50.0, Duration::from_secs(3), &GO_ON).unwrap();
    all_that_were_sent(&report);
    assert_eq!(log.len() as u64, report.totals.correct);
    for record in report.records.iter().filter(|record| record.outcome == Outcome::Correct) {
        let moments = [
            record.scheduled_ns,
            record.noticed_ns,
            record.started_ns,
            record.connected_ns,
            record.first_byte_ns,
            record.closed_ns,
        ];
        assert!(moments.is_sorted(), "a request went back in time: {record:?}");
    }
    let (seen, truth) = (&report.totals.latency.total, truth(&report, &log));
    for (name, seen, truth) in
        [("p50", seen.p50_ms, truth.p50_ms), ("p99", seen.p99_ms, truth.p99_ms)]
    {
        // Three digits hold in a histogram, and no answer is seen before it is sent.
        assert!(
            seen >= truth * 0.998,
            "{name}: {seen} ms reported, {truth} ms by the server's log"
        );
        assert!(seen <= truth * 1.5, "{name}: {seen} ms reported, {truth} ms by the server's log");
    }
}

#[test]
fn a_freeze_shows_when_latency_counts_from_the_schedule_and_a_closed_loop_hides_it() {
    let server = KnownServer::start(Behaviour::FreezeAfter(Duration::from_secs(1))).unwrap();
    // One connection: the next request waits for the answer to the last, as in a closed loop.
    let report = run(&steady(server.address, 200.0, 4).with_connections(1));
    let Summary { p99_ms: honest, .. } = report.totals.latency.total;
    let Summary { p99_ms: closed_loop, max_ms, .. } = report.totals.latency.from_start;
    all_that_were_sent(&report);
    assert!(honest > 500.0, "a server stood still for a second, and p99 is {honest} ms");
    assert!(max_ms > 500.0, "one request met the freeze, and the longest took {max_ms} ms");
    assert!(
        closed_loop * 2.0 < honest,
        "from the start {closed_loop} ms, from the schedule {honest} ms"
    );
}

#[test]
fn a_freeze_shows_in_an_open_loop_as_the_log_says() {
    let freeze = Behaviour::FreezeAfter(Duration::from_secs(1));
    let (report, log) = against(freeze, 200.0, Duration::from_secs(4), &GO_ON).unwrap();
    let (seen, truth) = (&report.totals.latency.total, truth(&report, &log));
    assert_eq!(seen.count, truth.count);
    assert!(truth.p99_ms > 500.0, "by the log, p99 is {} ms", truth.p99_ms);
    assert!(seen.p99_ms >= truth.p99_ms * 0.9, "{} reported, {} true", seen.p99_ms, truth.p99_ms);
    assert!(seen.p99_ms <= truth.p99_ms * 1.5, "{} reported, {} true", seen.p99_ms, truth.p99_ms);
}

#[test]
fn as_many_latencies_as_requests_and_none_invented() {
    let server = KnownServer::start(Behaviour::Answer(Duration::from_millis(10))).unwrap();
    let plan =
        Plan::steps(server.address, vec![50.0, 150.0], Duration::from_secs(1)).with_connections(1);
    for _ in 0..2 {
        let report = run(&plan);
        let totals = &report.totals;
        assert_eq!((totals.scheduled, report.records.len()), (200, 200));
        assert_eq!(totals.latency.any_end.count, totals.issued);
        assert_eq!(totals.latency.queue.count, totals.issued);
        assert_eq!(totals.latency.total.count, totals.correct);
        let ids: Vec<u32> = report.records.iter().map(|record| record.id).collect();
        assert_eq!(ids, (1..=200).collect::<Vec<u32>>());
        assert_eq!(report.steps.iter().map(|step| step.totals.scheduled).sum::<u64>(), 200);
        // With one connection and 10 ms each, 150 a second is more than it can be.
        assert!(totals.latency.from_start.min_ms >= 10.0);
        assert!(report.steps[1].totals.latency.queue.max_ms > totals.latency.from_start.min_ms);
    }
}

#[test]
fn three_runs_at_once_in_one_process_do_not_mix() {
    let delays = [0, 300, 600].map(Duration::from_millis);
    let reports = std::thread::scope(|scope| {
        let runs = delays.map(|delay| {
            scope.spawn(move || {
                let server = KnownServer::start(Behaviour::Answer(delay)).unwrap();
                run(&steady(server.address, 100.0, 1).with_threads(2))
            })
        });
        runs.map(|run| run.join().unwrap())
    });
    for (report, delay) in reports.iter().zip(delays) {
        all_that_were_sent(report);
        assert!(report.totals.latency.total.min_ms >= delay.as_secs_f64() * 1e3);
    }
    let p50 = |index: usize| reports[index].totals.latency.total.p50_ms;
    assert!(p50(0) < p50(1) && p50(1) < p50(2));
}

#[test]
fn the_issue_rate_and_the_cpu_time_are_measured() {
    let server = KnownServer::start(Behaviour::Answer(Duration::ZERO)).unwrap();
    let own = std::process::id() as i32;
    let report = run(&steady(server.address, 100.0, 2).with_server_pid(own));
    let rate = report.totals.achieved_qps;
    // It may fall short of the plan only where it blames itself for that.
    let is_late = report.client_bound && report.totals.issued < report.totals.scheduled;
    let least = if is_late { 0.4 * report.totals.issued as f64 } else { 80.0 };
    assert!((least..125.0).contains(&rate), "{rate} per second issued, 100 planned");
    // The server is this very process, which also holds the engine.
    let (own, server) = (report.cost.own_cpu_s, report.cost.server_cpu_s.unwrap());
    assert!(own > 0.0 && server > own, "{own} s here, {server} s in the whole process");
}

#[test]
fn a_thought_before_the_request_is_part_of_the_latency() {
    let server = KnownServer::start(Behaviour::Answer(Duration::ZERO)).unwrap();
    let think = Duration::from_millis(300);
    let report = run(&steady(server.address, 50.0, 1).with_think(think));
    all_that_were_sent(&report);
    for record in report.records.iter().filter(|record| record.outcome == Outcome::Correct) {
        assert!(record.first_byte_ns - record.connected_ns >= think.as_nanos() as u64);
    }
}

#[test]
fn who_is_told_to_stop_reports_what_there_is() {
    let server = KnownServer::start(Behaviour::Never).unwrap();
    let stop = AtomicBool::new(false);
    let mut looks = 0;
    let plan = steady(server.address, 50.0, 60).with_stall("10%:silent".parse().unwrap());
    let report = stress::run(
        &plan,
        &mut |progress| {
            looks += 1;
            stop.store(progress.scheduled >= 20, std::sync::atomic::Ordering::Relaxed);
        },
        &stop,
    );
    let report = report.unwrap();
    assert!(looks > 0 && report.interrupted);
    let interrupted =
        report.records.iter().filter(|record| record.outcome == Outcome::Interrupted).count();
    assert!(report.totals.scheduled >= 20 && report.totals.scheduled < 3000);
    assert!(interrupted > 0);
    assert!(stress::table(&report).contains("Interrupted"));
}
