//! What runs under limits can do little, and nothing of it is left.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use course::confine::{Confined, Ended, Limits};

const LIMITS: Limits =
    Limits { wall: Duration::from_secs(20), processes: 64, memory_mib: 300, descriptors: 50 };

/// Runs a script of the shell: how it ended, what it said, and how long it took.
fn run(script: &str, limits: Limits) -> (Ended, String, Duration) {
    let confined = Confined {
        course: env!("CARGO_BIN_EXE_course").into(),
        limits,
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        folder: "/".into(),
        variables: vec![("GIVEN".into(), "a variable".into())],
    };
    let start = Instant::now();
    let mut said = String::new();
    let ended = confined.run(|line| said += &format!("{line}\n")).unwrap();
    (ended, said, start.elapsed())
}

/// Whether a process has this argument.
fn runs(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    lines.into_iter().any(|it| it.split(|it| *it == 0).any(|it| it == argument.as_bytes()))
}

#[test]
fn a_program_is_heard_and_its_status_is_its_own() {
    let (ended, said, _) = run("echo one; echo $GIVEN; echo three >&2; exit 7", LIMITS);
    assert_eq!((ended.status, said.as_str()), (Some(7), "one\na variable\n"));
    assert_eq!(ended.stderr, "three\n");
    let (ended, ..) = run("kill -9 $$", LIMITS);
    assert_eq!(ended.status, Some(128 + 9));
}

#[test]
fn its_limits_are_as_they_were_given() {
    let (_, said, _) = run("ulimit -n; ulimit -v; ulimit -Hn; ulimit -c", LIMITS);
    assert_eq!(said, format!("50\n{}\n50\n0\n", 300 * 1024));
}

#[test]
fn nothing_is_left_of_what_takes_too_long() {
    let limits = Limits { wall: Duration::from_millis(700), ..LIMITS };
    // In the group, in a session of its own, and twice removed from its parent.
    let script = "sleep 7101.25 & setsid sleep 7102.25 & (setsid sleep 7103.25 &) ; echo begun; sleep 7104.25";
    let (ended, said, took) = run(script, limits);
    assert_eq!((ended.status, said.as_str()), (None, "begun\n"));
    assert!(took < Duration::from_secs(10), "{took:?}");
    for argument in ["7101.25", "7102.25", "7103.25", "7104.25"] {
        assert!(!runs(argument), "sleep {argument} still runs");
    }
}

#[test]
fn nothing_is_left_of_what_ends_early() {
    let (ended, ..) = run("(setsid sleep 7105.25 &); exit 0", LIMITS);
    assert_eq!(ended.status, Some(0));
    assert!(!runs("7105.25"));
}

#[test]
fn a_flood_of_output_is_cut_off() {
    let limits = Limits { wall: Duration::from_secs(3), ..LIMITS };
    let (ended, said, took) = run("yes >&2", limits);
    // It is killed by the closed pipe, or by the time.
    assert_ne!(ended.status, Some(0));
    assert!(said.is_empty() && ended.stderr.len() <= 1024 * 1024, "{}", ended.stderr.len());
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_program_that_is_not_there_is_told() {
    let confined = Confined {
        course: env!("CARGO_BIN_EXE_course").into(),
        limits: LIMITS,
        program: Path::new("/nowhere/at/all").into(),
        arguments: Vec::new(),
        folder: "/".into(),
        variables: Vec::new(),
    };
    let ended = confined.run(|_| {}).unwrap();
    assert_eq!(ended.status, Some(126));
    assert!(ended.stderr.contains("/nowhere/at/all: No such file"), "{}", ended.stderr);
}
