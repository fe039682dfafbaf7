//! The costs of an answer, measured of servers that are all the bare loop under other names.

use assert_cmd::Command;
use contract::server::Server;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_lab");

/// What a busy machine needs to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server whose script takes whatever command line it is given.
fn server(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// A folder with 04 and 05, and `ch06` as its script says.
fn servers(ch06: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let bare = format!("exec '{LAB}' bare --politely");
    server(folder.path(), "ch04", &bare);
    server(folder.path(), "ch05", &bare);
    server(folder.path(), "ch06", ch06.replace("BARE", &bare).as_str());
    folder
}

/// What `cargo lab scaling --smoke` says, on stderr and stdout, and the record.
fn scaling(folder: &TempDir, status: i32) -> (String, String, String) {
    let out: PathBuf = folder.path().join("out");
    let mut command = Command::new(LAB);
    command.args(["scaling", "--smoke", "--binaries"]).arg(folder.path()).arg("--out").arg(&out);
    let output = command.assert().code(status).get_output().clone();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let record = fs::read_to_string(out.join("scaling.csv")).expect("a record");
    (text(output.stderr), text(output.stdout), record)
}

#[test]
fn the_bare_loop_answers_and_leaves() {
    for end in ["--politely", "--at-once"] {
        let server = Server::start_with_options(LAB.as_ref(), "bare", &[end]).expect("a server");
        for (request, answer) in [("7\n", "Odd\n"), ("12\n", "Even\n"), ("x\n", "Invalid\n")] {
            let mut client = server.connect("a client").expect("a connection");
            let heard = client.ask(request.as_bytes(), PATIENCE);
            assert!(heard.is(answer.as_bytes()), "{end}: {request:?} heard {heard}");
        }
    }
}

#[test]
fn everybody_is_measured_and_the_bare_loop_twice() {
    let (_, board, record) = scaling(&servers("BARE"), 0);
    for name in ["bare", "bare-least", "04", "05", "06", "bare-again"] {
        assert!(board.lines().any(|it| it.split_whitespace().next() == Some(name)), "{board}");
    }
    for row in ["one-core,bare,", "one-core,bare-again,", "all-cores,ch04,", "all-cores,ch06,"] {
        assert!(record.contains(&format!("\nscaling-{row}")), "no {row} in {record}");
    }
}

#[test]
fn where_io_uring_is_refused_06_is_left_out_in_a_sentence() {
    let refused = "echo 'ch06: io_uring_setup: EPERM: io_uring is forbidden' >&2; exit 1";
    let (said, board, record) = scaling(&servers(refused), 0);
    assert!(said.contains("note: 06 is left out: "), "{said}");
    assert!(said.contains("io_uring is forbidden"), "{said}");
    assert!(!record.contains("ch06") && record.contains("ch05"), "{record}");
    assert!(!board.contains("\n  06"), "{board}");
}

#[test]
fn a_server_that_does_not_start_for_another_reason_is_a_failure() {
    let (said, _, record) = scaling(&servers("echo 'ch06: bind: no' >&2; exit 1"), 1);
    assert!(said.contains("06 cannot run") && said.contains("ch06: bind: no"), "{said}");
    assert!(record.contains("ch05"), "{record}");
}
