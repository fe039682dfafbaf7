//! The tracer, held to servers whose calls are known: those of the chapters, and some of its own.
//!
//! This test is also those servers: started with `--serve KIND`, it is one that does what [`serve`] says
//! for that kind.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use contract::inject::{Fault, Injection};
use contract::probes::{self, Trouble};
use contract::server::{Ended, Server};
use contract::trace::{self, Call, Question, Refused, Trace};
use contract::{build, verdicts};
use libtest_mimic::{Arguments, Completion, Trial};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name, ref rest @ ..] if name.ends_with(NAMES_REACTORS) => with_reactors(rest),
        [name, ..] if name.ends_with(SERVES_ANYHOW) => serve("answers"),
        [_, _, "--serve", kind] => serve(kind),
        [_, "127.0.0.1:0"] => serve("answers"),
        [_, "--trace-for-ever"] => trace_for_ever(),
        [_, "--trace-once"] => trace_once(),
        _ => {}
    }
    let trials = [
        ("each_client_of_04_is_treated_in_order", each_client_of_04_in_order as fn()),
        ("what_gets_into_a_short_queue_is_the_batch", a_short_queue),
        ("threads_that_are_there_are_followed", threads_that_are_there),
        ("threads_that_begin_meanwhile_are_followed", threads_that_begin),
        ("a_server_that_never_sleeps_is_counted_all_the_same", never_sleeps),
        ("a_held_server_sees_one_interruption_and_one_at_the_end", interruptions),
        ("a_server_that_ends_is_told_and_its_status_is_left", ends),
        ("a_signal_that_ends_it_reaches_it", ends_by_signal),
        ("a_client_that_is_not_answered_is_told", not_answered),
        ("another_question_is_answered_while_the_stream_goes_on", another_question),
        ("who_is_answered_when_we_have_left_is_not_counted", answered_late),
        ("nothing_is_left_behind", nothing_left_behind),
        ("a_killed_tracer_leaves_no_server", killed_tracer),
        ("a_second_tracer_is_refused_politely", second_tracer),
        ("a_program_is_asked_for_its_reactors", reactors),
    ];
    let plain = trials.into_iter().map(|(name, test)| {
        let test = move || {
            test();
            Completion::Completed
        };
        Trial::ignorable_test(name, move || Ok(unless_refused(test)))
    });
    let mut trials: Vec<Trial> = plain.collect();
    trials.push(Trial::ignorable_test("every_column_is_counted", || {
        Ok(unless_refused(every_column))
    }));
    // This one is about machines that refuse, and tried on every machine that has the filter.
    trials.push(Trial::ignorable_test("a_machine_without_ptrace_is_told_so", || Ok(refusing())));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs `test`, or says what the machine lacks.
fn unless_refused(test: impl FnOnce() -> Completion) -> Completion {
    let server = own("answers");
    match trace::one_at_a_time(&server, 1) {
        Err(error) if error.is::<Refused>() => {
            return Completion::ignored_with(format!("NEEDS {error:#}"));
        }
        result => drop(result.unwrap()),
    }
    test()
}

fn every_column() -> Completion {
    let mut lacking = Vec::new();
    for column in verdicts::columns() {
        let server = match trace::start(&build::program(column.name).unwrap(), 1) {
            Ok(server) => server,
            Err(error) if format!("{error:#}").contains("io_uring") => {
                lacking.push(format!("{} NEEDS io_uring: {error:#}", column.name));
                continue;
            }
            Err(error) => panic!("{error:#}"),
        };
        let idle = all_answered(trace::one_at_a_time(&server, 8).unwrap());
        let batch = all_answered(trace::batch(&server, 64).unwrap());
        for trace in [&idle, &batch] {
            is_in_order(trace);
            let unknown = trace.calls.iter().find(|it| it.name().starts_with("system call"));
            assert_eq!(unknown, None, "{}", column.name);
        }
        // Together is not dearer than one at a time, but for the one call with which a server that was
        // held waits anew.
        let together = batch.calls.len() as f64 - 1.0;
        let alone = idle.per_answer() * batch.asked as f64;
        assert!(together <= alone, "{}: {together} against {alone}", column.name);
    }
    if lacking.is_empty() {
        Completion::Completed
    } else {
        Completion::ignored_with(lacking.join("; "))
    }
}

/// Everything that 04 does for a client bears the number of its socket.
fn each_client_of_04_in_order() {
    let server = Server::start(&build::program("ch04").unwrap()).unwrap();
    let trace = all_answered(trace::batch(&server, 64).unwrap());
    assert_eq!((trace.asked, trace.threads), (64, 1));
    let accepted: BTreeSet<i64> = made(&trace, "accept4").filter_map(|it| it.returned).collect();
    let accepted: Vec<i32> =
        accepted.into_iter().filter(|it| *it >= 0).map(|it| i32::try_from(it).unwrap()).collect();
    assert_eq!(accepted.len(), 64, "all were accepted before the first one left");
    for socket in accepted {
        let calls = trace.calls.iter().filter(|it| it.descriptor == Some(socket));
        let names: Vec<String> = calls.map(Call::name).filter(|it| it != "fcntl").collect();
        let expected = ["epoll_ctl", "recvfrom", "sendto", "shutdown", "recvfrom", "close"];
        assert_eq!(names, expected, "socket {socket}");
    }
    // One wait finds the listener, the next one all clients, the last one nobody.
    assert!(made(&trace, "epoll_wait").chain(made(&trace, "epoll_pwait")).count() <= 4);
    let last = trace.calls.last().unwrap();
    assert!(last.name().starts_with("epoll_") && last.returned.is_none(), "it sleeps: {last:?}");
}

fn a_short_queue() {
    let server = Server::start(&build::program("ch01").unwrap()).unwrap();
    let trace = all_answered(trace::batch(&server, 64).unwrap());
    assert_eq!(trace.asked, 2, "a backlog of one lets two in");
    assert_eq!(made(&trace, "sendto").count(), 2);
    // Those who left were never there: nobody else is served afterwards.
    let trace = all_answered(trace::one_at_a_time(&server, 4).unwrap());
    assert_eq!(made(&trace, "sendto").count(), 4);
}

fn threads_that_are_there() {
    let server = own("workers");
    let trace = all_answered(trace::batch(&server, 40).unwrap());
    assert_eq!((trace.asked, trace.threads), (40, 4));
    is_in_order(&trace);
    let accepted = made(&trace, "accept4").filter(|it| it.returned >= Some(0));
    assert_eq!(accepted.count(), 40);
    assert_eq!(made(&trace, "sendto").count(), 40);
    // The first thread waits for the others and accepts nobody.
    let threads: BTreeSet<usize> = made(&trace, "accept4").map(|it| it.thread).collect();
    assert_eq!(threads, BTreeSet::from([2, 3, 4]));
}

fn threads_that_begin() {
    let server = own("thread-per-client");
    let trace = all_answered(trace::one_at_a_time(&server, 6).unwrap());
    assert_eq!(trace.threads, 7);
    is_in_order(&trace);
    let threads: BTreeSet<usize> = made(&trace, "sendto").map(|it| it.thread).collect();
    assert_eq!(threads, (2..=7).collect());
    // A thread ends without a return.
    assert_eq!(made(&trace, "exit").filter(|it| it.returned.is_none()).count(), 6);
    let again = all_answered(trace::batch(&server, 20).unwrap());
    assert_eq!((again.asked, again.threads), (20, 21));
}

fn never_sleeps() {
    let server = own("spins");
    assert_eq!(all_answered(trace::one_at_a_time(&server, 3).unwrap()).asked, 3);
    let batch = all_answered(trace::batch(&server, 16).unwrap());
    assert!(batch.per_answer() > 3.0, "it asks all the time");
}

fn interruptions() {
    let server = own("says-eintr");
    for round in 1..=3 {
        let trace = all_answered(trace::batch(&server, 5).unwrap());
        let interrupted = -i64::from(libc::EINTR);
        assert!(trace.calls.iter().all(|it| it.returned != Some(interrupted)), "while it served");
        // When it was held, and when we left. One too many is seen in the next round.
        within(LONG, || server.stderr_lines() == 2 * round);
    }
}

fn ends() {
    for kind in ["ends", "ends-in-a-thread"] {
        for trace in [trace::batch, trace::one_at_a_time] {
            let mut server = own(kind);
            let error = trace(&server, 5).unwrap_err();
            assert!(error.is::<Ended>(), "{kind}: {error:#}");
            assert_eq!(server.wait(LONG).unwrap().code(), Some(7), "{kind}");
        }
    }
    // One that has ended before is no machine that refuses.
    let server = own("answers");
    server.signal(Signal::SIGKILL).unwrap();
    let error = (0..).find_map(|_| trace::batch(&server, 1).err()).unwrap();
    assert!(error.is::<Ended>(), "{error:#}");
}

fn ends_by_signal() {
    let mut server = own("raises");
    let error = trace::one_at_a_time(&server, 2).unwrap_err();
    assert!(error.is::<Ended>(), "{error:#}");
    assert_eq!(server.wait(LONG).unwrap().signal(), Some(Signal::SIGTERM as i32));
}

fn not_answered() {
    let server = own("answers-even");
    let trace = trace::batch(&server, 3).unwrap();
    assert_eq!((trace.asked, trace.answers), (3, 0));
    assert_eq!(trace.unanswered.unwrap().bytes, b"Even\n");
    assert!(!trace.calls.is_empty());
}

/// Asked in another way, of a server that waits for more on the same connection.
fn another_question() {
    let server = own("adds");
    let sum = |answer: &[u8]| Question {
        request: b"20 22;".into(),
        answer: answer.into(),
        closes: false,
    };
    let trace = trace::one_at_a_time_asking(&server, 2, &sum(b"42;")).unwrap();
    assert_eq!((trace.asked, trace.answers, trace.late), (2, 2, 0), "{:?}", trace.unanswered);
    // Each client's request, and its leaving, which it is told of before the next one comes.
    let read: Vec<_> = made(&trace, "recvfrom").filter_map(|it| it.returned).collect();
    assert_eq!(read, [6, 0, 6, 0]);
    let trace = trace::batch_asking(&server, 3, &sum(b"42;")).unwrap();
    assert_eq!((trace.asked, trace.answers, trace.late), (3, 3, 0), "{:?}", trace.unanswered);
    let trace = trace::one_at_a_time_asking(&server, 1, &sum(b"43;")).unwrap();
    assert_eq!((trace.answers, trace.unanswered.unwrap().bytes), (0, b"42;".into()));
}

/// A server that waits until its client has closed serves the next one when we leave, unseen.
fn answered_late() {
    let server = own("waits-for-the-last-word");
    let trace = trace::batch(&server, 5).unwrap();
    assert_eq!((trace.asked, trace.late), (5, 4));
    assert_eq!(made(&trace, "sendto").count(), 1);
}

fn nothing_left_behind() {
    for kind in ["answers", "workers"] {
        let server = own(kind);
        let slack = prctl::get_timerslack().unwrap();
        drop(trace::batch(&server, 4).unwrap());
        assert_eq!(prctl::get_timerslack().unwrap(), slack);
        for task in fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap();
            assert!(status.contains("TracerPid:\t0\n"), "{status}");
        }
        let heard = server.connect("a client").unwrap().ask(b"7\n", LONG);
        assert!(heard.is(b"Odd\n"), "{kind}: {heard}");
    }
}

fn killed_tracer() {
    let mut tracer = Tracer::start("--trace-for-ever", None);
    let server: i32 = tracer.line().trim().parse().unwrap();
    let traced = || {
        let status = fs::read_to_string(format!("/proc/{server}/status")).unwrap_or_default();
        status.contains("TracerPid:") && !status.contains("TracerPid:\t0\n")
    };
    within(LONG, traced);
    tracer.child.kill().unwrap();
    tracer.child.wait().unwrap();
    within(LONG, || {
        let line = fs::read(format!("/proc/{server}/cmdline")).unwrap_or_default();
        !String::from_utf8_lossy(&line).contains("--serve") // A zombie has none.
    });
}

fn second_tracer() {
    let server = own("answers");
    let pid = Pid::from_raw(server.pid().cast_signed());
    let (seized, is_seized) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let first = thread::spawn(move || {
        ptrace::seize(pid, Options::empty()).unwrap();
        seized.send(()).unwrap();
        let _ = ended.recv(); // With its thread, the tracer is gone.
    });
    is_seized.recv().unwrap();
    let error = trace::batch(&server, 4).unwrap_err();
    assert!(error.is::<Refused>(), "{error:#}");
    assert!(format!("{error:#}").contains("a debugger may be attached"), "{error:#}");
    drop(end);
    first.join().unwrap();
    assert_eq!(all_answered(trace::batch(&server, 4).unwrap()).asked, 4);
}

fn reactors() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| {
        let path = folder.path().join(name);
        symlink(env::current_exe().unwrap(), &path).unwrap();
        trace::start(&path, 3).unwrap()
    };
    let server = named(NAMES_REACTORS);
    within(LONG, || server.stderr().starts_with("[\"127.0.0.1:0\", \"--reactors\", \"3\"]"));
    // One that knows no options is not waited for for ever, and started as it is.
    let server = named(SERVES_ANYHOW);
    assert!(server.connect("a client").unwrap().ask(b"7\n", LONG).is(b"Odd\n"));
}

/// A tracer of which the kernel is made to refuse `ptrace`, as a container does.
fn refusing() -> Completion {
    for (errno, remedy) in [
        (Errno::EPERM, "kernel.yama.ptrace_scope"),
        (Errno::EIO, "Linux 5.3"),
        (Errno::ENOSYS, "Linux 5.3"),
    ] {
        let faults = [Fault::Fail(errno); 100];
        let injection = Injection::new().on(libc::SYS_ptrace, &faults);
        let Some(mut tracer) = Tracer::try_start("--trace-once", Some(injection)) else {
            return Completion::ignored_with("NEEDS seccomp user notification".to_owned());
        };
        for who in ["trace", "probe"] {
            let said = tracer.line();
            let refused = format!("{who} refused: ptrace: PTRACE_SEIZE");
            assert!(said.starts_with(&refused), "{errno}: {said}");
            assert!(said.contains(remedy), "{errno}: {said}");
        }
    }
    Completion::Completed
}

// Helpers ---------------------------------------------------------------------------------------------

const LONG: Duration = Duration::from_secs(10);

/// Under these names, this test is a server that has the option `--reactors`, and one that serves
/// whatever its arguments are.
const NAMES_REACTORS: &str = "names-reactors";
const SERVES_ANYHOW: &str = "serves-anyhow";

/// A server of this test's own.
fn own(kind: &str) -> Server {
    let exe = env::current_exe().unwrap();
    Server::start_with_options(&exe, "127.0.0.1:0", &["--serve", kind]).unwrap()
}

fn all_answered(trace: Trace) -> Trace {
    let unanswered = trace.unanswered.as_ref().map(ToString::to_string);
    assert_eq!((unanswered, trace.answers, trace.late), (None, trace.asked, 0));
    assert_eq!(trace.counts().iter().map(|it| it.1).sum::<usize>(), trace.calls.len());
    trace
}

fn made<'a>(trace: &'a Trace, name: &'a str) -> impl Iterator<Item = &'a Call> {
    trace.calls.iter().filter(move |it| it.name() == name)
}

/// The calls begin one after the other, and no thread is in two at once.
fn is_in_order(trace: &Trace) {
    assert!(trace.calls.is_sorted_by_key(|it| it.start_us));
    for thread in 1..=trace.threads {
        let mut over_us = Some(0);
        for call in trace.calls.iter().filter(|it| it.thread == thread) {
            assert!(over_us.is_some_and(|it| it <= call.start_us), "{call:?} after {over_us:?}");
            over_us = call.duration_us.map(|it| call.start_us + it);
        }
    }
}

fn within(time: Duration, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + time;
    while !condition() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(5));
    }
}

/// This test as a process of its own that traces; killed on drop.
struct Tracer {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Tracer {
    fn start(what: &str, injection: Option<Injection>) -> Tracer {
        Tracer::try_start(what, injection).unwrap()
    }

    /// `None` where the machine has no filter for the injection.
    fn try_start(what: &str, injection: Option<Injection>) -> Option<Tracer> {
        let exe: PathBuf = env::current_exe().unwrap();
        let mut command = Command::new(exe);
        command.arg(what).stdin(Stdio::null()).stdout(Stdio::piped());
        let pending = injection.map(|it| it.install(&mut command).unwrap());
        let mut child = command.spawn().ok()?;
        drop(command);
        if let Some(pending) = pending {
            pending.attach(child.id()).unwrap();
        }
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Some(Tracer { child, stdout })
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn trace_for_ever() -> ! {
    let server = own("answers");
    println!("{}", server.pid());
    let _ = trace::one_at_a_time(&server, usize::MAX);
    std::process::exit(1);
}

fn trace_once() -> ! {
    let server = own("answers");
    match trace::batch(&server, 2) {
        Err(error) if error.is::<Refused>() => println!("trace refused: {error:#}"),
        result => println!("trace not refused: {result:?}"),
    }
    match probes::run("few_system_calls_per_answer", &env::current_exe().unwrap()) {
        Err(Trouble::Needs(what)) => println!("probe refused: {what}"),
        result => println!("probe not refused: {result:?}"),
    }
    drop(server);
    std::process::exit(0);
}

/// Says how it was started, and serves.
fn with_reactors(arguments: &[&str]) -> ! {
    if arguments == ["--help"] {
        println!("Usage: it [ADDRESS] [--reactors N]");
        std::process::exit(0);
    }
    eprintln!("{arguments:?}");
    serve("answers")
}

// The servers -----------------------------------------------------------------------------------------

/// Answers every client with `Odd`, and then does what `kind` says.
fn serve(kind: &str) -> ! {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("listening on {}", listener.local_addr().unwrap());
    match kind {
        "workers" | "ends-in-a-thread" => {
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| loop_of(&listener, kind));
                }
            });
        }
        "thread-per-client" => loop {
            let (client, _) = listener.accept().unwrap();
            thread::spawn(move || answer(client, b"Odd\n"));
        },
        "adds" => loop {
            let (mut client, _) = listener.accept().unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 64];
                while client.read(&mut bytes).is_ok_and(|it| bytes[..it] == *b"20 22;") {
                    client.write_all(b"42;").unwrap();
                }
            });
        },
        "spins" => {
            listener.set_nonblocking(true).unwrap();
            loop {
                if let Ok((client, _)) = listener.accept() {
                    client.set_nonblocking(false).unwrap();
                    answer(client, b"Odd\n");
                }
            }
        }
        "says-eintr" => {
            let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
            epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
            loop {
                match epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE) {
                    Err(errno) => eprintln!("{errno}"),
                    Ok(_) => answer(listener.accept().unwrap().0, b"Odd\n"),
                }
            }
        }
        _ => loop_of(&listener, kind),
    }
    unreachable!("they all serve for ever");
}

fn loop_of(listener: &TcpListener, kind: &str) {
    static SERVED: AtomicUsize = AtomicUsize::new(0);
    loop {
        let (client, _) = listener.accept().unwrap();
        match (kind, SERVED.fetch_add(1, Ordering::Relaxed)) {
            ("ends" | "ends-in-a-thread", 2) => std::process::exit(7),
            ("raises", 1) => raise(Signal::SIGTERM).unwrap(),
            ("answers-even", _) => answer(client, b"Even\n"),
            ("waits-for-the-last-word", _) => wait_for_the_last_word(client),
            _ => answer(client, b"Odd\n"),
        }
    }
}

fn wait_for_the_last_word(mut client: TcpStream) {
    let mut bytes = [0; 64];
    let _ = client.read(&mut bytes).and_then(|_| client.write_all(b"Odd\n"));
    let _ = client.shutdown(Shutdown::Write);
    while client.read(&mut bytes).is_ok_and(|it| it > 0) {}
}

fn answer(mut client: TcpStream, answer: &[u8]) {
    let mut bytes = [0; 64];
    if client.read(&mut bytes).is_ok_and(|it| it > 0) {
        // A client that has left does not want an answer.
        let _ = client.write_all(answer);
    }
}
