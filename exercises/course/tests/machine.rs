//! What `doctor` says of this machine, and of one that forbids io_uring.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::Copy;
use contract::bounded::{self, LAST_WORDS, Listening};
use contract::inject::{Fault, Injection};
use contract::microscope;
use nix::errno::Errno;
use nix::libc;

/// What `cargo course` says where `io_uring_setup` fails so.
fn without_ring(home: &Path, arguments: &[&str], errno: Errno) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_course"));
    command.arg("--home").arg(home).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // More than anybody asks for.
    let faults = [Fault::Fail(errno); 16];
    let pending =
        Injection::new().on(libc::SYS_io_uring_setup, &faults).install(&mut command).unwrap();
    let mut child = command.spawn().unwrap();
    drop(command);
    let _injector = pending.attach(child.id()).unwrap();
    let stdout = Listening::to(child.stdout.take().unwrap(), u64::MAX).unwrap();
    let stderr = Listening::to(child.stderr.take().unwrap(), u64::MAX).unwrap();
    let status = bounded::wait(&mut child, Duration::from_secs(120)).unwrap();
    let status = status.unwrap_or_else(|| panic!("{}", microscope::doing_all(child.id())));
    (stdout.heard(LAST_WORDS).text() + &stderr.heard(LAST_WORDS).text(), status.code())
}

#[test]
fn the_page_has_the_commands_of_the_checker() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../book/src/how-to-use.md");
    let page = fs::read_to_string(path).unwrap().replace("\\\n", "");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for command in [course::ELSEWHERE, course::NEWER, course::WINDOWS] {
        let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(&command), "how-to-use.md does not have `{command}`");
    }
}

#[test]
fn every_chapter_is_told_of() {
    let copy = Copy::of(&["ex01"]);
    let (said, status) = copy.course(&["doctor"], 30);
    let release = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
    assert!(said.contains(&release) && said.contains("rustc 1."), "{said}");
    for chapter in ["01,", "02,", "03,", "04,", "05,", "06,", "07 (", "07 --model io-uring ("] {
        let lacks = chapter.trim_end_matches([' ', '(', ',']);
        let told = [format!("runs   {chapter}"), format!("LACKS  {lacks}:")];
        assert!(told.iter().any(|it| said.contains(it)), "chapter {chapter}: {said}");
    }
    assert_eq!(
        said.contains("All chapters run here. Next: cargo course start"),
        status == 0,
        "{said}"
    );
}

#[test]
fn a_machine_without_io_uring_is_told_what_to_do() {
    let copy = Copy::of(&["ex01"]);
    for (errno, word, command) in [
        (Errno::ENOSYS, "missing", "limactl start"),
        (Errno::EPERM, "forbidden", "docker run"),
        (Errno::EINVAL, "6.1", "limactl start"),
    ] {
        let (said, status) = without_ring(copy.folder.path(), &["doctor"], errno);
        assert!(said.contains("LACKS  06: io_uring_setup: ") && said.contains(word), "{said}");
        assert!(said.contains("LACKS  07 --model io-uring: "), "{said}");
        assert!(said.contains("runs   05,") && said.contains("runs   07 ("), "{said}");
        assert!(said.contains("One command for the rest") && said.contains(command), "{said}");
        assert_eq!(status, Some(1));
    }
}

#[test]
fn an_exercise_that_needs_io_uring_is_not_judged_without() {
    let copy = Copy::of(&["ex01"]);
    let path = copy.path("exercises/ex01-say-what-you-wait-for/exercise.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("needs = []", "needs = [\"io_uring\"]")).unwrap();
    let (said, status) = without_ring(copy.folder.path(), &["check"], Errno::ENOSYS);
    assert!(said.contains("NEEDS LINUX: io_uring_setup: "), "{said}");
    assert!(said.contains("Next: cargo course doctor"), "{said}");
    assert_eq!(status, Some(1));
}
