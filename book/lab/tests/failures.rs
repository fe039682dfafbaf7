//! What goes wrong in an experiment: a server that cannot start, one that dies in the middle, a reader
//! who has had enough. The others are measured all the same, and no server outlives the lab.
//!
//! This test is also the servers: started under the name of a chapter, it is a server that misbehaves as
//! [`serve`] says for that name.

use contract::verdicts::CHAPTERS;
use lab::{
    binaries::{Binary, take},
    experiment::{Bench, Experiment, Outcome, Scale},
    journal::{Found, Journal},
    machine::Machine,
    race::{Race, scoreboard::Tally},
    records::Record,
    screen::Screen,
};
use libtest_mimic::{Arguments, Trial};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

fn main() -> ExitCode {
    let name = env::args_os().next().map(PathBuf::from);
    let name = name.as_deref().and_then(Path::file_name).and_then(|it| it.to_str());
    if let Some(name) = name.filter(|it| CHAPTERS.iter().any(|column| column.name == *it)) {
        serve(name);
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = vec![
        trial("the_others_are_measured_all_the_same", the_others_are_measured_all_the_same),
        trial("a_lack_of_descriptors_is_a_sentence", a_lack_of_descriptors_is_a_sentence),
        trial("after_ctrl_c_there_is_a_report_and_no_server", after_ctrl_c_there_is_a_report),
        trial("a_killed_lab_leaves_no_server", a_killed_lab_leaves_no_server),
        trial("a_race_goes_on_where_it_was_stopped", a_race_goes_on_where_it_was_stopped),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn the_others_are_measured_all_the_same() {
    let outcome = race(&machine(), &small());
    let records: Vec<Record> = outcome.table.rows().expect("records");
    let failures = outcome.failures.join("\n");
    assert!(
        failures.contains(
            "02 ended in the middle of its run (silent clients, step 2, 60 requests per second): exit \
             status: 7; its last words: ch02: enough"
        ),
        "{failures}"
    );
    let port = failures.matches("03 cannot run").count();
    assert_eq!(port, 1, "once, though it was tried each time: {failures}");
    assert!(failures.contains("ch03: bind: the address is in use"), "{failures}");
    for server in ["ch01", "ch04"] {
        for kind in ["silent", "half-line"] {
            let tally = Tally::of(&records, server, kind).expect("a staircase");
            assert_eq!((tally.steps, tally.scheduled), (2, 40), "{server} with {kind} clients");
            // Not all: on a busy machine the generator may be late and leave some out.
            assert!(tally.percent() > 50.0, "{server} with {kind} clients: {tally:?}");
        }
    }
    // Of 02, the step that it completed.
    let half = Tally::of(&records, "ch02", "silent").expect("a step");
    assert_eq!((half.scheduled, half.first.target_qps), (10, 20.0));
    assert_eq!(Tally::of(&records, "ch03", "silent"), None);
    let board = outcome.scoreboard;
    assert_eq!(
        board.lines().filter(|line| line.ends_with(" †")).count(),
        2,
        "02, for each kind:\n{board}"
    );
    let missing = board.lines().filter(|line| line.contains("not measured")).count();
    assert_eq!(missing, 2, "03, once for each kind:\n{board}");
    assert!(outcome.chart.is_some());
    assert!(outcome.noise.is_some_and(|noise| noise.alone_percent.len() == 2));
}

fn a_lack_of_descriptors_is_a_sentence() {
    let poor = Machine { descriptors_max: 160, ..machine() };
    let outcome = race(&poor, &small());
    assert!(
        outcome.failures.iter().any(|it| it.starts_with("too few descriptors for the staircase")),
        "{:?}",
        outcome.failures
    );
    // The stalled client needs none to speak of, and was shown.
    let records: Vec<Record> = outcome.table.rows().expect("records");
    assert!(records.iter().all(|it| it.experiment == "race-stalled-client"));
    assert_eq!(records.iter().filter(|it| it.server == "ch01").count(), 2);
}

fn after_ctrl_c_there_is_a_report() {
    let mut running = Running::start();
    kill(running.pid(), Signal::SIGINT).expect("the lab runs");
    let status = running.wait();
    assert_eq!(status.code(), Some(130), "{}", running.said());
    assert!(running.said().contains("race.csv"), "{}", running.said());
    let written = fs::read_to_string(running.folder.path().join("race.json")).expect("a record");
    assert!(written.contains("\"interrupted\": true"), "{written}");
    running.assert_no_server_is_left();
}

fn a_killed_lab_leaves_no_server() {
    let mut running = Running::start();
    kill(running.pid(), Signal::SIGKILL).expect("the lab runs");
    running.wait();
    running.assert_no_server_is_left();
}

/// Of two repeats the first is done when the reader has had enough.
fn a_race_goes_on_where_it_was_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let chapters = [CHAPTERS[0], CHAPTERS[3]];
    let servers = take(&binaries(folder.path()), &chapters).expect("all are there");
    let (scale, machine) = (Scale { side_by_side: 2, ..small() }, machine());
    let partial = folder.path().join("race.partial.jsonl");
    let race = |enough: usize| {
        let journal = Journal::open(folder.path(), "race", Race { repeats: 2 }.parameters(), false);
        let (journal, stop) = (journal.expect("a journal"), AtomicBool::new(false));
        let bench = Bench {
            servers: &servers,
            scale: &scale,
            machine: &machine,
            screen: &Screen::Quiet,
            stop: &stop,
            journal: &journal,
        };
        let is_over = AtomicBool::new(false);
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let text = fs::read_to_string(&partial).unwrap_or_default();
                    stop.fetch_or(text.lines().count() >= enough, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let outcome = Race { repeats: 2 }.run(&bench);
            is_over.store(true, Ordering::Relaxed);
            outcome.expect("something can be measured")
        });
        (outcome.table.rows::<Record>().expect("records"), outcome, journal.found())
    };
    // The head, a client for each of two servers and kinds, the baseline, and the first two staircases.
    let (first, outcome, _) = race(1 + 4 + 1 + 2);
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let (second, outcome, found) = race(usize::MAX);
    assert_eq!((outcome.failures, outcome.missing), (Vec::new(), 0));
    assert_eq!(found, Found::Parts(7));
    assert!(first.len() < second.len(), "not all was done");
    let staircases = |rows: &[Record], seed| -> Vec<Record> {
        let is_it = |it: &&Record| it.experiment == "race-staircase" && it.seed == Some(seed);
        rows.iter().filter(is_it).cloned().collect()
    };
    // Two servers, two kinds, two steps.
    assert_eq!([1, 2].map(|seed| staircases(&second, seed).len()), [8, 8]);
    let kept = second.iter().filter(|it| it.seed.is_none()).cloned();
    let done = first.iter().filter(|it| it.seed.is_none()).cloned();
    assert_eq!(kept.collect::<Vec<_>>(), done.collect::<Vec<_>>(), "neither is met or tried again");
    assert_eq!(staircases(&second, 1)[..4], staircases(&first, 1)[..4]);
    let board = outcome.scoreboard;
    assert!(board.contains("of several runs") && board.contains("of 80 scheduled"), "{board}");
    assert_ne!(Race::ONCE.parameters(), Race { repeats: 2 }.parameters());
}

/// A lab that drives a server, as a process of its own.
struct Running {
    child: Child,
    folder: TempDir,
    servers: Vec<i32>,
}

impl Running {
    fn start() -> Running {
        let folder = tempfile::tempdir().expect("a folder");
        let binaries = binaries(folder.path());
        let out = fs::File::create(folder.path().join("stdout")).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_lab"))
            .args(["race", "--servers", "01", "--binaries"])
            .arg(binaries)
            .arg("--out")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the lab");
        let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        // The baseline comes after the demonstrations, which are something to report.
        assert!(said.any(|line| line.is_ok_and(|line| line.contains("Nobody stalls."))));
        thread::spawn(move || said.for_each(drop));
        let mut running = Running { child, folder, servers: Vec::new() };
        let start = Instant::now();
        while running.servers.is_empty() {
            assert!(start.elapsed() < Duration::from_secs(10), "no server was started");
            running.servers = children(running.child.id());
        }
        running
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("waitpid")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("stdout")).expect("its output")
    }

    fn assert_no_server_is_left(&self) {
        let start = Instant::now();
        let alive = |pid: &&i32| {
            // A zombie has no command line; nor has a process that is gone.
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("ch01")
        };
        while let Some(pid) = self.servers.iter().find(alive) {
            assert!(start.elapsed() < Duration::from_secs(5), "server {pid} has outlived the lab");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The servers that the threads of process `pid` have started.
fn children(pid: u32) -> Vec<i32> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|it| it.parse::<i32>().ok()));
    }
    children
}

fn race(machine: &Machine, scale: &Scale) -> Outcome {
    let folder = tempfile::tempdir().expect("a folder");
    let servers: Vec<Binary> = take(&binaries(folder.path()), &CHAPTERS).expect("all are there");
    let bench = Bench {
        servers: &servers,
        scale,
        machine,
        screen: &Screen::Quiet,
        stop: &AtomicBool::new(false),
        journal: &Journal::nowhere(),
    };
    Race::ONCE.run(&bench).expect("something can be measured")
}

fn machine() -> Machine {
    Machine::look().expect("getrlimit")
}

/// Long enough for 02 to die in the second step. The patience is far above what a busy machine takes.
fn small() -> Scale {
    Scale {
        rates: vec![20.0, 60.0],
        hold: Duration::from_millis(500),
        timeout: Duration::from_secs(5),
        ..Scale::short()
    }
}

/// A folder with this program under the name of each chapter.
fn binaries(folder: &Path) -> PathBuf {
    let this = env::current_exe().expect("/proc is mounted");
    for chapter in CHAPTERS {
        symlink(&this, folder.join(chapter.name)).expect("a link");
    }
    folder.to_owned()
}

/// 01 and 04 answer everybody, a thread for each. 02 ends after 25 answers. 03 does not start.
fn serve(name: &str) -> ! {
    if name == "ch03" {
        eprintln!("ch03: bind: the address is in use");
        std::process::exit(1);
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("listening on {}", listener.local_addr().expect("a name"));
    let left = Arc::new(AtomicU32::new(if name == "ch02" { 25 } else { u32::MAX }));
    loop {
        let (mut client, _) = listener.accept().expect("a client");
        let left = Arc::clone(&left);
        thread::spawn(move || {
            let mut line = Vec::new();
            let mut byte = [0];
            while client.read(&mut byte).is_ok_and(|length| length == 1) && byte != *b"\n" {
                line.push(byte[0]);
            }
            let odd = line.last().is_some_and(|digit| digit % 2 == 1);
            // A client that has left does not want an answer.
            let _ = client.write_all(if odd { b"Odd\n" } else { b"Even\n" });
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                eprintln!("ch02: enough");
                std::process::exit(7);
            }
        });
    }
}
