//! Each experiment, taken small: that its record is there, and that it shows what it exists to show.
//! And a second start, which goes on where the first one was stopped.

use assert_cmd::Command;
use lab::{
    backlog, knee, memory, names, patience,
    records::{Record, read_csv},
    trace::record::Count,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::de::DeserializeOwned;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{self, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_lab");

/// What a busy machine needs for something that takes a second.
const LONG: Duration = Duration::from_secs(30);

/// Where the chapters' programs are.
fn programs() -> PathBuf {
    let program = contract::build::program("ch04").expect("the chapters compile");
    program.parent().expect("a folder").to_owned()
}

/// What `cargo lab NAME --smoke` says on stderr, its status, and its record.
fn smoke<T: DeserializeOwned>(name: &str, more: &[&str]) -> (String, bool, Vec<T>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(LAB);
    command.args([name, "--smoke"]).args(more).arg("--out").arg(folder.path());
    let output = command.arg("--binaries").arg(programs()).output().expect("the lab");
    let said = String::from_utf8(output.stderr).expect("text");
    (said, output.status.success(), record(folder.path(), name))
}

/// The record, or nothing if none was written.
fn record<T: DeserializeOwned>(folder: &Path, name: &str) -> Vec<T> {
    let file = fs::read(folder.join(format!("{name}.csv"))).unwrap_or_default();
    read_csv(&file[..]).expect("rows of this kind")
}

/// The rows of one that ended well.
fn good<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let (said, success, rows) = smoke(name, &[]);
    assert!(success, "{said}");
    assert!(!rows.is_empty(), "{said}");
    rows
}

/// Says that nothing was judged, and why. Not by `eprintln!`, which a test that passes keeps to itself.
fn needs(what: &str) {
    std::io::stderr().write_all(format!("NOT TRIED: NEEDS {what}\n").as_bytes()).expect("stderr");
}

#[test]
fn who_waits_for_stalled_clients_answers_fewer() {
    let rows: Vec<Record> = good("stalls");
    // Clients that were late each time it was tried say nothing of a server.
    let late: Vec<&str> =
        rows.iter().filter(|it| it.client_bound).map(|it| it.server.as_str()).collect();
    if !late.is_empty() {
        needs(&format!("a quieter machine: the clients of {late:?} were late, each time anew"));
        return;
    }
    let correct = |server: &str, stall: &str| {
        let row = rows.iter().find(|it| it.server == server && it.stall == stall);
        row.unwrap_or_else(|| panic!("no row of {server} with {stall} clients")).correct
    };
    for (server, stall) in [("ch01", "silent"), ("ch02", "silent"), ("ch03", "half-line")] {
        let (poor, best) = (correct(server, stall), correct("ch04", stall));
        assert!(3 * poor < 2 * best, "{server} with {stall} clients: {poor} to {best}");
    }
    // Who never reads an answer that fits into a buffer keeps nobody waiting.
    let (deaf, best) = (correct("ch02", "deaf"), correct("ch04", "deaf"));
    assert!(3 * deaf > 2 * best, "ch02 with deaf clients: {deaf} to {best}");
}

#[test]
fn the_queue_of_02_is_as_long_as_predicted() {
    let rows: Vec<patience::Row> = good("patience");
    let [one, two] = &rows[..] else { panic!("a load of 1 and of 2: {rows:?}") };
    assert_eq!((one.rho, two.rho), (1.0, 2.0));
    for row in [one, two] {
        let longest = row.max_ms.expect("somebody was answered");
        // A busy machine makes it longer, nothing makes it much shorter.
        assert!(longest > 0.8 * row.predicted_max_ms, "{row:?}");
    }
    assert!(two.max_ms > one.max_ms, "{one:?} {two:?}");
}

#[test]
fn a_client_that_does_nothing_costs_little() {
    let rows: Vec<memory::Row> = good("memory");
    assert_eq!(rows.len(), 6, "three servers, two crowds: {rows:?}");
    for row in rows.iter().filter(|it| it.clients == 1_000) {
        assert!((1.0..1_000.0).contains(&row.bytes_per_client), "{row:?}");
    }
}

#[test]
fn a_ring_makes_fewer_system_calls_for_many() {
    let (said, success, rows): (_, _, Vec<Count>) = smoke("syscalls", &[]);
    if said.contains("NEEDS ptrace") {
        assert!(!success);
        return;
    }
    assert!(success, "{said}");
    let calls = |server: &str, experiment: &str| {
        let is_it =
            |it: &&Count| it.server == server && it.experiment == experiment && it.call == "all";
        rows.iter().find(is_it).and_then(|it| it.per_answer)
    };
    let alone = calls("ch04", "syscalls-one-at-a-time").expect("04 was traced");
    assert!(alone >= 5.0, "accept4, epoll_ctl, recvfrom, sendto, close: {alone}");
    if let Some(ring) = calls("ch06", "syscalls-at-once") {
        assert!(2.0 * ring < calls("ch04", "syscalls-at-once").expect("04 was traced"), "{ring}");
    }
}

#[test]
fn a_slow_resolver_loses_those_who_ask_it_each_time() {
    let rows: Vec<names::Row> = good("names");
    let percent = |lookup: &str, rate: f64| {
        let row = rows.iter().find(|it| it.lookup == lookup && it.target_qps == rate);
        row.unwrap_or_else(|| panic!("no row of {lookup} at {rate}")).success_percent
    };
    // The resolver answers half of those who come at 250 per second, and those who wait at the end.
    let (once, each) = (percent("once", 250.0), percent("per-request", 250.0));
    assert!(each < 0.8 * once, "{each} % to {once} %");
    assert!(each > 0.0 && percent("per-request", 50.0) > each);
}

#[test]
fn a_staircase_counts_what_the_link_carries() {
    let (said, success, rows): (_, _, Vec<Record>) =
        smoke("staircase", &["--servers", "01,04", "--side-by-side", "2"]);
    if rows.is_empty() {
        // One sentence, and no success: this machine lets us make no link.
        assert!(!success && said.lines().any(|it| it.starts_with("cargo lab: ")), "{said}");
        needs(&format!("network namespaces: {said}"));
        return;
    }
    assert!(success, "{said}");
    let mine: Vec<&Record> = rows.iter().filter(|it| it.server == "ch04").collect();
    assert_eq!((rows.len(), mine.len()), (4, 2));
    assert!(rows.iter().all(|it| it.link == "wifi-2.4" && it.seed == Some(1)));
    let sum = |count: fn(&Record) -> u64| mine.iter().map(|it| count(it)).sum::<u64>();
    let (packets, requests) = (sum(|it| it.link_packets.unwrap_or(0)), sum(|it| it.scheduled));
    // SYN, ACK, data, ACK, FIN and their like from the other side; some come after the last step.
    assert!((5 * requests..20 * requests).contains(&packets), "{packets} for {requests}");
    assert!(mine.iter().all(|it| it.spoiled.is_some() && it.lateness_p99_ms.is_some()));
    // Three ways of light, at 15 ms each on average, and no packet is earlier than 8 ms.
    assert!(mine.iter().all(|it| it.p50_ms > Some(32.0)), "{mine:?}");
}

#[test]
fn a_kept_connection_takes_fewer_packets() {
    let (said, success, rows): (_, _, Vec<knee::Row>) = smoke("knee", &[]);
    if rows.is_empty() {
        assert!(!success && said.lines().any(|it| it.starts_with("cargo lab: ")), "{said}");
        needs(&format!("network namespaces: {said}"));
        return;
    }
    let of = |experiment: &str| -> Vec<&knee::Row> {
        rows.iter().filter(|it| it.experiment == experiment).collect()
    };
    let (each, kept) = (of("knee-run"), of("knee-kept-run"));
    let ([each], [kept]) = (&each[..], &kept[..]) else { panic!("a run of each: {rows:?}") };
    assert_eq!((each.server.as_str(), kept.server.as_str()), ("ch04", "ch07"));
    assert_eq!(each.packets_per_second, kept.packets_per_second);
    let packets = |row: &knee::Row| row.packets_per_request.expect("they are counted");
    // Three where there were ten.
    let ratio = packets(each) / packets(kept);
    assert!((2.5..4.5).contains(&ratio), "{} and {} packets", packets(each), packets(kept));
    // Half as many ways, and no packet is earlier than 8 ms.
    assert!(kept.p50_ms > Some(16.0) && kept.p50_ms < each.p50_ms, "{kept:?} {each:?}");
    // At three times the rate that the link allows, the requests wait for those before them.
    let steps = of("knee-kept");
    assert_eq!(steps.len(), 3, "{rows:?}");
    let waiting = |row: &knee::Row| {
        let (waiting, scheduled) = (row.waiting.expect("a count"), row.scheduled.expect("a count"));
        waiting as f64 / scheduled as f64
    };
    assert!(waiting(steps[0]) < 0.1 && waiting(steps[2]) > 0.25, "{steps:?}");
}

#[test]
fn a_second_start_goes_on_where_the_first_was_stopped() {
    let stopped = Stopped::after_a_part("backlog");
    let done: Vec<backlog::Row> = stopped.record();
    let whole = 4;
    assert!((1..whole).contains(&done.len()), "what was done is written, and not all: {done:?}");
    stopped.goes_on();
    let rows: Vec<backlog::Row> = stopped.record();
    assert_eq!(rows.len(), whole);
    assert_eq!(rows[..1], done[..1], "what was done is taken as it was");
    for row in &rows {
        assert_eq!(row.at_once, row.predicted_at_once, "{row:?}");
    }
    assert!(rows.iter().any(|it| it.at_first_retry + it.later > 0), "{rows:?}");
}

#[test]
fn the_trials_of_spread_go_on_and_a_fresh_start_does_not() {
    let stopped = Stopped::after_a_part("spread");
    let done: Vec<Record> = stopped.record();
    let kept = fs::read(&stopped.partial).expect("a journal");
    stopped.goes_on();
    let rows: Vec<Record> = stopped.record();
    let reactors = rows[0].reactors.expect("they are counted");
    let shape: Vec<_> = rows.iter().map(|it| (it.clients, it.step, it.reactor)).collect();
    let trial = |clients, step| (1..=reactors).map(move |at| (Some(clients), step, Some(at)));
    let all: Vec<_> = [trial(10, 1), trial(10, 2), trial(100, 1)].into_iter().flatten().collect();
    assert_eq!(shape, all);
    // All of the trials, if we were not run for a moment: then the reactor that stands still is what was left.
    assert!((reactors..=rows.len()).contains(&done.len()), "as many trials: {done:?}");
    assert_eq!(rows[..done.len()], done[..], "what was done is taken as it was");

    fs::write(&stopped.partial, kept).expect("the journal of the first start");
    let said = stopped.again(&["--fresh"]);
    assert!(!said.contains("an earlier start"), "{said}");
    assert!(!stopped.partial.exists());
}

#[test]
fn a_server_that_was_traced_is_not_traced_again() {
    let Some(stopped) = Stopped::try_after_a_part("syscalls") else {
        needs("ptrace: nothing was traced, so that nothing was interrupted");
        return;
    };
    let done: Vec<Count> = stopped.record();
    stopped.goes_on();
    let rows: Vec<Count> = stopped.record();
    let mut servers: Vec<&str> = rows.iter().map(|it| it.server.as_str()).collect();
    servers.dedup();
    assert!(servers.starts_with(&["ch01", "ch02", "ch03", "ch04", "ch05"]), "{servers:?}");
    // Each call of the first, as it was: a second look would have other counts of threads and waits.
    let first = |rows: &[Count]| -> Vec<Count> {
        rows.iter().filter(|it| it.server == "ch01").cloned().collect()
    };
    assert!(!done.is_empty() && done.len() < rows.len(), "some, and not all: {done:?}");
    assert_eq!(first(&rows), first(&done));
}

/// An experiment in its smallest form that was interrupted when its first part was done.
struct Stopped {
    name: &'static str,
    folder: TempDir,
    /// The journal.
    partial: PathBuf,
}

impl Stopped {
    fn after_a_part(name: &'static str) -> Stopped {
        Stopped::try_after_a_part(name).expect("it does a part")
    }

    /// `None` if it ended without having done anything.
    fn try_after_a_part(name: &'static str) -> Option<Stopped> {
        let folder = tempfile::tempdir().expect("a folder");
        let partial = folder.path().join(format!("{name}-smoke.partial.jsonl"));
        let mut first = Running::start(name, &folder);
        let start = Instant::now();
        while !fs::read_to_string(&partial).is_ok_and(|text| text.lines().count() >= 2) {
            assert!(start.elapsed() < LONG, "nothing is done");
            if first.0.try_wait().expect("waitpid").is_some() {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
        kill(first.pid(), Signal::SIGINT).expect("the lab runs");
        assert_eq!(first.0.wait().expect("waitpid").code(), Some(130));
        assert!(partial.exists(), "what is done is kept");
        Some(Stopped { name, folder, partial })
    }

    fn record<T: DeserializeOwned>(&self) -> Vec<T> {
        record(self.folder.path(), self.name)
    }

    /// Starts it again, and lets it come to its end.
    fn again(&self, more: &[&str]) -> String {
        let mut command = Command::new(LAB);
        command.args([self.name, "--smoke", "--out"]).arg(self.folder.path()).args(more);
        let output = command.arg("--binaries").arg(programs()).assert().success();
        String::from_utf8(output.get_output().stderr.clone()).expect("text")
    }

    /// As [`Stopped::again`], and it does what is left.
    fn goes_on(&self) {
        let said = self.again(&[]);
        assert!(said.contains("this one goes on from there (--fresh begins anew)"), "{said}");
        assert!(!self.partial.exists(), "it is whole");
    }
}

/// `cargo lab NAME --smoke`, as a process of its own.
struct Running(process::Child);

impl Running {
    fn start(name: &str, folder: &TempDir) -> Running {
        let mut command = process::Command::new(LAB);
        command.args([name, "--smoke", "--out"]).arg(folder.path());
        command.arg("--binaries").arg(programs());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("the lab"))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}
