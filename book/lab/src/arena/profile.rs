//! Where the time goes: perf looks a thousand times in a second at what a server is at, while it is asked as
//! fast as it answers. By the clock alone: that works in a virtual machine too, and says nothing of why an
//! instruction was slow.

use super::{
    Part,
    contender::{Contender, Programs},
    flame::{self, Stacks},
    tree::Tree,
};
use crate::{
    experiment::{Bench, Form, Outcome},
    records::{Table, round},
    scaling::cost::{cores, stay_on},
};
use anyhow::{Context, Result, anyhow, ensure};
use contract::sys;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use stress::http::{self, Plan, be_patient};

/// How often perf looks, in a second: not a divisor of anything that happens at round times.
const LOOKS_PER_S: u32 = 997;

/// Symbols of each server that are kept.
const SYMBOLS: usize = 25;

const CONNECTIONS: usize = 64;

/// How long perf may take to begin.
const BEGINS: Duration = Duration::from_secs(10);

/// Where some of a server's time went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `arena-profile`
    pub experiment: String,
    /// The model or the peer.
    pub server: String,
    /// `loopback`
    pub link: String,
    /// `where` for a whole object, `what` for a function.
    pub kind: String,
    /// The object: `kernel`, the program, a library.
    pub object: String,
    /// The function; empty where the row is about an object.
    pub function: String,
    /// How often perf found it there.
    pub looks: u64,
    /// Of all looks at this server, in percent.
    pub percent: f64,
}

/// How long the part takes: it has no jobs of the usual kind.
pub fn about(part: Part, form: Form) -> Duration {
    match part {
        Part::Profile => (length(form) + Duration::from_secs(3)) * 3,
        _ => Duration::ZERO,
    }
}

fn length(form: Form) -> Duration {
    match form {
        Form::Smoke => Duration::from_millis(500),
        Form::Short => Duration::from_secs(2),
        Form::Full => Duration::from_secs(5),
    }
}

/// Runs the part.
///
/// # Errors
/// If the record cannot be made. A server that cannot be looked at is a failure in the outcome.
pub fn run(bench: &Bench<'_>, programs: &Programs) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    let contenders =
        [Contender::alone("io-uring"), Contender::alone("multireactor"), Contender::Nginx];
    let bar = bench.screen.bar("arena-profile");
    for (at, contender) in contenders.iter().enumerate() {
        if bench.stop.load(Ordering::Relaxed) {
            outcome.missing += 1;
            continue;
        }
        bar.at(at as f64 / contenders.len() as f64, contender.name());
        match look(contender, programs, length(bench.scale.form), bench.stop) {
            Ok(stacks) => {
                rows.extend(rows_of(contender.name(), &stacks));
                if outcome.chart.is_none() {
                    let title = format!("{}: where its CPU time goes", contender.name());
                    outcome.chart = Some(flame::draw(&title, &stacks));
                }
            }
            Err(error) => outcome.fail(format!("{}: {error:#}", contender.name())),
        }
    }
    bar.end();
    outcome.findings.push(counters());
    outcome.scoreboard = board(&rows);
    outcome.table = Table::of(&rows)?;
    Ok(outcome)
}

fn look(
    contender: &Contender,
    programs: &Programs,
    length: Duration,
    stop: &AtomicBool,
) -> Result<Stacks> {
    // A thread of its own: whatever it starts inherits its core, and the server ends with it.
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            let core = *cores()?.first().context("sched_getaffinity: no core")?;
            stay_on(&[core])?;
            be_patient().context("sched_setscheduler(SCHED_BATCH)")?;
            let running = contender.start(programs)?;
            let pid = i32::try_from(running.pid()).context("a process number")?;
            let plan = |length| {
                Plan::saturate(running.address(), "/", CONNECTIONS, length)
                    .with_cpu(core)
                    .with_server_pid(pid)
            };
            let run = |length| http::run(&plan(length), &mut |_| {}, stop).map(drop);
            run(Duration::from_millis(300)).context("the clients cannot run")?;
            let folder = tempfile::Builder::new().prefix("arena-").tempdir().context("mkdtemp")?;
            let file = folder.path().join("perf.data");
            let mut perf = Command::new("perf");
            sys::heed_signals(&mut perf);
            let pids: Vec<String> =
                Tree::of(running.pid())?.pids().iter().map(u32::to_string).collect();
            let seconds = format!("{:.3}", length.as_secs_f64());
            let mut child = perf
                .args(["record", "--quiet", "-e", "cpu-clock", "-g", "-F"])
                .arg(LOOKS_PER_S.to_string())
                .args(["-p", &pids.join(","), "-o"])
                .arg(&file)
                .args(["--", "sleep", &seconds])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .context("perf cannot be started: apt-get install linux-perf")?;
            until_it_looks(&mut child, &file)?;
            run(length + Duration::from_millis(500)).context("the clients cannot run")?;
            let status = child.wait().context("waitpid: perf")?;
            ensure!(
                status.success(),
                "perf record: {status}: as root, or with kernel.perf_event_paranoid at -1, it looks"
            );
            let script = Command::new("perf")
                .args(["script", "-F", "comm,ip,sym,dso", "-i"])
                .arg(&file)
                .stdin(Stdio::null())
                .output()
                .context("perf script")?;
            let stacks = flame::parse(&String::from_utf8_lossy(&script.stdout));
            ensure!(
                stacks.looks() > 0,
                "perf has seen nothing of it: it needs more time (leave --smoke out), or a machine that \
                 does less besides"
            );
            Ok(stacks)
        });
        work.join().unwrap_or_else(|_| Err(anyhow!("a thread of the measurement panicked")))
    })
}

/// perf begins its file when it is about to begin: on a core that is busy this takes it a while, and clients who
/// did not wait would have left by then.
fn until_it_looks(perf: &mut Child, file: &Path) -> Result<()> {
    let start = Instant::now();
    while fs::metadata(file).map_or(0, |it| it.len()) == 0 && start.elapsed() < BEGINS {
        // One that has ended by itself has a status, which is looked at later.
        if perf.try_wait().context("waitpid: perf")?.is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn rows_of(server: &str, stacks: &Stacks) -> Vec<Row> {
    let all = stacks.looks();
    let row = |kind: &str, object: &str, function: &str, looks: u64| Row {
        experiment: "arena-profile".into(),
        server: server.into(),
        link: "loopback".into(),
        kind: kind.into(),
        object: object.into(),
        function: function.into(),
        looks,
        percent: round(100.0 * looks as f64 / all as f64),
    };
    let mut objects: BTreeMap<&str, u64> = BTreeMap::new();
    let mut functions: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (stack, looks) in stacks.each() {
        let Some(frame) = stack.last() else { continue };
        *objects.entry(&frame.object).or_default() += looks;
        *functions.entry((&frame.object, &frame.function)).or_default() += looks;
    }
    let mut rows: Vec<Row> =
        objects.iter().map(|(object, looks)| row("where", object, "", *looks)).collect();
    rows.sort_by_key(|it| std::cmp::Reverse(it.looks));
    let mut of_functions: Vec<Row> = functions
        .iter()
        .map(|((object, function), looks)| row("what", object, function, *looks))
        .collect();
    of_functions.sort_by_key(|it| std::cmp::Reverse(it.looks));
    of_functions.truncate(SYMBOLS);
    rows.extend(of_functions);
    rows
}

/// Whether this machine counts cycles and misses, in a sentence.
fn counters() -> String {
    let output = Command::new("perf")
        .args(["stat", "-x", ",", "-e", "cycles,instructions,cache-misses", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    let Ok(output) = output else {
        return "whether this machine has hardware counters is not known: perf cannot be started (apt-get \
                install linux-perf)"
            .into();
    };
    let text = String::from_utf8_lossy(&output.stderr);
    match text.lines().any(|it| it.starts_with(|digit: char| digit.is_ascii_digit())) {
        true => "this machine has hardware counters: perf stat -e cycles,instructions counts".into(),
        false => "this machine has no hardware counters (a virtual machine seldom has): the profile is by \
                  the clock, and says where the time goes but not why"
            .into(),
    }
}

fn board(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut server = "";
    for row in rows.iter().filter(|it| it.kind == "where" || it.percent >= 1.0) {
        if row.server != server {
            server = &row.server;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{server}");
        }
        let _ = writeln!(text, "  {:>6.2} %  {:<20} {}", row.percent, row.object, row.function);
    }
    text
}
