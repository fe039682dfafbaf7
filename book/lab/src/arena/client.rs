//! The load generator itself, beside wrk: the same server, the same connections, a closed loop, and what an
//! answer costs the client.
//!
//! On one core with the server, the quicker of two generators is the one that leaves the server more of it. So one
//! server has a core of its own, and is slow enough to be the limit there: of that one both must hear as much.

use super::{
    Part, board,
    contender::{Contender, Programs, Running},
    drive, in_whole, rounds,
    row::Row,
    whole,
};
use crate::{
    experiment::{Bench, Form, Outcome, rows},
    pool::{self, Task},
    records::{Table, round},
    scaling::cost::{cores, stay_on},
};
use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use std::{
    process::{Command, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::Duration,
};
use stress::http::{self, Plan};

const CONNECTIONS: usize = 64;

/// A generator against a server.
#[derive(Clone, Debug)]
struct Duel {
    generator: &'static str,
    server: Contender,
    /// Whether the server has a core of its own.
    is_apart: bool,
    round: u64,
    length: Duration,
}

/// How long the part takes, beside its jobs of the usual kind, of which it has none.
pub fn about(part: Part, form: Form) -> Duration {
    let once: Duration = duels(form).iter().map(|it| it.length + Duration::from_secs(1)).sum();
    if part == Part::Client { once } else { Duration::ZERO }
}

fn duels(form: Form) -> Vec<Duel> {
    // wrk takes whole seconds.
    let length = Duration::from_secs(if form == Form::Full { 2 } else { 1 });
    let servers = [
        (Contender::Nginx, false),
        (Contender::alone("multireactor"), false),
        (Contender::Haproxy, true),
    ];
    let mut duels = Vec::new();
    for round in 1..=rounds(Part::Client, form) {
        for (server, is_apart) in servers.clone() {
            for generator in ["wrk", "stress", "wrk-again"] {
                let server = server.clone();
                duels.push(Duel { generator, server, is_apart, round, length });
            }
        }
    }
    duels
}

impl Duel {
    /// What it is called in the record.
    fn load(&self) -> String {
        let apart = if self.is_apart { " apart" } else { "" };
        format!("{}{apart}", self.server.name())
    }
}

/// Runs the part.
///
/// # Errors
/// If the record cannot be made.
pub fn run(bench: &Bench<'_>, programs: &Programs) -> Result<Outcome> {
    let part = |duel: &Duel| format!("{} {} #{}", duel.generator, duel.load(), duel.round);
    let tasks: Vec<Task<Duel>> = duels(bench.scale.form)
        .into_iter()
        .map(|duel| Task { part: part(&duel), job: duel })
        .collect();
    let mut outcome = Outcome::default();
    let done = pool::all(
        bench,
        &tasks,
        1,
        |duel| {
            let row = measure(duel, programs, bench.stop).with_context(|| part(duel));
            whole(row, bench.stop)
        },
        Option::is_some,
    );
    let rows = rows(in_whole(done), &mut outcome);
    outcome.scoreboard = board::of(Part::Client, &rows);
    outcome.answer = board::answer(Part::Client, &rows);
    outcome.table = Table::of(&rows)?;
    Ok(outcome)
}

fn measure(duel: &Duel, programs: &Programs, stop: &AtomicBool) -> Result<Row> {
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            let cores = cores()?;
            let servers = *cores.first().context("sched_getaffinity: no core")?;
            let own = if duel.is_apart { cores.get(1) } else { Some(&servers) };
            let core =
                *own.context("2 cores: this process may use one only (see `taskset -p $$`)")?;
            stay_on(&[servers])?;
            let running = duel.server.start(programs)?;
            stay_on(&[core])?;
            let (answers_per_s, answers, cpu_s) = match duel.generator {
                "stress" => ours(&running, core, duel.length, stop)?,
                _ => wrk(&running, duel.length)?,
            };
            Ok(Row {
                experiment: "arena-client".into(),
                server: duel.generator.into(),
                family: "load generators".into(),
                link: "loopback".into(),
                stall: "none".into(),
                seed: duel.round,
                step: 1,
                load: duel.load(),
                connections: CONNECTIONS,
                pipeline: 1,
                cores: 1 + usize::from(duel.is_apart),
                answers_per_s: round(answers_per_s),
                answers,
                client_cpu_s_per_million: drive::per_million(cpu_s, answers).map(round),
                ..Row::default()
            })
        });
        work.join().unwrap_or_else(|_| Err(anyhow!("a thread of the measurement panicked")))
    })
}

fn ours(
    running: &Running,
    core: usize,
    length: Duration,
    stop: &AtomicBool,
) -> Result<(f64, u64, f64)> {
    let pid = i32::try_from(running.pid()).context("a process number")?;
    let plan = Plan::saturate(running.address(), "/", CONNECTIONS, length)
        .with_cpu(core)
        .with_server_pid(pid);
    let report = http::run(&plan, &mut |_| {}, stop).context("the clients cannot run")?;
    Ok((report.answers_per_s, report.correct, report.cost.own_cpu_s))
}

/// Its CPU time is that of the children that have been waited for: no other one ends meanwhile.
fn wrk(running: &Running, length: Duration) -> Result<(f64, u64, f64)> {
    let before = children_s()?;
    let output = Command::new("wrk")
        .args(["-t", "1", "-c", &CONNECTIONS.to_string(), "-d", &format!("{}s", length.as_secs())])
        .arg(format!("http://{}/", running.address()))
        .stdin(Stdio::null())
        .output()
        .context("wrk cannot be started: apt-get install wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "wrk: {}: {text}", output.status);
    let (answers, seconds) = counted(&text).with_context(|| format!("wrk says: {text}"))?;
    Ok((answers as f64 / seconds, answers, children_s()? - before))
}

fn children_s() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    let seconds = |it: nix::sys::time::TimeVal| it.tv_sec() as f64 + it.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// From `  12345 requests in 1.10s, 2.10MB read`.
fn counted(text: &str) -> Option<(u64, f64)> {
    let line = text.lines().find(|it| it.contains(" requests in "))?;
    let (answers, rest) = line.trim().split_once(" requests in ")?;
    let (time, _) = rest.split_once(',')?;
    let seconds = match time.strip_suffix("ms") {
        Some(milliseconds) => milliseconds.parse::<f64>().ok()? / 1e3,
        None => time.strip_suffix('s')?.parse().ok()?,
    };
    Some((answers.parse().ok()?, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_is_read() {
        let text =
            "Running 1s test @ http://127.0.0.1:1/\n  12345 requests in 1.10s, 2.10MB read\n";
        assert_eq!(counted(text), Some((12_345, 1.1)));
        assert_eq!(counted("  5 requests in 900.00ms, 1KB read"), Some((5, 0.9)));
        assert_eq!(counted("unable to connect"), None);
    }
}
