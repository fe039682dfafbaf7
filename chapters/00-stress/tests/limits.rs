//! What runs out in the generator is said before the run, or counted as its own, and never as the server's fault.
//!
//! Limits belong to a process: these tests have one for themselves, and run one after the other.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{
    net::TcpListener,
    sync::{Mutex, atomic::AtomicBool},
    time::Duration,
};
use stress::{
    Outcome, Plan,
    known::{Behaviour, KnownServer},
};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn thirty_thousand_requests_do_not_run_out_of_ports() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Nobody is answered, so that this side closes first each time and its ports are locked.
    let server = KnownServer::start(Behaviour::Never).unwrap();
    let plan = Plan::steady(server.address, 4500.0, Duration::ZERO, Duration::from_secs(10))
        // Long enough to be told from a moment in which this machine does something else.
        .with_timeout(Duration::from_millis(300))
        .with_connections(2000);
    let report = stress::run(&plan, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    let count = |outcome| report.records.iter().filter(|record| record.outcome == outcome).count();
    assert_eq!(count(Outcome::OutOfPorts), 0);
    let locked = report.closed_first;
    // Who has no time for so many has not found out whether there are ports for them.
    if report.client_bound && report.totals.issued <= 30_000 {
        // Not `eprintln!`, which a test that passes keeps to itself.
        let (issued, scheduled) = (report.totals.issued, report.totals.scheduled);
        let what = format!("NOT TRIED: NEEDS a quicker machine: {issued} of {scheduled} left\n");
        std::io::Write::write_all(&mut std::io::stderr(), what.as_bytes()).unwrap();
        return;
    }
    assert!(locked > 30_000, "{locked} locked ports\n{}", stress::table(&report));
}

#[test]
fn a_process_out_of_descriptors_blames_itself() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // The kernel accepts into the queue; nobody answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let plan = Plan::steady(target, 40.0, Duration::ZERO, Duration::from_secs(2))
        .with_timeout(Duration::from_secs(2));
    let mut lowered = false;
    let report = stress::run(
        &plan,
        &mut |_| {
            if !lowered {
                lowered = true;
                setrlimit(Resource::RLIMIT_NOFILE, 30, hard).unwrap();
            }
        },
        &AtomicBool::new(false),
    );
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let report = report.unwrap();
    let row = report.totals.rows.iter().find(|row| row.outcome == Outcome::OutOfDescriptors);
    assert_eq!(row.unwrap().errno_name, "EMFILE");
    assert!(report.client_bound);
    assert!(stress::table(&report).contains("CLIENT-BOUND"));
}
