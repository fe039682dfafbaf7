//! The command line: what it says about itself, about mistakes, and how it ends.

use assert_cmd::Command;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    net::TcpListener,
    process::{Child, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use stress::{
    http,
    known::{Behaviour, KnownServer},
};

fn stress() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stress"));
    command.env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
    command
}

/// Exit status and everything said, as a snapshot holds it.
fn said(arguments: &[&str]) -> String {
    let output = stress().args(arguments).output().expect("stress runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "$ stress {}\nexit {:?}\n--- stdout\n{}--- stderr\n{}",
        arguments.join(" "),
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr)
    )
}

#[test]
fn help() {
    insta::assert_snapshot!("help", said(&["--help"]));
    insta::assert_snapshot!("help_run", said(&["run", "--help"]));
    insta::assert_snapshot!("help_hold", said(&["hold", "--help"]));
    insta::assert_snapshot!("help_ask", said(&["ask", "--help"]));
    insta::assert_snapshot!("help_calibrate", said(&["calibrate", "--help"]));
}

#[test]
fn mistakes() {
    let mistakes: &[&[&str]] = &[
        &["run"],
        &["run", "127.0.0.1"],
        &["run", "127.0.0.1:80", "--host", "127.0.0.1"],
        &["run", "127.0.0.1:0"],
        &["run", "127.0.0.1:80", "--staircase", "460..10:50"],
        &["run", "127.0.0.1:80", "--staircase", "10..460"],
        &["run", "127.0.0.1:80", "--staircase", "10..460:50", "--qps", "7"],
        &["run", "127.0.0.1:80", "--stall", "5:silent"],
        &["run", "127.0.0.1:80", "--stall", "1%:asleep"],
        &["run", "127.0.0.1:80", "--qps", "0"],
        &["run", "127.0.0.1:80", "--timeout", "0"],
        &["run", "127.0.0.1:80", "--connections", "0"],
        &["run", "127.0.0.1:80", "--arrivals", "sometimes"],
        &["run", "127.0.0.1:80", "--query", "x"],
        &["run", "127.0.0.1:80", "--frobnicate"],
        &["run", "127.0.0.1:80", "--saturate"],
        &["run", "127.0.0.1:80", "--http", "parity/7"],
        &["run", "127.0.0.1:80", "--http", "/", "--staircase", "10,20"],
        &["run", "127.0.0.1:80", "--http", "/", "--saturate", "--qps", "7"],
        &["run", "127.0.0.1:80", "--http", "/", "--pipeline", "0"],
        &["run", "127.0.0.1:80", "--http", "/", "--connections", "1", "--threads", "2"],
        &["run", "127.0.0.1:80", "--http", "/", "--json", "no-such-folder/report.json"],
        &["hold", "asleep", "127.0.0.1:80"],
        &["ask", "7"],
    ];
    let all: Vec<String> = mistakes.iter().map(|arguments| said(arguments)).collect();
    insta::assert_snapshot!("mistakes", all.join("\n"));
}

#[test]
fn nobody_there() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let words = |arguments: &[&str]| said(arguments).replace(&gone, "ADDRESS");
    let asked = words(&["ask", "7", &gone]);
    let held = words(&["hold", "silent", &gone]);
    insta::assert_snapshot!("nobody_there", format!("{asked}\n{held}"));
    let run =
        stress().args(["run", &gone, "--qps", "20", "--warmup", "0", "--steady", "1"]).output();
    let run = run.unwrap();
    // A server that fails is a result, not a failure of the run.
    assert!(matches!(run.status.code(), Some(0 | 3)), "{run:?}");
    let table = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(table.contains("refused, while connecting (ECONNREFUSED)"), "{table}");
}

#[test]
fn a_host_is_resolved_and_takes_the_load() {
    let server = KnownServer::start(Behaviour::Answer(Duration::ZERO)).unwrap();
    let host = format!("localhost:{}", server.address.port());
    let run = stress().args(["run", "--host", &host, "--qps", "20", "--steady", "1"]).output();
    let run = run.unwrap();
    assert!(String::from_utf8_lossy(&run.stderr).contains("resolved once"), "{run:?}");
    assert!(!server.log().is_empty(), "{run:?}");
}

#[test]
fn a_plan_for_more_descriptors_than_there_are_is_refused_with_the_remedy() {
    let server = KnownServer::start(Behaviour::Answer(Duration::ZERO)).unwrap();
    let limited = |more: &str| -> Output {
        let command = format!(
            "ulimit -n 64; exec {} run {} --qps 200 --warmup 0 --steady 2 --timeout 1 {more}",
            env!("CARGO_BIN_EXE_stress"),
            server.address
        );
        Command::new("sh").args(["-c", &command]).output().unwrap()
    };
    let refused = limited("");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    for part in ["RLIMIT_NOFILE", "200 connections", "limit is 64", "--connections", "ulimit"] {
        assert!(words.contains(part), "no '{part}' in: {words}");
    }
    assert!(server.log().is_empty(), "it was to be refused before the first request");
    let within = limited("--connections 10");
    assert_ne!(within.status.code(), Some(1), "{}", String::from_utf8_lossy(&within.stderr));
    assert!(!server.log().is_empty());
}

#[test]
fn more_connections_than_descriptors_are_refused_before_the_first_request() {
    let server = http::known::KnownServer::start(http::known::Behaviour::Status(200)).unwrap();
    let limited = |connections: u32| -> Output {
        let command = format!(
            "ulimit -n 64; exec {} run {} --http / --saturate --warmup 0 --steady 0.5 \
             --connections {connections}",
            env!("CARGO_BIN_EXE_stress"),
            server.address
        );
        Command::new("sh").args(["-c", &command]).output().unwrap()
    };
    let refused = limited(200);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    for part in ["RLIMIT_NOFILE", "200 connections", "limit is 64", "--connections", "ulimit"] {
        assert!(words.contains(part), "no '{part}' in: {words}");
    }
    assert!(server.log().is_empty(), "it was to be refused before the first request");
    let within = limited(10);
    assert_ne!(within.status.code(), Some(1), "{}", String::from_utf8_lossy(&within.stderr));
    assert!(!server.log().is_empty());
}

#[test]
fn a_cpu_that_is_not_there_is_refused_with_those_that_are() {
    for cpu in ["1000", "100000"] {
        let run = stress()
            .args(["run", "127.0.0.1:9", "--http", "/", "--cpu", cpu, "--warmup", "0"])
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{words}");
        assert!(words.contains(&format!("--cpu {cpu}")), "{words}");
        assert!(words.contains("may run on CPU "), "{words}");
    }
}

#[test]
fn http_writes_its_files_and_says_when_it_was_stopped() {
    let server = http::known::KnownServer::start(http::known::Behaviour::Status(200)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, log, hdr) = (file("r.json"), file("r.jsonl"), file("r.hlog"));
    let address = server.address.to_string();
    let run = stress()
        .args(["run", "--http", "/parity/7", &address, "--qps", "200", "--warmup", "0"])
        .args(["--connections", "3", "--steady", "1", "--cpu", "0"])
        .args(["--json", &json, "--log", &log, "--hdr", &hdr])
        .output()
        .unwrap();
    assert!(matches!(run.status.code(), Some(0 | 3)), "{run:?}");
    let table = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(table.contains("=== GET /parity/7: open loop"), "{table}");
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let report: serde_json::Value = serde_json::from_str(&read(&json)).unwrap();
    let correct = report["correct"].as_u64().unwrap();
    assert!(correct > 0 && report["latency"]["count"] == correct, "{report}");
    assert_eq!(report["fairness"]["starved"], 0);
    let lines: Vec<serde_json::Value> =
        read(&log).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len() as u64, correct);
    let moment = |line: &serde_json::Value, name: &str| line[name].as_f64().unwrap();
    assert!(lines.iter().all(|line| moment(line, "t_close") > moment(line, "t_scheduled")));
    assert!(read(&hdr).starts_with("#[Histogram log format version 1.3]"));

    // Stopped for a second, it leaves out what it could not send in time, and says so.
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_stress"))
        .args(["run", "--http", "/", &address, "--qps", "100", "--warmup", "0", "--steady", "4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let before = server.log().len();
    let start = Instant::now();
    while server.log().len() < before + 20 {
        assert!(start.elapsed() < Duration::from_secs(20), "the generator does not begin");
        thread::sleep(Duration::from_millis(10));
    }
    kill(pid(&child), Signal::SIGSTOP).unwrap();
    thread::sleep(Duration::from_secs(1));
    kill(pid(&child), Signal::SIGCONT).unwrap();
    let (status, table) = end(child);
    assert_eq!(status, Some(3), "{table}");
    assert!(table.contains("CLIENT-BOUND") && table.contains("not sent"), "{table}");
    assert!(server.log().len() - before < 380, "{} of 400 arrived", server.log().len() - before);
}

#[test]
fn a_stopped_generator_blames_itself() {
    let server = KnownServer::start(Behaviour::Answer(Duration::ZERO)).unwrap();
    let child = spawn(&server, &["--qps", "100", "--warmup", "0", "--steady", "4"]);
    wait_for(&server, 20);
    kill(pid(&child), Signal::SIGSTOP).unwrap();
    thread::sleep(Duration::from_secs(1));
    kill(pid(&child), Signal::SIGCONT).unwrap();
    let (status, table) = end(child);
    assert_eq!(status, Some(3), "{table}");
    assert!(table.contains("CLIENT-BOUND"), "{table}");
    assert!(table.contains("not sent: the generator was late"), "{table}");
    // No burst makes up for what was missed: far fewer than planned have arrived.
    assert!(server.log().len() < 380, "{} of 400 arrived", server.log().len());
}

#[test]
fn ctrl_c_reports_what_there_is() {
    let server = KnownServer::start(Behaviour::Answer(Duration::ZERO)).unwrap();
    let child = spawn(&server, &["--qps", "50", "--steady", "600"]);
    wait_for(&server, 20);
    kill(pid(&child), Signal::SIGINT).unwrap();
    let (_, table) = end(child);
    assert!(table.contains("Interrupted: this is what there was until then"), "{table}");
    assert!(table.contains("Sustained:"), "{table}");
}

fn spawn(server: &KnownServer, arguments: &[&str]) -> Child {
    std::process::Command::new(env!("CARGO_BIN_EXE_stress"))
        .args(["run", &server.address.to_string()])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("stress starts")
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

fn wait_for(server: &KnownServer, requests: usize) {
    let start = Instant::now();
    while server.log().len() < requests {
        assert!(start.elapsed() < Duration::from_secs(20), "the generator does not begin");
        thread::sleep(Duration::from_millis(10));
    }
}

fn end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("stress ends");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}
