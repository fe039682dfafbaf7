//! Ten thousand clients at once, half of them silent, against the chapters whose clients do not wait for
//! each other: every talker is answered, every silent one let go, and what a client that does nothing
//! costs is measured while they are all there.

use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use contract::build;
use contract::server::{Client, End, Server};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// How many come, and how many descriptors each side needs beside them.
const CLIENTS: usize = 10_000;
const SPARE: u64 = 200;

/// The servers, and how many bytes of its own memory a client may cost that does nothing.
const SERVERS: [(&str, usize); 3] = [("ch04", 300), ("ch05", 300), ("ch06", 200)];

const LONG: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1); // Each of them wants the machine.
    let trials = SERVERS.map(|(name, bytes_max)| {
        let test = move || crowd(name, bytes_max).map_err(|it| Failed::from(format!("{it:#}")));
        Trial::ignorable_test(format!("{name}_and_ten_thousand_clients"), test)
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

fn crowd(name: &str, bytes_max: usize) -> anyhow::Result<Completion> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("getrlimit")?;
    let wanted = CLIENTS as u64 + SPARE;
    if hard < wanted {
        let needs = format!("NEEDS {wanted} descriptors, may have {hard}: raise `ulimit -Hn`");
        return Ok(Completion::ignored_with(needs));
    }
    // The servers inherit it.
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).context("setrlimit")?;
    let exe = build::program(name)?;
    if let Err(error) = Server::start(&exe)
        && format!("{error:#}").contains("io_uring is ")
    {
        return Ok(Completion::ignored_with(format!("NEEDS io_uring: {error:#}")));
    }
    // On a machine that is too busy, the first are let go before the last have come.
    for _ in 0..3 {
        if let Some(bytes) = all_at_once(name, &exe)? {
            println!("{name}: {bytes} bytes of its memory for each client that does nothing");
            ensure!(bytes <= bytes_max, "{bytes} bytes for an idle client, more than {bytes_max}");
            return Ok(Completion::Completed);
        }
    }
    Ok(Completion::ignored_with(
        "NEEDS a quieter machine: three times it took longer than the patience until all had come",
    ))
}

/// What a client that does nothing costs, in bytes, or `None` when they could not all be there at once.
fn all_at_once(name: &str, exe: &Path) -> anyhow::Result<Option<usize>> {
    // With one reactor, so that what is measured does not depend on how many cores a machine has: the
    // tables of each are as large as the next power of two.
    let options: &[&str] = if name == "ch04" { &[] } else { &["--reactors", "1"] };
    let server = Server::start_with_options(exe, "127.0.0.1:0", options)?;
    // Buffers and tables for a few are there.
    ensure!(server.connect("the first")?.ask(b"7\n", LONG).is(b"Odd\n"), "{name} does not answer");
    let (descriptors, resident) = (server.descriptors()?, server.resident_bytes()?);

    let start = Instant::now();
    let mut clients = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        let stream = TcpStream::connect(server.address()).context("connect")?;
        clients.push(Client::adopt(stream, "one of ten thousand")?);
    }
    let mut held = 0;
    while start.elapsed() < Duration::from_millis(1500) && held < CLIENTS {
        held = server.descriptors()?.saturating_sub(descriptors);
    }
    let bytes = server.resident_bytes()?.saturating_sub(resident) / held.max(1);
    for talker in clients.iter_mut().step_by(2) {
        let _ = talker.send(b"7\n");
    }
    if start.elapsed() > Duration::from_millis(1900) || held < CLIENTS {
        return Ok(None);
    }
    for (at, talker) in clients.iter_mut().enumerate().step_by(2) {
        let heard = talker.hear(LONG);
        ensure!(heard.is(b"Odd\n"), "of {CLIENTS} clients, number {at} asked and heard {heard}");
    }
    for (at, silent) in clients.iter_mut().enumerate().skip(1).step_by(2) {
        let heard = silent.hear(LONG);
        let let_go = heard.end == End::Closed && heard.bytes.is_empty();
        ensure!(let_go, "of {CLIENTS} clients, number {at} said nothing and heard {heard}");
    }
    let end = Instant::now() + LONG;
    while server.descriptors()? > descriptors {
        ensure!(
            Instant::now() < end,
            "{} descriptors, {descriptors} before",
            server.descriptors()?
        );
        thread::sleep(Duration::from_millis(10));
    }
    Ok(Some(bytes))
}
