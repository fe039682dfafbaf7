//! Whoever else is there: milestone 2. A first client holds, a second one asks, the first lets go.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use contract::microscope;
use contract::server::Server;

use crate::grade::caller::{ANSWER, Caller, GRACE, Ground, Lacks, PROMPT};
use crate::grade::parameters::Stop;

pub(super) fn silent(ground: &mut Ground) -> anyhow::Result<String> {
    stalls_nobody(ground, 0, "said nothing")
}

pub(super) fn half(ground: &mut Ground) -> anyhow::Result<String> {
    stalls_nobody(ground, 1, "said half a request")
}

fn stalls_nobody(ground: &Ground, bytes: usize, did: &str) -> anyhow::Result<String> {
    let server = ground.start()?;
    let count = ground.parameters.silent_clients;
    let said = ground.framed("1 2");
    // On a machine that is too busy they may be let go before the other one has asked.
    for _ in 0..3 {
        let mut holders = Vec::new();
        for _ in 0..count {
            let mut holder = Caller::connect(server.address(), ANSWER)?;
            holder.send(&said[..bytes])?;
            holders.push(holder);
        }
        thread::sleep(Duration::from_millis(50));
        if let Err(error) = ground.must_serve(&server, PROMPT) {
            let view = look(&server, &holders[0]);
            return Err(error.context(format!("{count} clients {did}; another one asked: {view}")));
        }
        if holders.iter().all(Caller::is_held) {
            return Ok(format!("{count} clients {did} and were held, and another one was served."));
        }
        let age = holders[0].since.elapsed();
        ensure!(age > ground.patience() / 2, "clients that {did} were let go after {age:?}");
    }
    anyhow::bail!("three times the holders were let go before another client was served")
}

/// What the microscope sees of a server.
fn look(server: &Server, holder: &Caller) -> String {
    let view = microscope::look(server.pid(), server.address().port());
    match holder.address() {
        Ok(address) => view.sentence(&[("the first holder", address)]),
        Err(_) => view.sentence(&[]),
    }
}

pub(super) fn patience(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    let whole = ground.framed("40 2");
    let mut silent = Caller::connect(server.address(), ANSWER)?;
    let mut half = Caller::connect(server.address(), ANSWER)?;
    half.send(&whole[..2])?;
    let mut slow = Caller::connect(server.address(), ANSWER)?;
    slow.send(&whole[..2])?;
    thread::sleep(ground.patience() / 2);
    slow.send(&whole[2..])?;
    slow.must_hear(&ground.framed("42"), PROMPT)
        .context("a client that took half of the server's patience")?;
    let most = ground.patience() + GRACE;
    for (caller, who) in [(&mut silent, "nothing"), (&mut half, "half a request")] {
        let left = most.saturating_sub(caller.since.elapsed());
        let gone = caller.is_let_go(left.max(Duration::from_millis(250)));
        ensure!(gone, "a client that said {who} was still held after {:?}", caller.since.elapsed());
    }
    // An answer is a new beginning: the slow one has its whole time again.
    if ground.parameters.stop != Stop::Count(1) {
        let gone = slow.is_let_go(most + GRACE);
        ensure!(gone, "a client that had its answer and said nothing more was never let go");
    }
    Ok("Silent clients were let go, and one that took half of the time was not.".into())
}

pub(super) fn dripping(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    let mut caller = Caller::connect(server.address(), ANSWER)?;
    let whole = ground.framed(&["123456789"; 8].join(" "));
    let every = ground.patience() / 8;
    let most = ground.patience() + GRACE;
    for byte in &whole {
        if caller.since.elapsed() > most {
            let view = look(&server, &caller);
            anyhow::bail!("a client that sent a byte now and then was held for {most:?}: {view}");
        }
        if caller.send(&[*byte]).is_err() || caller.is_let_go(every) {
            break;
        }
    }
    let age = caller.since.elapsed();
    ensure!(age > ground.patience() / 2, "it was let go after {age:?}, long before its time");
    ground.must_serve(&server, ANSWER)?;
    Ok("A client that sent a byte now and then was let go in its time.".into())
}

pub(super) fn deaf(ground: &mut Ground) -> anyhow::Result<String> {
    const SENT_MAX: usize = 8 * 1024 * 1024;
    const GROWN_MAX: usize = 16 * 1024 * 1024;
    let server = ground.start()?;
    ground.must_serve(&server, ANSWER)?;
    let before = server.resident_bytes()?;
    let mut caller = Caller::connect(server.address(), ANSWER)?;
    let piece = ground.framed("1 2").repeat(1024);
    let (mut sent, start) = (0, Instant::now());
    while sent < SENT_MAX && start.elapsed() < Duration::from_secs(2) {
        match caller.push(&piece) {
            Ok(0) | Err(_) => break,
            // A part of a request is sent again from its beginning: no more than nonsense at its end.
            Ok(length) => sent += length,
        }
    }
    ground.must_serve(&server, PROMPT).context("beside a client that asks and never reads")?;
    let grown = server.resident_bytes()?.saturating_sub(before);
    ensure!(grown < GROWN_MAX, "it kept {grown} bytes for a client that never reads");
    let deadline = Instant::now() + ground.patience() + GRACE;
    while caller.push(&piece).is_ok() {
        ensure!(Instant::now() < deadline, "a client that never reads was never let go");
    }
    Ok("A client that asked and never read was let go, and another one was served.".into())
}

pub(super) fn leaks(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    let visit = |rounds: usize| -> anyhow::Result<()> {
        for at in 0..rounds {
            let mut caller = Caller::connect(server.address(), ANSWER)?;
            match at % 4 {
                0 => caller.reset()?,
                1 => drop(caller.send(&ground.framed("1 2")[..2])),
                2 => {
                    let _ = caller.send(&ground.framed("1 2"));
                    caller.reset()?;
                }
                _ => {
                    caller.send(&ground.framed("1 2"))?;
                    caller.must_hear(&ground.framed("3"), ANSWER)?;
                }
            }
        }
        Ok(())
    };
    visit(40)?;
    thread::sleep(Duration::from_millis(200));
    let now = || -> anyhow::Result<_> {
        let hidden =
            |error| Lacks(format!("/proc of another user cannot be seen here ({error:#})"));
        Ok((server.descriptors().map_err(hidden)?, server.threads()?))
    };
    let before = now()?;
    visit(400)?;
    let deadline = Instant::now() + ground.patience() + GRACE;
    loop {
        let after = now()?;
        if after.0 <= before.0 && after.1 <= before.1 {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "after 400 clients had left it had {} descriptors and {} threads, against {} and {}",
            after.0,
            after.1,
            before.0,
            before.1
        );
        thread::sleep(Duration::from_millis(50));
    }
    ground.must_serve(&server, ANSWER)?;
    Ok("400 clients came and left in four ways, and left nothing behind.".into())
}

pub(super) fn descriptors(ground: &mut Ground) -> anyhow::Result<String> {
    // From its start: a limit that is set later takes a right that a grader may not have.
    ground.descriptors = 32;
    let server = ground.start()?;
    ground.must_serve(&server, ANSWER)?;
    let (cpu, start) = (server.cpu_time()?, Instant::now());
    let holders: Vec<Caller> = (0..40)
        .map(|_| Caller::connect(server.address(), ANSWER))
        .collect::<anyhow::Result<_>>()?;
    thread::sleep(Duration::from_millis(1200));
    // A fifth of the time: of one core, whatever it waits for.
    let (used, wall) = (server.cpu_time()?.saturating_sub(cpu), start.elapsed());
    ensure!(used < wall / 5, "with no descriptor left it used {used:?} of CPU time in {wall:?}");
    drop(holders);
    ground.must_serve(&server, ANSWER).context("when its descriptors were free again")?;
    Ok("With no descriptor left it waited, and then served again.".into())
}

pub(super) fn idle(ground: &mut Ground) -> anyhow::Result<String> {
    let server = ground.start()?;
    ground.must_serve(&server, ANSWER)?;
    Caller::connect(server.address(), ANSWER)?.reset()?;
    ground.must_serve(&server, ANSWER)?;
    let (cpu, start) = (server.cpu_time()?, Instant::now());
    let held = Caller::connect(server.address(), ANSWER)?;
    thread::sleep(ground.patience() + Duration::from_millis(500));
    let (used, wall) = (server.cpu_time()?.saturating_sub(cpu), start.elapsed());
    ensure!(used < wall / 20, "with one silent client it used {used:?} of CPU time in {wall:?}");
    drop(held);
    ground.must_serve(&server, ANSWER)?;
    Ok("With one silent client it slept.".into())
}
