//! The command line: what it says of itself, and its sentences when it cannot.

use assert_cmd::Command;
use lab::trace::record::Timeline;
use std::{fs, path::Path};

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments);
    command
}

fn stdout(arguments: &[&str]) -> String {
    let output = lab(arguments).assert().success().get_output().stdout.clone();
    String::from_utf8(output).expect("text")
}

/// What it says on stderr when it ends with `status`.
fn sentence(arguments: &[&str], status: i32) -> String {
    let output = lab(arguments).assert().code(status).get_output().stderr.clone();
    String::from_utf8(output).expect("text")
}

#[test]
fn it_says_what_it_can_do() {
    insta::assert_snapshot!("help", stdout(&["--help"]));
    insta::assert_snapshot!("help_race", stdout(&["race", "--help"]));
    insta::assert_snapshot!("help_scaling", stdout(&["scaling", "--help"]));
    insta::assert_snapshot!("help_spread", stdout(&["spread", "--help"]));
    insta::assert_snapshot!("help_link", stdout(&["link", "--help"]));
    insta::assert_snapshot!("help_all", stdout(&["all", "--help"]));
    insta::assert_snapshot!("help_stalls", stdout(&["stalls", "--help"]));
    insta::assert_snapshot!("help_staircase", stdout(&["staircase", "--help"]));
    insta::assert_snapshot!("help_trace", stdout(&["trace", "--help"]));
    insta::assert_snapshot!("help_suites", stdout(&["suites", "--help"]));
    insta::assert_snapshot!("list", stdout(&["list"]));
}

#[test]
fn an_unknown_server_is_a_sentence_that_lists_the_known_ones() {
    insta::assert_snapshot!(sentence(&["race", "--servers", "01,09"], 2));
    assert!(sentence(&["trace", "01,09"], 2).starts_with("cargo lab: no server is called '09': "));
}

#[test]
fn an_unknown_experiment_and_two_lengths_at_once_are_refused() {
    assert!(sentence(&["relay"], 2).contains("unrecognized subcommand 'relay'"));
    assert!(sentence(&["race", "--full", "--smoke"], 2).contains("cannot be used with"));
    assert!(sentence(&["all", "--full", "--smoke"], 2).contains("cannot be used with"));
    assert!(sentence(&["staircase", "--short", "--smoke"], 2).contains("cannot be used with"));
    let said = sentence(&["staircase", "--stalls", "silent,sleepy"], 2);
    assert!(said.contains("no stalled client is called 'sleepy'"), "{said}");
}

#[test]
fn a_link_that_makes_no_sense_is_refused() {
    let said = sentence(&["link", "--loss", "200", "--", "true"], 2);
    assert_eq!(said, "cargo lab: the loss is 200 %: it has to be 0 to 100 %\n");
    assert!(sentence(&["link", "--profile", "wifi-7", "--", "true"], 2).contains("satellite"));
    assert!(sentence(&["link"], 2).contains("<COMMAND>..."));
}

#[test]
fn a_trace_is_shown_and_kept() {
    let program = contract::build::program("ch04").expect("04 compiles");
    let programs = program.parent().and_then(Path::to_str).expect("a folder");
    let out = tempfile::tempdir().expect("a folder");
    let folder = out.path().to_str().expect("text");
    let arguments = ["trace", "ch04,01", "--clients", "3", "--batch", "8"];
    let output =
        lab(&[&arguments[..], &["--binaries", programs, "--out", folder]].concat()).output();
    let output = output.expect("the lab");
    let (said, errors) = (text(output.stdout), text(output.stderr));
    if errors.contains("cargo lab: NEEDS ptrace: ") {
        assert_eq!(output.status.code(), Some(1));
        return;
    }
    assert!(output.status.success(), "{errors}");
    assert!(said.contains("3 one at a time             8 at once"), "{said}");
    assert!(said.contains("(2 got in) "), "01 lets two in: {said}");
    let read = |name: &str| fs::read_to_string(out.path().join(name)).expect(name);
    let counts = read("trace.csv");
    assert!(counts.starts_with("experiment,server,threads,asked,answers,call,count,per_answer\n"));
    assert!(counts.contains("\ntrace-idle,ch04,1,3,3,sendto,3,1.0\n"), "{counts}");
    assert!(counts.contains("\ntrace-batch,ch01,1,2,2,sendto,2,1.0\n"), "{counts}");
    assert!(read("trace.json").contains("no latency"));
    let lines: Vec<Timeline> = serde_json::from_str(&read("trace-timeline.json")).expect("JSON");
    assert_eq!(lines.len(), 4);
    let sends = lines[0].calls.iter().filter(|it| it.call == "sendto" && it.returned == Some(4));
    assert_eq!(sends.count(), 3, "each is `Odd` and its end");
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_suite_that_is_not_there_is_told_with_what_to_do() {
    let said = sentence(&["suites", "--gunicorn", "/nowhere"], 1);
    assert!(
        said.contains("/nowhere/tests/requests/valid: this is no source of gunicorn"),
        "{said}"
    );
    assert!(said.contains("give its folder: --h1spec FOLDER"), "{said}");
    let said = sentence(&["suites", "--gunicorn", "/nowhere", "--h1spec", "/nowhere"], 1);
    assert!(said.contains("/nowhere/h1spec/__init__.py: no such file"), "{said}");
}

#[test]
fn programs_that_are_not_there_are_named() {
    let said = sentence(&["race", "--smoke", "--binaries", "/nowhere"], 1);
    assert!(said.contains("/nowhere/ch01: no such program"), "{said}");
    let said = sentence(&["trace", "ch01", "--binaries", "/nowhere"], 1);
    assert!(said.contains("/nowhere/ch01: no such program"), "{said}");
}
