//! A new learner's way through two exercises, and every message on it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use std::fs;
use std::io::{BufRead, Read, Write};

use common::Copy;
use contract::bounded;
use nix::sys::termios;

const MAIN: &str = "exercises/ex02-read-before-you-close/src/main.rs";

/// How long a check may take: the first one also builds what the servers depend on.
const CHECK_S: u64 = 240;

/// Demands that all of `words` are in `said`.
fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "no {word:?} in:\n{said}");
    }
}

#[test]
fn from_start_to_pass() {
    let copy = Copy::of(&["ex01", "ex02"]);
    let (said, status) = copy.course(&["start"], 10);
    assert_says(&said, &["Welcome", "ex01: ", "Predict first", "Next: cargo course check ex01"]);
    assert_eq!(status, 0);
    // By a part of its name; from then on it is the one that is meant.
    let (said, _) = copy.course(&["start", "before-you-close"], 10);
    assert_says(&said, &["ex02: Read before you close", "refuses a line that is too long"]);
    let (said, status) = copy.course(&["check"], CHECK_S);
    assert_says(
        &said,
        &["NOT STARTED", "As it stands it gets WRONG ANSWER", "resets the connection"],
    );
    assert_eq!(status, 1);

    // The fourth hint names the idea behind the attempt.
    copy.put("exercises/solutions/ex02/wrong/reads_once_more.rs", MAIN);
    let (said, status) = copy.course(&["check"], CHECK_S);
    assert_says(
        &said,
        &["WRONG ANSWER", "[not yet]   an_overlong_line_is_refused", "cargo course hint ex02"],
    );
    assert_eq!(status, 1);
    for level in ["Hint 1 of 4", "Hint 2 of 4", "Hint 3 of 4"] {
        assert_says(&copy.course(&["hint"], 10).0, &[level, "Next: cargo course check ex02"]);
    }
    let (said, _) = copy.course(&["hint"], 10);
    assert_says(
        &said,
        &["Hint 4 of 4", "one more `recv` takes what is there", "How many bytes does that take"],
    );
    let (said, status) = copy.course(&["solution"], 10);
    assert_says(&said, &["ex02 has not passed yet", "--give-up"]);
    assert_eq!(status, 2);
    assert_says(
        &copy.course(&["diff"], 10).0,
        &["+//! Misconception: one more `recv`", "cargo course reset ex02"],
    );

    copy.put("exercises/solutions/ex02/main.rs", MAIN);
    let (said, status) = copy.course(&["check"], CHECK_S);
    assert_says(&said, &["\nPASS\n", "Next: cargo course start ex01"]);
    assert_eq!(status, 0);
    assert_says(&copy.course(&["solution"], 10).0, &["# Exercise 02: why", "are the same"]);
    let (said, _) = copy.course(&["progress"], 10);
    assert_says(&said, &["> ex02  PASS ", "  ex01  NOT STARTED ", "1 of 2 passed"]);
}

#[test]
fn the_commands_are_told() {
    let (said, status) = Copy::of(&["ex01"]).course(&["--help"], 10);
    insta::assert_snapshot!(said);
    assert_eq!(status, 0);
}

#[test]
fn each_way_to_fail_has_its_word() {
    let copy = Copy::of(&["ex02"]);
    let solution = fs::read_to_string(copy.path("exercises/solutions/ex02/main.rs")).unwrap();
    let attempt = |from: &str, to: &str| {
        assert!(solution.contains(from), "no {from:?} in the solution");
        fs::write(copy.path(MAIN), solution.replacen(from, to, 1)).unwrap();
        copy.course(&["check", "ex02"], CHECK_S).0
    };
    let said = attempt("    hang_up(client);", "    panic!(\"oh\");");
    assert_says(&said, &["\nCRASH\n", "has ended by itself", "Next: edit "]);
    assert!(!said.contains("is not as it was handed out"), "{said}");
    assert_says(&said, &[&format!("panicked at {MAIN}:")]);
    let helper = "exercises/ex02-read-before-you-close/src/command_line.rs";
    let text = fs::read_to_string(copy.path(helper)).unwrap();
    fs::write(copy.path(helper), text + "// Mine.\n").unwrap();
    let note = format!("note: {helper} is not as it was handed out");
    let said = attempt("MsgFlags::MSG_DONTWAIT", "MsgFlags::empty()");
    assert_says(&said, &[&note, "\nSTALL\n", "sleeps in recvfrom on ", "Next: edit "]);
    // The first server that is started ends at once; all others are right.
    let once = copy.path("once").display().to_string();
    let ends = format!(
        "let once = std::fs::File::create_new({once:?});\n    if once.is_ok() {{\n        \
         return ExitCode::FAILURE;\n    }}\n    command_line::run("
    );
    let said = attempt("command_line::run(", &ends);
    assert_says(&said, &["1 row once more", "\nFLAKY\n", "Next: cargo course check ex02, when"]);
}

#[test]
fn a_watch_without_a_terminal_ends_as_it_is_told() {
    let copy = Copy::of(&["ex02"]);
    let arguments = ["watch", "ex02", "--checks", "2", "--poll"];
    for arguments in [&arguments[..4], &arguments] {
        copy.put("exercises/solutions/ex02/starter.rs", MAIN);
        let _ = fs::remove_dir_all(copy.path(".course"));
        std::thread::scope(|scope| {
            scope.spawn(|| save_after_the_first_check(&copy));
            let (said, status) = copy.course(arguments, CHECK_S);
            assert_says(&said, &["stdin is no terminal: no keys", "NOT STARTED", "\nPASS\n"]);
            assert_eq!(status, 0);
        });
    }
}

#[test]
fn keys_are_heard_and_the_terminal_is_as_it_was() {
    let copy = Copy::of(&["ex02"]);
    for (keys, status, words) in [
        (
            "lhxzq",
            0,
            &["0 of 1 passed", "Hint 1 of 4", "nothing to do", "There is no such key"][..],
        ),
        ("\u{3}", 130, &["n next, h hint"][..]),
    ] {
        let pty = nix::pty::openpty(None, None).unwrap();
        let before = termios::tcgetattr(&pty.slave).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_course"));
        command.arg("--home").arg(copy.folder.path()).args(["watch", "ex02"]);
        command.stdin(pty.slave.try_clone().unwrap()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that does not end is ended, and then what it says ends, too.
        let killed = end_within(child.id(), std::time::Duration::from_secs(CHECK_S));
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        // The legend says that keys are heard from now on.
        let mut said = String::new();
        while !said.contains("Watching ") {
            assert_ne!(stdout.read_line(&mut said).unwrap(), 0, "{said}");
        }
        assert_ne!(termios::tcgetattr(&pty.slave).unwrap(), before);
        fs::File::from(pty.master.try_clone().unwrap()).write_all(keys.as_bytes()).unwrap();
        stdout.read_to_string(&mut said).unwrap();
        drop(killed);
        let ended = bounded::wait(&mut child, bounded::GONE).unwrap();
        assert_eq!(ended.and_then(|it| it.code()), Some(status), "{said}");
        assert_eq!(termios::tcgetattr(&pty.slave).unwrap(), before);
        assert_says(&said, words);
    }
}

/// Kills the process when the sender has not been dropped in this time.
fn end_within(pid: u32, within: std::time::Duration) -> std::sync::mpsc::Sender<()> {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    let (alive, is_over) = channel();
    std::thread::spawn(move || {
        if is_over.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
            let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    });
    alive
}

/// An editor that saves the solution when the starter has been checked.
fn save_after_the_first_check(copy: &Copy) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(CHECK_S);
    let is_checked = || {
        fs::read_to_string(copy.path(".course/progress.toml")).is_ok_and(|it| it.contains("checks"))
    };
    while !is_checked() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    copy.put("exercises/solutions/ex02/main.rs", MAIN);
}

#[test]
fn what_does_not_compile_is_told_with_the_learners_own_path() {
    let copy = Copy::of(&["ex02"]);
    let text = fs::read_to_string(copy.path(MAIN)).unwrap();
    fs::write(copy.path(MAIN), text.replace("fn main()", "fn mian()")).unwrap();
    let (said, status) = copy.course(&["check", "2"], CHECK_S);
    assert_says(&said, &["DOES NOT COMPILE", MAIN, "Next: mend exercises/ex02"]);
    assert_eq!(status, 1);
}

#[test]
fn a_hole_that_is_left_is_not_started() {
    let copy = Copy::of(&["ex02"]);
    let text = fs::read_to_string(copy.path(MAIN)).unwrap();
    fs::write(copy.path(MAIN), text + "\nfn later() {\n    todo!()\n}\n").unwrap();
    let (said, status) = copy.course(&["check", "ex02"], 30);
    assert_says(&said, &["NOT STARTED: there is a todo!() to fill", "src/main.rs:"]);
    assert_eq!(status, 1);
}

#[test]
fn an_attempt_is_kept_and_the_starter_is_back() {
    let copy = Copy::of(&["ex02"]);
    let starter = fs::read_to_string(copy.path(MAIN)).unwrap();
    for attempt in ["one", "two"] {
        fs::write(copy.path(MAIN), attempt).unwrap();
        let (said, status) = copy.course(&["reset", "ex02"], 10);
        assert_says(&said, &["Your attempt is kept: .course/attempts/ex02/main-", "Next: "]);
        assert_eq!(status, 0);
        assert_eq!(fs::read_to_string(copy.path(MAIN)).unwrap(), starter);
    }
    assert_eq!(fs::read_dir(copy.path(".course/attempts/ex02")).unwrap().count(), 2);
    assert_says(&copy.course(&["reset", "ex02"], 10).0, &["nothing to do"]);
}

#[test]
fn mistakes_are_answered_with_a_sentence() {
    let copy = Copy::of(&["ex01", "ex02"]);
    let (said, status) = copy.course(&["check", "ex99"], 10);
    assert_says(&said, &["there is no exercise \"ex99\"; there are ex01, ex02"]);
    assert_eq!(status, 2);
    assert_says(&copy.course(&["check", "ex"], 10).0, &["may be ex01 or ex02: say which"]);
    fs::create_dir(copy.path(".course")).unwrap();
    fs::write(copy.path(".course/progress.toml"), "current = ").unwrap();
    let (said, status) = copy.course(&["progress"], 10);
    assert_says(&said, &[".course/progress.toml is not TOML: mend it, or remove it"]);
    assert_eq!(status, 2);
}
