//! Clients in a process of their own: it has descriptors of its own, and may be somewhere else than we are.
//!
//! It is this same program, which hears what to do on stdin and says what came of it on stdout, a line of
//! JSON each.

use super::crowd::{Crowd, Now, Seen, clients};
use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// What the process of the clients says, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Now(Now),
    Seen(Seen),
    Failed(String),
}

/// The clients of `crowd` in a process of their own: `command` starts this program as `drive`, wherever.
///
/// # Errors
/// If it cannot be started or ends without a word; and what [`clients`] fails with over there.
pub fn clients_apart(
    mut command: Command,
    crowd: &Crowd,
    target: SocketAddr,
    progress: &mut dyn FnMut(&Now),
    stop: &AtomicBool,
) -> Result<Seen> {
    contract::sys::die_with_parent(&mut command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("fork and exec: the process of the clients")?;
    let mut orders = child.stdin.take();
    let heard = child.stdout.take().context("the clients' process has no stdout")?;
    let mut order = serde_json::to_vec(&(target, crowd)).context("the clients as JSON")?;
    order.push(b'\n');
    if let Some(orders) = &mut orders {
        orders.write_all(&order).context("write to the clients' process")?;
    }
    let mut ended = None;
    for line in BufReader::new(heard).lines() {
        let line = line.context("read from the clients' process")?;
        match serde_json::from_str(&line).context("a line of the clients' process")? {
            Message::Now(now) => progress(&now),
            Message::Seen(seen) => ended = Some(Ok(seen)),
            Message::Failed(why) => ended = Some(Err(anyhow!(why))),
        }
        if stop.load(Ordering::Relaxed) {
            drop(orders.take()); // Its stdin ends, and it stops.
        }
    }
    let status = child.wait().context("waitpid: the clients' process")?;
    ended.unwrap_or_else(|| Err(anyhow!("the clients' process ended without a report: {status}")))
}

/// The process of [`clients_apart`]: one line says what to do, and the end of stdin says to stop.
///
/// # Errors
/// If nobody says what to do, or nobody hears what came of it.
pub fn serve_orders() -> Result<()> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("read: what to do")?;
    let (target, crowd): (SocketAddr, Crowd) = serde_json::from_str(&line)
        .context("what to do is not JSON: cargo lab starts this itself")?;
    // Our stdin ends with the parent, or when the parent wants us to stop. Nobody waits for this thread.
    let orders = thread::Builder::new().name("orders".into());
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        STOP.store(true, Ordering::Relaxed);
    };
    orders.spawn(wait).context("clone: no thread left")?;
    let mut progress = |now: &Now| {
        // If nobody hears it, the parent has ended, and so has our stdin.
        let _ = say(&Message::Now(now.clone()));
    };
    say(&match clients(&crowd, target, &mut progress, &STOP) {
        Ok(seen) => Message::Seen(seen),
        Err(error) => Message::Failed(format!("{error:#}")),
    })
}

fn say(message: &Message) -> Result<()> {
    let mut line = serde_json::to_vec(message).context("what is said as JSON")?;
    line.push(b'\n');
    io::stdout().write_all(&line).context("write: what is said")
}
