//! HTTP over connections that stay open, against a server of which we know what it does.

use std::{
    net::TcpListener,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use stress::{
    Arrivals, ErrorRow, Outcome, Phase,
    http::{
        Pace, Plan, Report,
        known::{Behaviour, KnownServer},
        run, table,
    },
};

const SECOND: Duration = Duration::from_secs(1);

fn go(plan: &Plan) -> Report {
    let report = run(plan, &mut |_| {}, &AtomicBool::new(false)).expect("it runs");
    accounted_for(&report);
    if let Pace::Schedule { qps, arrivals: Arrivals::Uniform, .. } = plan.pace {
        let planned = (qps * plan.length.as_secs_f64()).round() as u64;
        assert_eq!(report.scheduled, planned, "{}", table(&report));
    }
    report
}

fn steady(server: &KnownServer, connections: usize, qps: f64, halves: u32) -> Plan {
    Plan::steady(server.address, "/parity/7", connections, qps, SECOND / 2 * halves)
}

/// Long enough that somebody is answered, also where we or the server are not run for a part of it.
fn saturate(server: &KnownServer, connections: usize) -> Plan {
    Plan::saturate(server.address, "/parity/7", connections, SECOND * 2)
}

fn start(behaviour: Behaviour) -> KnownServer {
    KnownServer::start(behaviour).expect("it listens")
}

/// Each request that was due has one fate, and there are as many latencies as answers: none is invented.
#[track_caller]
fn accounted_for(report: &Report) {
    let wrong = report.wrong.statuses.values().sum::<u64>();
    assert_eq!(report.answers, report.correct + wrong);
    let fates = report.answers
        + report.wrong.malformed
        + report.errors
        + report.not_sent
        + report.backlog.never_sent;
    assert_eq!(report.scheduled, fates, "{}", table(report));
    assert_eq!(report.from_sent.count, report.correct);
    if let Some(latency) = &report.latency {
        assert_eq!(latency.count, report.correct);
    }
    assert_eq!(report.histogram.len(), report.correct);
}

/// What the server did wrong: without those that a busy machine made the generator leave out.
fn failed(report: &Report) -> Vec<&ErrorRow> {
    report.rows.iter().filter(|row| row.outcome != Outcome::NotSent).collect()
}

/// All that a busy machine did not make the generator leave out was answered right.
#[track_caller]
fn all_right(report: &Report) {
    let sent = report.scheduled - report.not_sent;
    assert!(sent > 0 && report.correct == sent, "{}", table(report));
}

#[test]
fn a_known_delay_is_what_is_reported_twice() {
    let server = start(Behaviour::Answer(Duration::from_millis(300)));
    for _ in 0..2 {
        let report = go(&steady(&server, 8, 16.0, 4));
        all_right(&report);
        let latency = report.latency.as_ref().unwrap();
        // Three digits hold in a histogram, and no answer is seen before it is sent.
        assert!(latency.min_ms >= 299.0, "{latency:?}");
        // Some may have met a moment in which one of us was not run: not all of them.
        assert!(latency.min_ms <= 450.0, "{latency:?}");
        assert_eq!(report.mode, "open loop");
    }
}

#[test]
fn a_freeze_shows_from_the_schedule_and_a_closed_loop_hides_it() {
    let server = start(Behaviour::FreezeAfter(SECOND));
    let report = go(&steady(&server, 2, 400.0, 8));
    let (honest, closed) = (report.latency.clone().unwrap(), &report.from_sent);
    assert!(honest.p99_ms > 500.0, "a server stood still for a second: {honest:?}");
    assert!(closed.max_ms > 500.0, "one request of each connection met the freeze: {closed:?}");
    assert!(closed.p99_ms * 2.0 < honest.p99_ms, "{closed:?} and {honest:?}");
    let saturating = go(&saturate(&start(Behaviour::FreezeAfter(SECOND / 4)), 2));
    assert!(saturating.from_sent.p99_ms < 500.0 && saturating.latency.is_none());
}

#[test]
fn a_starving_connection_is_seen_and_its_neighbours_do_not_ask_for_it() {
    let server = start(Behaviour::StarveOne(Duration::from_millis(300)));
    let plan = steady(&server, 8, 80.0, 8).with_timeout(SECOND * 30);
    let report = go(&plan);
    all_right(&report);
    let fairness = &report.fairness;
    // Forty each were due; the one that starves had a third of its answers in that time.
    assert!(fairness.answers.min * 2.0 < fairness.answers.median, "{fairness:?}");
    assert!(fairness.longest_wait_ms.max > 4.0 * fairness.longest_wait_ms.median, "{fairness:?}");
    let backlog = &report.backlog;
    // What was due to it while the generator was late was left out.
    let owed = backlog.per_connection.max + report.not_sent as f64;
    assert!(backlog.grew && owed >= 10.0, "{backlog:?} and {} not sent", report.not_sent);
    assert!(backlog.per_connection.median <= 1.0, "{backlog:?}");
    // Its requests were sent in the end, late, and nobody else sent more than its share.
    for connection in 0..8 {
        let mine = server.log().iter().filter(|served| served.connection == connection).count();
        assert!(mine <= 40, "connection {connection} asked {mine} times");
    }
    let latency = report.latency.unwrap();
    assert!(latency.max_ms > 4.0 * report.from_sent.max_ms, "{latency:?} {:?}", report.from_sent);
}

#[test]
fn a_backlog_that_grew_is_said_and_the_rate_is_that_of_the_answers() {
    let server = start(Behaviour::Answer(Duration::from_millis(250)));
    let report = go(&steady(&server, 1, 40.0, 4).with_timeout(SECOND));
    // Fewer than ten were, and the generator's own lateness is told apart.
    let unsent = report.backlog.never_sent + report.not_sent;
    assert!(report.backlog.grew && unsent > 40, "{:?}", report.backlog);
    assert!(report.answers_per_s < 8.0, "{} of 40 planned", report.answers_per_s);
    let words = table(&report);
    assert!(words.contains("the backlog grew"), "{words}");
    assert!(words.contains("never sent: their latency"), "{words}");
    // That is the server's doing, and no reason to blame the generator, which may have its own.
    assert!(!report.client_bound || report.lateness.max_ms > 25.0, "{words}");
}

#[test]
fn a_status_other_than_200_is_wrong_and_counted() {
    for status in [204, 404, 503] {
        let server = start(Behaviour::Status(status));
        // 204 has no body: the one that this server sends all the same was not asked for.
        let report = go(&steady(&server, 4, 40.0, 1).with_timeout(SECOND));
        assert_eq!(report.correct, 0);
        assert_eq!(report.wrong.statuses.keys().copied().collect::<Vec<_>>(), [status]);
        assert_eq!(report.wrong.unasked > 0, status == 204, "{}", table(&report));
        if status != 204 {
            assert_eq!(report.wrong.statuses[&status], report.scheduled - report.not_sent);
        }
        assert!(report.answers_per_s == 0.0 && table(&report).contains("status"));
    }
}

#[test]
fn a_pipeline_is_as_deep_as_it_was_said_to_be_and_no_deeper() {
    let server = start(Behaviour::Answer(Duration::from_millis(50)));
    go(&saturate(&server, 1).with_pipeline(4));
    let depths = |server: &KnownServer| server.log().iter().map(|it| it.waiting).max();
    assert_eq!(depths(&server), Some(4));
    let server = start(Behaviour::Answer(Duration::from_millis(50)));
    let report = go(&steady(&server, 1, 200.0, 4).with_pipeline(3).with_timeout(SECOND));
    assert_eq!(depths(&server), Some(3), "{}", table(&report));
    assert!(report.backlog.grew);
}

#[test]
fn a_server_that_closes_after_each_answer_is_asked_again() {
    let server = start(Behaviour::CloseEach);
    let report = go(&steady(&server, 4, 80.0, 1));
    all_right(&report);
    // The last answer of each connection is followed by one more opening, or not.
    assert!(report.reconnects + 4 >= report.correct, "{}", table(&report));
    assert_eq!(report.connects, report.reconnects + 4);
    assert_eq!(report.errors, 0);
    let report = go(&saturate(&server, 4).with_pipeline(3));
    assert!(report.correct > 0 && report.errors == 0 && report.resent > 0, "{}", table(&report));
}

#[test]
fn a_server_that_closes_without_a_word_between_answers_loses_nothing() {
    let server = start(Behaviour::CloseAfter(5));
    let report = go(&steady(&server, 2, 200.0, 1).with_pipeline(4));
    all_right(&report);
    assert!(report.reconnects > 0 && report.errors == 0, "{}", table(&report));
    let report = go(&saturate(&server, 2).with_pipeline(4));
    assert!(report.resent > 0 && report.errors == 0, "{}", table(&report));
}

#[test]
fn a_server_that_closes_without_any_answer_has_failed_and_is_not_hammered() {
    let server = start(Behaviour::Close);
    let report = go(&steady(&server, 2, 200.0, 2).with_timeout(SECOND * 3));
    assert_eq!(report.correct, 0);
    let rows = failed(&report);
    let row = rows.iter().find(|row| row.outcome == Outcome::ClosedEarly).unwrap();
    assert_eq!(row.phase, Phase::FirstByte, "{}", table(&report));
    // Seldom, the end is there before the question has left, and is a reset for whoever asks then.
    let is_end = |row: &&ErrorRow| [Outcome::ClosedEarly, Outcome::Reset].contains(&row.outcome);
    assert!(rows.iter().all(is_end) && 2 * row.count > report.errors, "{}", table(&report));
    assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), report.errors);
    // A tenth of a second between two attempts of one connection.
    assert!(report.connects <= 2 * 25, "{}", table(&report));
}

#[test]
fn a_server_that_resets_has_a_row_with_its_errno() {
    let report = go(&steady(&start(Behaviour::Reset), 2, 20.0, 1).with_timeout(SECOND));
    let rows = failed(&report);
    let is_reset =
        |row: &&ErrorRow| row.outcome == Outcome::Reset && row.errno_name == "ECONNRESET";
    assert!(rows.iter().all(is_reset), "{}", table(&report));
    // Nearly always while the answer is waited for; seldom, the reset is there before the question has left.
    let waiting = rows.iter().find(|row| row.phase == Phase::FirstByte).unwrap();
    assert!(2 * waiting.count > report.errors, "{}", table(&report));
    assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), report.errors);
    assert!(report.correct == 0 && report.errors > 0);
}

#[test]
fn chunks_and_single_bytes_are_answers_too() {
    for behaviour in [Behaviour::Chunked, Behaviour::Bytewise] {
        let server = start(behaviour);
        let report = go(&steady(&server, 2, 60.0, 1));
        all_right(&report);
        let report = go(&saturate(&server, 2).with_pipeline(2));
        assert!(report.correct > 2 && report.errors == 0, "{behaviour:?} {}", table(&report));
        assert_eq!((report.reconnects, report.wrong.malformed), (0, 0));
    }
}

#[test]
fn a_wrong_length_is_found_out() {
    let server = start(Behaviour::TooLong);
    // Patience enough for all but the byte that never comes, also if the server is not run for a moment.
    let report = go(&steady(&server, 2, 20.0, 1).with_timeout(SECOND * 3));
    assert_eq!(report.correct, 0);
    let row = report.rows.iter().find(|row| row.outcome == Outcome::TimedOutWaiting).unwrap();
    assert_eq!((row.phase, row.count), (Phase::End, report.errors));
    // The next answer's head is taken for the byte that is missing, and what is left of it is no answer.
    let report = go(&saturate(&server, 1).with_pipeline(2).with_timeout(SECOND * 3));
    assert!(report.wrong.malformed > 0, "{}", table(&report));
    let report = go(&steady(&start(Behaviour::TooShort), 2, 20.0, 1));
    assert!(report.wrong.unasked > 0 && failed(&report).is_empty(), "{}", table(&report));
    assert!(table(&report).contains("not asked for"));
}

#[test]
fn what_is_no_http_is_malformed() {
    let report = go(&steady(&start(Behaviour::NoHttp), 1, 20.0, 1).with_timeout(SECOND));
    assert!(report.wrong.malformed > 0 && report.correct == 0, "{}", table(&report));
    assert!(report.rows.iter().any(|row| row.outcome == Outcome::Wrong));
}

#[test]
fn nobody_there_and_nobody_who_answers() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let report = go(&Plan::steady(gone, "/", 2, 20.0, SECOND).with_timeout(SECOND));
    let row = failed(&report)[0];
    assert_eq!((row.outcome, row.phase), (Outcome::Refused, Phase::Connect));
    assert_eq!(row.errno_name, "ECONNREFUSED");
    // Nobody was there to be asked; or we were late ourselves, which is told apart.
    let unasked = report.backlog.never_sent + report.not_sent;
    assert_eq!((report.connects, unasked), (0, report.scheduled));
    assert!(report.backlog.never_sent > 0, "{}", table(&report));
    let shown = table(&report);
    assert!(shown.contains(&format!("does a server listen on {gone}?")), "{shown}");
    // An attempt to connect is no request, and so no share of them.
    let line = shown.lines().find(|line| line.contains("ECONNREFUSED")).unwrap();
    assert!(!line.contains('%'), "{line}");
    let server = start(Behaviour::Never);
    let report = go(&steady(&server, 2, 20.0, 1).with_timeout(SECOND / 2));
    assert!(report.errors > 0 && report.correct == 0);
    assert!(failed(&report).iter().all(|row| row.outcome == Outcome::TimedOutWaiting));
    assert_eq!(report.fairness.starved, 2);
    assert!(table(&report).contains("had no answer at all"));
}

#[test]
fn saturating_is_labelled_as_what_it_is() {
    let server = start(Behaviour::Answer(Duration::ZERO));
    let report = go(&saturate(&server, 4).with_warmup(SECOND / 4));
    assert!(report.correct > 4 && report.errors == 0);
    assert_eq!(report.mode, "closed loop (saturating)");
    assert!(report.latency.is_none() && report.backlog.at_end == 0);
    let words = table(&report);
    assert!(words.contains("no client's latency is seen"), "{words}");
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["latency"].is_null() && json["plan"]["pace"]["kind"] == "saturate");
    assert!(report.cost.own_cpu_s > 0.0 && report.cost.own_cpu_s_per_million.is_some());
}

#[test]
fn the_warm_up_is_not_counted_and_the_cpu_time_is_measured() {
    let server = start(Behaviour::Answer(Duration::ZERO));
    let own = std::process::id() as i32;
    let plan = steady(&server, 3, 90.0, 2).with_warmup(SECOND).with_server_pid(own);
    let report = go(&plan.with_records());
    // It was asked before what counts, and all of that was answered.
    let served = server.log().len() as u64;
    assert!(served > report.correct + 20, "{served} served, {} of them counted", report.correct);
    assert!(report.records.iter().all(|record| record.scheduled_ns >= report.origin_ns));
    assert_eq!(report.records.len() as u64, report.correct);
    // The server is this very process, which also holds the engine.
    let cost = &report.cost;
    assert!(cost.own_cpu_s > 0.0 && cost.server_cpu_s.unwrap() > cost.own_cpu_s, "{cost:?}");
}

#[test]
fn threads_share_the_connections_and_dice_keep_the_rate() {
    let server = start(Behaviour::Answer(Duration::ZERO));
    let plan = steady(&server, 5, 400.0, 2).with_threads(2).with_arrivals(Arrivals::Poisson, 3);
    let report = go(&plan.with_records());
    all_right(&report);
    assert!((300..500).contains(&report.scheduled), "{}", report.scheduled);
    let mut seen: Vec<u32> = report.records.iter().map(|record| record.connection).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
}

#[test]
fn who_is_told_to_stop_reports_what_there_is() {
    let server = start(Behaviour::Answer(Duration::ZERO));
    let stop = AtomicBool::new(false);
    let mut see = |progress: &stress::Progress| {
        stop.store(progress.correct >= 20, Ordering::Relaxed);
    };
    let report = run(&steady(&server, 2, 50.0, 1200), &mut see, &stop).unwrap();
    accounted_for(&report);
    assert!(report.interrupted && report.correct >= 20 && report.scheduled < 30_000);
    assert!(table(&report).contains("Interrupted"));
}
