//! Each way in which a server can fail a client has a row of its own, with its phase and errno.

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrStorage, bind, getsockname,
    listen, socket,
};
use std::{
    net::{SocketAddr, TcpListener},
    os::fd::AsRawFd,
    sync::atomic::AtomicBool,
    time::Duration,
};
use stress::{
    ErrorRow, Outcome, Phase, Plan, Release, Report, StallKind,
    known::{Behaviour, KnownServer},
};

fn run(plan: &Plan) -> Report {
    stress::run(plan, &mut |_| {}, &AtomicBool::new(false)).expect("it runs")
}

fn plan(target: SocketAddr) -> Plan {
    Plan::steady(target, 40.0, Duration::ZERO, Duration::from_secs(1))
}

/// For peers that would keep everybody waiting: longer than one that sends what it has to send, and then
/// stays, is not run on a busy machine.
fn impatient(target: SocketAddr) -> Plan {
    plan(target).with_timeout(Duration::from_secs(3))
}

/// All forty fail alike, and this is the one row, beside those that a busy machine was too late to send.
#[track_caller]
fn only_row(report: &Report, outcome: Outcome, phase: Phase, errno_name: &str) {
    let row = |row: &ErrorRow| (row.outcome, row.phase, row.errno_name.clone(), row.count);
    let rows = report.totals.rows.iter().filter(|row| row.outcome != Outcome::NotSent);
    let rows: Vec<_> = rows.map(row).collect();
    let issued = report.totals.issued;
    assert_eq!(rows, [(outcome, phase, errno_name.to_owned(), issued)]);
    assert_eq!((report.totals.scheduled, report.totals.correct), (40, 0));
    assert!(issued > 0);
    assert_eq!(report.totals.latency.any_end.count, issued);
    assert_eq!(report.knee_qps, Some(40.0));
    assert_eq!(report.sustained_qps, None);
}

#[test]
fn a_peer_that_refuses() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    only_row(&run(&plan(port)), Outcome::Refused, Phase::Connect, "ECONNREFUSED");
}

#[test]
fn a_peer_that_resets() {
    let server = KnownServer::start(Behaviour::Reset).unwrap();
    only_row(&run(&plan(server.address)), Outcome::Reset, Phase::FirstByte, "ECONNRESET");
}

#[test]
fn a_peer_that_closes_early() {
    let server = KnownServer::start(Behaviour::Close).unwrap();
    only_row(&run(&plan(server.address)), Outcome::ClosedEarly, Phase::FirstByte, "");
    let server = KnownServer::start(Behaviour::Half).unwrap();
    only_row(&run(&plan(server.address)), Outcome::ClosedEarly, Phase::End, "");
}

#[test]
fn a_peer_that_never_answers() {
    let server = KnownServer::start(Behaviour::Never).unwrap();
    let report = run(&impatient(server.address));
    only_row(&report, Outcome::TimedOutWaiting, Phase::FirstByte, "");
    // Who loses patience closes first, and that is said.
    assert_eq!(report.closed_first, report.totals.issued);
    assert!(report.warnings[0].contains("TIME_WAIT"));
}

#[test]
fn a_peer_that_answers_and_never_closes() {
    let server = KnownServer::start(Behaviour::AnswerAndStay).unwrap();
    only_row(&run(&impatient(server.address)), Outcome::TimedOutWaiting, Phase::End, "");
}

#[test]
fn a_peer_that_answers_wrongly() {
    let server = KnownServer::start(Behaviour::Wrong).unwrap();
    let report = run(&plan(server.address));
    only_row(&report, Outcome::Wrong, Phase::Done, "");
    assert_eq!(report.totals.wrong, report.totals.issued);
}

#[test]
fn a_peer_that_answers_and_resets() {
    let server = KnownServer::start(Behaviour::AnswerAndReset).unwrap();
    only_row(&run(&plan(server.address)), Outcome::AnsweredThenReset, Phase::Done, "ECONNRESET");
}

#[test]
fn a_full_accept_queue() {
    let flags = SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
    bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let bound: SockaddrStorage = getsockname(listener.as_raw_fd()).unwrap();
    let target = SocketAddr::from(([127, 0, 0, 1], bound.as_sockaddr_in().unwrap().port()));
    let report = run(&impatient(target));
    let count = |outcome| report.records.iter().filter(|record| record.outcome == outcome).count();
    // With listen(0) one connection gets into the queue; nobody ever accepts it.
    assert_eq!(count(Outcome::TimedOutWaiting), 1);
    assert_eq!(count(Outcome::TimedOutConnecting) + count(Outcome::NotSent), 39);
}

#[test]
fn stalled_clients_are_counted_apart() {
    let patience = Duration::from_millis(600);
    let server = KnownServer::start(Behaviour::Patience(patience)).unwrap();
    let mut plan = Plan::steady(server.address, 40.0, Duration::ZERO, Duration::from_secs(2))
        .with_timeout(Duration::from_secs(10));
    for kind in StallKind::ALL {
        plan = plan.with_stall(format!("10%:{kind}").parse().unwrap());
    }
    let report = run(&plan);
    assert_eq!(report.totals.scheduled, 80);
    assert_eq!(report.totals.correct, report.totals.issued, "{:?}", report.totals.rows);
    for stalled in &report.stalled {
        // Whoever came last is perhaps not taken in yet when the run ends.
        let came = stalled.opened + stalled.never_accepted;
        assert_eq!((stalled.tried, came), (8, 8), "{stalled:?}");
        let let_go = stalled.let_go + stalled.reset;
        if stalled.kind == StallKind::Deaf {
            // It asked a whole question: the server answers and closes, and has no reason to wait.
            // The last ones come with the last requests, and may still be there when the run ends.
            assert_eq!(stalled.let_go + stalled.held, stalled.opened, "{stalled:?}");
            assert!(stalled.let_go > stalled.held && stalled.reset == 0, "{stalled:?}");
            continue;
        }
        // The last of them came less than the server's patience before the end, and are still held then.
        assert_eq!(let_go + stalled.held, stalled.opened, "{stalled:?}");
        assert!(let_go > 0 && stalled.let_go_after.min_ms >= 500.0, "{stalled:?}");
    }
}

#[test]
fn stalled_clients_hang_up_after_their_time() {
    let server = KnownServer::start(Behaviour::Answer(Duration::ZERO)).unwrap();
    let report = run(&impatient(server.address)
        .with_stall("10%:half-line".parse().unwrap())
        .with_stall_hold(Duration::from_millis(300)));
    let stalled = &report.stalled[0];
    assert_eq!((stalled.tried, stalled.opened + stalled.never_accepted), (4, 4), "{stalled:?}");
    assert_eq!(stalled.hung_up + stalled.held, stalled.opened, "{stalled:?}");
    assert!(stalled.hung_up > 0);
    assert!(report.warnings.iter().any(|warning| warning.contains("--stall-hold")));
}

#[test]
fn a_stalled_client_by_hand_says_who_let_go() {
    let patience = Duration::from_millis(500);
    let server = KnownServer::start(Behaviour::Patience(patience)).unwrap();
    for kind in [StallKind::Silent, StallKind::HalfLine, StallKind::Drip] {
        let mut opened = 0;
        let stop = AtomicBool::new(false);
        let held = stress::hold(kind, server.address, &stop, &mut |_, _| opened += 1).unwrap();
        assert_eq!(opened, 1);
        assert_ne!(held.release, Release::Stopped, "{kind}");
    }
    for (behaviour, release) in [
        (Behaviour::Answer(Duration::ZERO), Release::ServerClosed),
        (Behaviour::AnswerAndReset, Release::ServerReset),
    ] {
        let server = KnownServer::start(behaviour).unwrap();
        let stop = AtomicBool::new(false);
        let held = stress::hold(StallKind::Deaf, server.address, &stop, &mut |_, _| {}).unwrap();
        assert_eq!((held.release, held.received), (release, vec![]));
    }
    let stay = KnownServer::start(Behaviour::AnswerAndStay).unwrap();
    for kind in StallKind::ALL {
        let stop = AtomicBool::new(true);
        let held = stress::hold(kind, stay.address, &stop, &mut |_, _| {});
        // Told to stop before it began, it may not even have connected.
        assert!(held.is_err() || held.unwrap().release == Release::Stopped);
    }
}

#[test]
fn one_request_by_hand() {
    let patience = Duration::from_secs(10);
    let server = KnownServer::start(Behaviour::Answer(Duration::from_millis(300))).unwrap();
    let answered = stress::ask("7", server.address, patience).unwrap();
    assert_eq!(answered.answer, "Odd");
    assert!(answered.connect < answered.first_byte && answered.first_byte <= answered.total);
    assert!(answered.first_byte - answered.connect >= Duration::from_millis(250));
    let failing = [
        (Behaviour::Close, "closed without an answer"),
        (Behaviour::Never, "no answer within 3 s"),
        (Behaviour::AnswerAndStay, "has not closed within 3 s"),
    ];
    for (behaviour, words) in failing {
        let server = KnownServer::start(behaviour).unwrap();
        let error = stress::ask("7", server.address, Duration::from_secs(3)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}
