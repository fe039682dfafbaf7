//! What a client costs that does nothing: the server's resident memory before and while many of them are
//! connected.
//!
//! It is the memory of the process. The kernel keeps a socket for each client as well, which no process is
//! charged for here.

use crate::{
    binaries::Binary,
    experiment::{Bench, Experiment, Form, Outcome, Scale},
    machine::DESCRIPTORS_OWN,
    pool::{self, Task},
    records::{Table, round},
    servers::{named, short},
};
use anyhow::{Context, Result, ensure};
use contract::{server::Server, verdicts::Column};
use serde::{Deserialize, Serialize};
use std::{
    fmt::Write,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

const SERVERS: [&str; 3] = ["ch04", "ch05", "ch06"];

/// How many clients there are at once.
const CROWDS: [usize; 3] = [1_000, 4_000, 10_000];
const CROWDS_SMOKE: [usize; 2] = [200, 1_000];

/// The servers let a silent client go after 2 s: all have to be counted before that.
const COUNTED: Duration = Duration::from_millis(1_700);

/// On a machine that is too busy the first are let go before the last have come: so often it is tried.
const TRIES: usize = 4;

/// A server whose descriptors are the same for so long has nothing left to do.
const SETTLED: Duration = Duration::from_millis(100);

/// How long the first client waits for its answer.
const LONG: Duration = Duration::from_secs(10);

/// `cargo lab memory`
pub struct Memory;

/// One server with one crowd, once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `memory`
    pub experiment: String,
    /// The binary.
    pub server: String,
    /// `loopback`
    pub link: String,
    /// `silent`: all of them are.
    pub stall: String,
    /// 100
    pub stall_percent: f64,
    /// Which of the equal runs, from 1.
    pub seed: u64,
    /// Which crowd, from 1.
    pub step: u32,
    /// Reactors of the server.
    pub reactors: usize,
    /// How many are connected at once.
    pub clients: usize,
    /// The server's resident memory before the first of them, in bytes.
    pub resident_before_bytes: usize,
    /// The same while all are there.
    pub resident_bytes: usize,
    /// What it has grown by, for each of them.
    pub bytes_per_client: f64,
}

impl Experiment for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn question(&self) -> &'static str {
        "How much of its memory does a client cost a server, if it does nothing?"
    }

    fn prediction(&self) -> &'static str {
        "10,000 cost below 300 bytes each in 04 and 05, a place in a table; in 06, which lends its buffers, fewer."
    }

    fn servers(&self) -> Vec<Column> {
        named(&SERVERS)
    }

    fn about(&self, scale: &Scale, servers: usize) -> Duration {
        let runs = servers as u32 * crowds(scale).len() as u32 * repeats(scale) as u32;
        Duration::from_millis(1_000) * runs
    }

    fn run(&self, bench: &Bench<'_>) -> Result<Outcome> {
        let most = bench.machine.descriptors_max.saturating_sub(2 * DESCRIPTORS_OWN) as usize;
        let (fits, too_many): (Vec<usize>, Vec<usize>) =
            crowds(bench.scale).iter().partition(|clients| **clients <= most);
        let mut outcome = Outcome::default();
        for clients in too_many {
            outcome.failures.push(format!(
                "{clients} clients need as many descriptors, and RLIMIT_NOFILE is {}: allow more \
                 (ulimit -Hn {}, as root)",
                bench.machine.descriptors_max,
                clients + 1_000
            ));
        }
        let mut tasks = Vec::new();
        for seed in 1..=repeats(bench.scale) {
            for server in bench.servers {
                for (index, &clients) in fits.iter().enumerate() {
                    let part = format!("{} {clients} #{seed}", server.column.name);
                    tasks.push(Task { part, job: (server, clients, seed, 1 + index as u32) });
                }
            }
        }
        let bar = bench.screen.bar("memory");
        let all = tasks.len() as f64;
        let begun = std::sync::atomic::AtomicUsize::new(0);
        // One at a time: each wants the machine.
        let done = pool::all(
            bench,
            &tasks,
            1,
            |&(server, clients, seed, step)| {
                let at = begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                bar.at(at as f64 / all, &format!("{}, {clients} clients", server.column.name));
                measure(server, clients).map(|row| Row { seed, step, ..row })
            },
            |_| true,
        );
        bar.end();
        let rows = crate::experiment::rows(done, &mut outcome);
        outcome.scoreboard = board(&rows);
        outcome.table = Table::of(&rows)?;
        Ok(outcome)
    }
}

fn crowds(scale: &Scale) -> &'static [usize] {
    if scale.form == Form::Smoke { &CROWDS_SMOKE } else { &CROWDS }
}

fn repeats(scale: &Scale) -> u64 {
    if scale.form == Form::Smoke { 1 } else { 3 }
}

fn measure(binary: &Binary, clients: usize) -> Result<Row> {
    for _ in 0..TRIES {
        if let Some(row) = all_at_once(binary, clients)? {
            return Ok(row);
        }
    }
    anyhow::bail!(
        "{}: {clients} clients did not all come within {COUNTED:?}, {TRIES} times: is the machine busy?",
        short(binary.column.name)
    )
}

/// What `clients` cost that do nothing, or `None` if they could not all be there at once.
fn all_at_once(binary: &Binary, clients: usize) -> Result<Option<Row>> {
    // With one reactor, so that what is measured does not depend on how many cores a machine has: the
    // tables of each are as large as the next power of two.
    let has_reactors = short(binary.column.name) >= "05";
    let options: &[&str] = if has_reactors { &["--reactors", "1"] } else { &[] };
    let server = Server::start_with_options(&binary.path, "127.0.0.1:0", options)
        .with_context(|| format!("{} cannot run", short(binary.column.name)))?;
    // Buffers and tables for a few are there.
    let heard = server.connect("the first")?.ask(b"7\n", LONG);
    ensure!(heard.is(b"Odd\n"), "{} does not answer: {heard}", binary.column.name);
    let descriptors = settled_descriptors(&server)?;
    let before = server.resident_bytes()?;
    let start = Instant::now();
    let mut held = Vec::with_capacity(clients);
    for _ in 0..clients {
        held.push(TcpStream::connect(server.address()).context("connect: one of the crowd")?);
    }
    while server.descriptors()? < descriptors + clients {
        if start.elapsed() > COUNTED {
            return Ok(None);
        }
    }
    let resident = server.resident_bytes()?;
    if start.elapsed() > COUNTED {
        return Ok(None);
    }
    Ok(Some(Row {
        experiment: "memory".into(),
        server: binary.column.name.into(),
        link: "loopback".into(),
        stall: "silent".into(),
        stall_percent: 100.0,
        seed: 1,
        step: 1,
        reactors: 1,
        clients,
        resident_before_bytes: before,
        resident_bytes: resident,
        bytes_per_client: round(resident.saturating_sub(before) as f64 / clients as f64),
    }))
}

/// How many descriptors it has when that has not changed for a while: the first client has left.
fn settled_descriptors(server: &Server) -> Result<usize> {
    let (mut count, mut since) = (server.descriptors()?, Instant::now());
    while since.elapsed() < SETTLED {
        thread::sleep(Duration::from_millis(1));
        let now = server.descriptors()?;
        if now != count {
            (count, since) = (now, Instant::now());
        }
    }
    Ok(count)
}

fn board(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<8} {:>8} {:>4} {:>12} {:>12} {:>18}\n",
        "server", "clients", "run", "before", "with them", "bytes for each"
    );
    let kib = |bytes: usize| format!("{} KiB", bytes / 1024);
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<8} {:>8} {:>4} {:>12} {:>12} {:>18.0}",
            short(&row.server),
            row.clients,
            row.seed,
            kib(row.resident_before_bytes),
            kib(row.resident_bytes),
            row.bytes_per_client,
        );
    }
    text
}
