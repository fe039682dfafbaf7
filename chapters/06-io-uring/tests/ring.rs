//! What a ring does that no other chapter has: chains, buffers that run out, a queue that runs over, and
//! machines that do not allow one.
//!
//! Where this machine has no io_uring, nothing here is tried, and that is said.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use contract::inject::{Fault, Injection};
use contract::server::{Client, End, Server};
use contract::sys;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use ring::{Operation, Ring};

#[path = "../src/abi.rs"]
mod abi;
#[path = "../src/orphan.rs"]
mod orphan;
#[expect(dead_code, reason = "a part of it is enough for the tests")]
#[expect(unsafe_code, reason = "an io_uring is memory that is shared with the kernel")]
#[path = "../src/ring.rs"]
mod ring;

const EXE: &str = env!("CARGO_BIN_EXE_ch06");

/// How long a client may wait that has to be served.
const SERVED: Duration = Duration::from_secs(10);

/// When a client that says nothing must have been let go, and before when it must not.
const LET_GO: Duration = Duration::from_secs(4);
const HELD: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    sys::raise_descriptors(); // For a thousand clients the usual soft limit of 1,024 is too small.
    let arguments = Arguments::from_args();
    let trials = vec![
        trial("a_chain_ends_with_the_send_that_fails", chain),
        trial("a_receive_is_cancelled_before_a_close", cancel),
        trial("buffers_that_run_out_come_back", buffers),
        trial("a_queue_that_runs_over_loses_nothing", overflow),
        trial("five_hundred_at_once_and_a_ring_of_eight_entries", many_at_once),
        trial("a_thousand_silent_clients_leave_nothing_behind", silent),
        trial("it_is_stopped_and_continued_at_any_moment", stopped_and_continued),
        trial("a_listener_that_outlives_its_descriptor_is_waited_for", orphan),
        trial("a_killed_one_is_replaced_at_once", killed),
        trial("a_stop_ends_though_no_descriptor_becomes_free", without_descriptors),
        trial("it_starts_fifty_times_with_sixteen_rings", starts),
        trial("locked_memory_is_enough_or_is_named", locked_memory),
        trial("where_io_uring_is_forbidden_it_says_so", || refused(Errno::EPERM, "is forbidden")),
        trial("where_io_uring_is_missing_it_says_so", || refused(Errno::ENOSYS, "is missing")),
        trial("where_io_uring_is_too_old_it_says_so", || refused(Errno::EINVAL, "is too old")),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test that fails with an error, and is not tried where there is no ring.
fn trial(name: &str, test: impl FnOnce() -> anyhow::Result<()> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, || match Ring::new(8, 1) {
        Ok(_) => match test() {
            Ok(()) => Ok(Completion::Completed),
            Err(error) => Err(Failed::from(format!("{error:#}"))),
        },
        Err(error) => Ok(Completion::ignored_with(format!("NEEDS io_uring: {error:#}"))),
    })
}

/// All completions until nothing more comes within a while, as tokens and results.
fn all(
    ring: &mut Ring,
    asked: &mut Vec<Operation>,
) -> anyhow::Result<Vec<(u64, nix::Result<usize>)>> {
    let mut found = Vec::new();
    loop {
        ring.enter(asked, Some(Duration::from_millis(250)))?;
        let before = found.len();
        while let Some(done) = ring.completed() {
            found.push((done.token, done.result));
        }
        if found.len() == before && asked.is_empty() {
            return Ok(found);
        }
    }
}

fn is_open(descriptor: RawFd) -> bool {
    fs::exists(format!("/proc/self/fd/{descriptor}")).unwrap_or(false)
}

fn chain() -> anyhow::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let socket = ours.as_raw_fd();
    let chain = |send| {
        vec![
            Operation::send(socket, send, 1).silent().then(),
            Operation::discard(socket, 2).silent().in_any_case_then(),
            Operation::close(socket, 3),
        ]
    };
    drop(theirs);
    let mut ring = Ring::new(8, 1)?;
    let found = all(&mut ring, &mut chain(b"7\n"))?;
    let (failed, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.0 == 1);
    ensure!(failed == [(1, Err(Errno::EPIPE))], "the send says why: {failed:?}");
    ensure!(others.iter().all(|it| it.1 == Err(Errno::ECANCELED)), "the others: {others:?}");
    ensure!(is_open(socket), "the close was not made");
    let (ours, mut theirs) = UnixStream::pair()?;
    let socket = std::os::fd::IntoRawFd::into_raw_fd(ours);
    let mut chain = vec![
        Operation::send(socket, b"7\n", 1).silent().then(),
        Operation::discard(socket, 2).in_any_case_then(),
        Operation::close(socket, 3),
    ];
    let found = all(&mut ring, &mut chain)?;
    ensure!(
        found == [(2, Err(Errno::EAGAIN)), (3, Ok(0))],
        "nothing to discard, and then: {found:?}"
    );
    let mut heard = String::new();
    theirs.read_to_string(&mut heard)?;
    ensure!(heard == "7\n", "{heard:?}");
    Ok(())
}

fn cancel() -> anyhow::Result<()> {
    let (ours, mut theirs) = UnixStream::pair()?;
    let socket = std::os::fd::IntoRawFd::into_raw_fd(ours);
    let mut ring = Ring::new(8, 1)?;
    let mut asked = vec![Operation::receive(socket, 1)];
    let found = all(&mut ring, &mut asked)?;
    ensure!(found.is_empty(), "nothing was sent, and {found:?}");
    asked.push(Operation::cancel(1, 2).silent());
    let found = all(&mut ring, &mut asked)?;
    ensure!(found == [(1, Err(Errno::ECANCELED))], "the receive alone tells of it: {found:?}");
    asked.push(Operation::cancel(1, 2).silent());
    let found = all(&mut ring, &mut asked)?;
    ensure!(found == [(2, Err(Errno::ENOENT))], "it was over: {found:?}");
    asked.push(Operation::close(socket, 3));
    let found = all(&mut ring, &mut asked)?;
    ensure!(found == [(3, Ok(0))], "{found:?}");
    theirs.set_read_timeout(Some(SERVED))?;
    ensure!(theirs.read(&mut [0; 1]).context("the end of the stream")? == 0);
    Ok(())
}

fn buffers() -> anyhow::Result<()> {
    let pairs: Vec<_> = (0..64).map(|_| UnixStream::pair()).collect::<Result<_, _>>()?;
    for (at, (_, theirs)) in pairs.iter().enumerate() {
        (&mut &*theirs).write_all(format!("{at}").as_bytes())?;
    }
    let mut ring = Ring::new(64, 4)?;
    let receive = |at: usize| Operation::receive(pairs[at].0.as_raw_fd(), at as u64);
    let mut asked: Vec<_> = (0..pairs.len()).map(receive).collect();
    let (mut found, mut wanted) = (vec![0; pairs.len()], 0);
    while found.contains(&0) {
        ring.enter(&mut asked, Some(SERVED))?;
        let before = (wanted, found.clone());
        while let Some(done) = ring.completed() {
            let at = usize::try_from(done.token)?;
            match done.result {
                Ok(_) => {
                    ensure!(done.bytes == format!("{at}").as_bytes(), "{at} got {:?}", done.bytes);
                    found[at] += 1;
                }
                Err(Errno::ENOBUFS) => {
                    wanted += 1;
                    asked.push(receive(at));
                }
                Err(errno) => bail!("receive {at}: {errno}"),
            }
        }
        ensure!(before != (wanted, found.clone()), "{wanted} wants, and nothing more comes");
    }
    ensure!(wanted > 0, "four buffers were enough for 64: nothing was tried");
    ensure!(found.iter().all(|it| *it == 1), "{found:?}");
    Ok(())
}

fn overflow() -> anyhow::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut ring = Ring::new(4, 1)?;
    let mut asked: Vec<_> =
        (0..100).map(|token| Operation::readable(ours.as_raw_fd(), token)).collect();
    let found = all(&mut ring, &mut asked)?;
    ensure!(found.is_empty() && !ring.has_overflowed(), "nothing can be read: {found:?}");
    (&theirs).write_all(b"7")?;
    let mut found = all(&mut ring, &mut asked)?;
    ensure!(ring.has_overflowed(), "a hundred completions have room in a queue of eight?");
    found.sort_unstable_by_key(|it| it.0);
    ensure!(found.iter().map(|it| it.0).eq(0..100), "each once: {found:?}");
    Ok(())
}

/// Connects while the server stands still, so that all are there when it goes on.
fn many_at_once() -> anyhow::Result<()> {
    let small = ["--reactors", "1", "--entries", "8", "--buffers", "4"];
    let server = Server::start_with_options(Path::new(EXE), "127.0.0.1:0", &small)?;
    server.stop()?;
    let mut clients = Vec::new();
    for at in 1..=500 {
        let mut client = server.connect("one of five hundred")?;
        client.send(format!("{at}\n").as_bytes())?;
        clients.push(client);
    }
    server.signal(Signal::SIGCONT)?;
    for (at, client) in (1..).zip(&mut clients) {
        let heard = client.hear(SERVED);
        let expected: &[u8] = if at % 2 == 1 { b"Odd\n" } else { b"Even\n" };
        ensure!(heard.is(expected), "client {at} heard {heard}");
    }
    let said = server.stderr();
    ensure!(said.matches("completion queue ran over").count() == 1, "once, it says so: {said:?}");
    Ok(())
}

fn silent() -> anyhow::Result<()> {
    const CLIENTS: usize = 1000;
    let server = Server::start(Path::new(EXE))?;
    let before = server.descriptors()?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(server.connect("a silent client")?);
    }
    let last = clients.last_mut().context("a client")?;
    ensure!(last.is_held(), "let go at once");
    ensure!(server.descriptors()? > before, "nobody is held");
    for client in &mut clients {
        let heard = client.hear(LET_GO);
        let age = client.age();
        ensure!(
            heard.bytes.is_empty() && heard.end == End::Closed,
            "a silent client heard {heard}"
        );
        ensure!(age > HELD, "let go after {age:?}");
    }
    let deadline = Instant::now() + SERVED;
    while server.descriptors()? > before {
        ensure!(
            Instant::now() < deadline,
            "{} descriptors, {before} before",
            server.descriptors()?
        );
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn stopped_and_continued() -> anyhow::Result<()> {
    let server = Server::start(Path::new(EXE))?;
    let ask = |client: &mut Client| {
        let heard = client.ask(b"7\n", SERVED);
        ensure!(heard.is(b"Odd\n"), "heard {heard}");
        Ok(())
    };
    for round in 0..100 {
        let mut before = server.connect("a client")?;
        if round % 2 == 0 {
            before.send(b"1")?; // Something is under way.
        }
        server.stop()?;
        let mut meanwhile = server.connect("a client of a server that stands still")?;
        if round % 3 == 0 {
            before.send(b"1")?;
        }
        server.signal(Signal::SIGCONT)?;
        ask(&mut before)?;
        ask(&mut meanwhile)?;
    }
    Ok(())
}

/// The listener of a killed process, made to stay: a ring accepts from it, and its descriptor is closed.
fn orphan() -> anyhow::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut ring = Ring::new(8, 1)?;
    let mut asked = vec![Operation::accept(listener.as_raw_fd(), 1)];
    ensure!(all(&mut ring, &mut asked)?.is_empty(), "nobody has come");
    drop(listener);
    let is_gone = AtomicBool::new(false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            orphan::wait_for(address);
            is_gone.load(Ordering::SeqCst)
        });
        thread::sleep(Duration::from_millis(100));
        is_gone.store(true, Ordering::SeqCst);
        drop(ring);
        let saw_it_go = waits.join().ok().context("no panic")?;
        ensure!(saw_it_go, "it was not waited for");
        std::net::TcpListener::bind(address).context("it is gone")?;
        Ok(())
    })
}

/// A ring that is taken apart holds its listener for some milliseconds, and whoever comes to that one is
/// reset: so the next server is started without a moment's delay.
fn killed() -> anyhow::Result<()> {
    let mut address = "127.0.0.1:0".to_owned();
    for round in 1..=30 {
        let mut command = Command::new(EXE);
        command.arg(&address).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        contract::sys::die_with_parent(&mut command);
        let mut server = command.spawn()?;
        let mut line = String::new();
        BufReader::new(server.stdout.take().context("stdout was piped")?).read_line(&mut line)?;
        address = line.trim_start_matches("listening on ").trim_end().to_owned();
        let connect = |_| Client::connect(address.parse()?, "a client", SERVED).context("connect");
        let clients: Result<Vec<_>, _> = (0..16).map(connect).collect();
        let heard = clients?.iter_mut().map(|it| it.ask(b"7\n", SERVED)).collect::<Vec<_>>();
        server.kill()?;
        server.wait()?;
        for heard in heard {
            ensure!(heard.is(b"Odd\n"), "round {round}: heard {heard}");
        }
    }
    Ok(())
}

fn without_descriptors() -> anyhow::Result<()> {
    let mut server = Server::start(Path::new(EXE))?;
    // Fewer than are open. The accept that goes on knows nothing of it; those of the stop do.
    server.limit_descriptors(1)?;
    server.signal(Signal::SIGTERM)?;
    let status = server.wait(SERVED)?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

fn starts() -> anyhow::Result<()> {
    for start in 1..=50 {
        let rings = ["--reactors", "16"];
        let mut server = Server::start_with_options(Path::new(EXE), "127.0.0.1:0", &rings)
            .with_context(|| format!("start {start}"))?;
        let heard = server.connect("a client")?.ask(b"7\n", SERVED);
        ensure!(heard.is(b"Odd\n"), "start {start}: heard {heard}");
        server.signal(Signal::SIGTERM)?;
        let status = server.wait(SERVED)?;
        ensure!(status.success(), "start {start}: {status}");
    }
    Ok(())
}

/// Runs it where so much memory may be locked, as somebody who is not excepted from that.
fn with_locked_memory(exe: &Path, kib: u32, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut shell = Command::new("sh");
    // It serves until `timeout` ends it: that is status 0, as for everybody who stops it.
    let script = format!("ulimit -l {kib} && exec timeout -k 5 1 \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(exe).arg("127.0.0.1:0").args(arguments);
    if fs::metadata("/proc/self")?.uid() == 0 {
        const NOBODY: u32 = 65534;
        shell.uid(NOBODY).gid(NOBODY);
    }
    shell.output().context("sh")
}

fn locked_memory() -> anyhow::Result<()> {
    // Where everybody may run it.
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let exe: PathBuf = folder.path().join("ch06");
    fs::copy(EXE, &exe)?;
    for rings in ["1", "16"] {
        let largest = ["--reactors", rings, "--entries", "32768", "--buffers", "32768"];
        for sizes in [&largest[..2], &largest] {
            let output = with_locked_memory(&exe, 64, sizes)?;
            let said = String::from_utf8_lossy(&output.stderr);
            let works = output.stdout.starts_with(b"listening on ") && said.is_empty();
            let refuses = output.status.code() == Some(1)
                && output.stdout.is_empty()
                && said.lines().count() == 1
                && said.contains("ulimit -l");
            ensure!(works || refuses, "{sizes:?}: {}: {said:?}", output.status);
        }
    }
    Ok(())
}

/// Every call that a ring needs, refused in turn: one sentence, and status 1.
fn refused(errno: Errno, why: &str) -> anyhow::Result<()> {
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_register, libc::SYS_io_uring_enter];
    for call in calls {
        if errno == Errno::EINVAL && call == libc::SYS_io_uring_enter {
            continue; // What the setup has granted, this call does not refuse for its age.
        }
        let injection = Injection::new().on(call, &[Fault::Fail(errno); 64]);
        let error = match Server::start_with(Path::new(EXE), injection) {
            Ok(_) => bail!("call {call} fails with {errno}, and it serves"),
            Err(error) => format!("{error:#}"),
        };
        let (_, sentence) = error.split_once("listens: ").with_context(|| error.clone())?;
        ensure!(sentence.lines().count() == 1, "one sentence: {sentence:?}");
        for part in ["ch06: ", "io_uring_", errno_name(errno), why] {
            ensure!(sentence.contains(part), "no {part:?} in {sentence:?}");
        }
    }
    Ok(())
}

fn errno_name(errno: Errno) -> &'static str {
    match errno {
        Errno::EPERM => "EPERM",
        Errno::ENOSYS => "ENOSYS",
        _ => "EINVAL",
    }
}
