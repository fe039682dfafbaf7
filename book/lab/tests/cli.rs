//! The command line: what it says of itself, and its sentences when it cannot.

use assert_cmd::Command;

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
    insta::assert_snapshot!("list", stdout(&["list"]));
}

#[test]
fn an_unknown_server_is_a_sentence_that_lists_the_known_ones() {
    insta::assert_snapshot!(sentence(&["race", "--servers", "01,09"], 2));
}

#[test]
fn an_unknown_experiment_and_two_lengths_at_once_are_refused() {
    assert!(sentence(&["relay"], 2).contains("unrecognized subcommand 'relay'"));
    assert!(sentence(&["race", "--full", "--smoke"], 2).contains("cannot be used with"));
}

#[test]
fn programs_that_are_not_there_are_named() {
    let said = sentence(&["race", "--smoke", "--binaries", "/nowhere"], 1);
    assert!(said.contains("/nowhere/ch01: no such program"), "{said}");
}
