//! The costs of an answer, measured of servers that are all the bare loop under other names.

use assert_cmd::Command;
use contract::server::Server;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{self, Stdio},
    thread,
    time::{Duration, Instant},
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

#[test]
fn a_second_start_goes_on_round_by_round_unless_a_program_has_changed() {
    let folder = servers("BARE");
    let partial = folder.path().join("out/scaling-smoke.partial.jsonl");
    interrupt_after_a_part(&folder, &partial);
    let kept = fs::read(&partial).expect("a journal");
    let round = |record: &str| -> Vec<String> {
        record.lines().filter(|it| it.starts_with("scaling-one-core,")).map(str::to_owned).collect()
    };
    let interrupted = fs::read_to_string(folder.path().join("out/scaling.csv")).expect("a record");
    assert_eq!(round(&interrupted).len(), 6, "{interrupted}");

    let (said, _, record) = scaling(&folder, 0);
    assert!(said.contains("an earlier start has done 1 of its runs"), "{said}");
    assert_eq!(round(&record), round(&interrupted), "the round that was whole is not made again");
    let rest = ["ch04,", "ch05,", "ch06,"].map(|it| format!("\nscaling-all-cores,{it}"));
    assert!(rest.iter().all(|it| record.contains(it)), "{record}");
    assert!(!partial.exists());

    fs::write(&partial, kept).expect("the journal of the first start");
    let changed = format!("# another one\nexec '{LAB}' bare --politely");
    server(folder.path(), "ch06", &changed);
    let (said, _, record) = scaling(&folder, 0);
    assert!(said.contains("an earlier start was of other parameters or programs"), "{said}");
    assert_ne!(round(&record), round(&interrupted));
    assert!(!partial.exists());
}

/// Starts it, and sends it Ctrl-C when its first round is done.
fn interrupt_after_a_part(folder: &TempDir, partial: &Path) {
    let mut command = process::Command::new(LAB);
    command.args(["scaling", "--smoke", "--binaries"]).arg(folder.path());
    command.arg("--out").arg(folder.path().join("out"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the lab");
    let start = Instant::now();
    while !fs::read_to_string(partial).is_ok_and(|text| text.lines().count() >= 2) {
        let ended = child.try_wait().expect("waitpid");
        if ended.is_some() || start.elapsed() > 6 * PATIENCE {
            let _ = child.kill().and_then(|()| child.wait());
            panic!("no round was kept; it ended: {ended:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("the lab runs");
    assert_eq!(child.wait().expect("waitpid").code(), Some(130));
}
