//! The promises about what a server uses: descriptors, memory, CPU time, its address, its queue.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use nix::sys::socket::send;

use super::{
    ANSWER, LET_GO, Observation, Outcome, PROMPT, TO_SLEEP, Trouble, fails, holds, poll, seconds,
    still_serves,
};
use crate::microscope;
use crate::server::{Client, End, Server, connect_soon, is_connected};
use crate::verdicts::Symptom;

/// The clients of `nothing_leaks`, once as resets and once mixed: all of them, or as many as come and go
/// in the time.
const CLIENTS: usize = 2000;
const CLIENTS_MIN: usize = 200;
const CLIENTS_TIME: Duration = Duration::from_secs(4);

pub(super) fn leaks(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    // Once each, so that what is allocated once is there.
    mixed_clients(&server, 50, Duration::ZERO)?;
    if let Some(finding) = still_serves(&server, "fifty mixed clients")? {
        return Ok(finding);
    }
    let back_to =
        |server: &Server| Ok::<_, anyhow::Error>((server.descriptors()?, server.threads()?));
    let quiet = |before: (usize, usize), server: &Server| {
        back_to(server).is_ok_and(|now| now.0 <= before.0 && now.1 <= before.1)
    };
    // The last of them may still be held: the lowest that is seen while nobody asks is the base.
    thread::sleep(Duration::from_millis(100));
    let before = back_to(&server)?;
    let resident = server.resident_bytes()?;
    let resets = clients(&server, CLIENTS, CLIENTS_TIME, |client, _| Ok(client.reset()?))?;
    let mixed = mixed_clients(&server, CLIENTS, CLIENTS_TIME)?;
    if let Some(finding) = still_serves(&server, "many mixed clients")? {
        return Ok(finding);
    }
    if !poll(LET_GO + PROMPT, || quiet(before, &server)) {
        let now = back_to(&server)?;
        let seen = format!(
            "After {resets} resets and {mixed} clients of all kinds had left, it had {} descriptors and {} threads, \
             against {} and {} before.",
            now.0, now.1, before.0, before.1
        );
        return fails(Symptom::Leaked, seen);
    }
    let grown = server.resident_bytes()?.saturating_sub(resident);
    if grown > 2 * 1024 * 1024 {
        let seen = format!(
            "After {resets} resets and {mixed} others, {} KiB were not back.",
            grown / 1024
        );
        return fails(Symptom::Leaked, seen);
    }
    holds(format!(
        "{resets} resets and {mixed} others left by themselves, and left nothing behind."
    ))
}

/// Clients of all kinds that leave by themselves. How many there were.
fn mixed_clients(server: &Server, most: usize, time: Duration) -> anyhow::Result<usize> {
    clients(server, most, time, |mut client, at| {
        match at % 6 {
            0 => client.reset()?,
            1 => drop(client.ask(b"7\n", ANSWER)),
            2 => {
                let _ = client.send(b"12");
                drop(client); // The end of the stream, and of the line.
            }
            3 => {
                let _ = client.send(&[b'8'; 1000]);
                drop(client); // The answer is not read: the server meets a reset.
            }
            4 => {
                let _ = client.send(b"12");
                client.reset()?;
            }
            _ => {
                let _ = client.half_close();
                client.hear(ANSWER);
            }
        }
        Ok(())
    })
}

/// Clients who come one after the other and each do `act`, `most` of them or as many as come and go in
/// the time. How many there were.
fn clients(
    server: &Server,
    most: usize,
    time: Duration,
    act: impl Fn(Client, usize) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let start = Instant::now();
    for at in 0..most {
        // With a short queue a dropped SYN costs a client a second, and where nobody is answered any more
        // each one waits in vain.
        let elapsed = start.elapsed();
        if at >= CLIENTS_MIN && elapsed > time || elapsed > 4 * time {
            return Ok(at);
        }
        // Let it accept the last one: who is reset in a queue of two still takes a place there.
        thread::sleep(Duration::from_micros(200));
        act(server.connect("a client")?, at)?;
    }
    Ok(most)
}

pub(super) fn idle(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    // Whoever has gone, in whatever way, must not be asked about for ever.
    server.connect("a client")?.reset()?;
    let mut gone = server.connect("a client")?;
    gone.send(b"12")?;
    gone.reset()?;
    if let Some(finding) = still_serves(&server, "two resets")? {
        return Ok(finding);
    }
    let mut sleeps_in_all = 0;
    for held in [0, 2] {
        // Two who are held: one says nothing, one has said half a line. Shorter than the patience.
        let mut holders = Vec::new();
        for said in [b"".as_slice(), b"12"].into_iter().take(held) {
            let mut holder = server.connect("a holder")?;
            let _ = holder.send(said);
            holders.push(holder);
        }
        thread::sleep(TO_SLEEP);
        let time = Duration::from_millis(1500);
        let sleeps = server.sleeps()?;
        let (cpu, spun) = spins(&server, time, time / 20)?;
        let sleeps = server.sleeps()?.saturating_sub(sleeps);
        sleeps_in_all += sleeps;
        // A twentieth of a core, or a wake-up each fortieth of a second.
        if spun || sleeps > 60 {
            let seen = format!(
                "With {held} silent clients it used {} ms of CPU time in {} and woke up {sleeps} times.",
                cpu.as_millis(),
                seconds(time)
            );
            return fails(Symptom::Spun, seen);
        }
    }
    holds(format!("While nobody asked anything, it woke up {sleeps_in_all} times."))
}

/// An address of 127.0.0.0/8 that nobody else uses: no other test's client can be in the way there when
/// a port is wanted a second time.
pub(super) fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = u8::try_from(std::process::id() % 250).unwrap_or(0);
    Ipv4Addr::new(127, process + 2, high, low)
}

pub(super) fn restart(exe: &Path) -> Outcome {
    let mut server = Server::start_at(exe, &format!("{}:0", own_address()))?;
    let address = server.address();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL, Signal::SIGTERM] {
        for _ in 0..5 {
            if let Some(finding) = still_serves(&server, "its start")? {
                return Ok(finding);
            }
        }
        // One who is still there when the server ends.
        let mut held = server.connect("a client")?;
        held.send(b"12")?;
        server.signal(signal)?;
        // One that drains has to let the client go first, who has its patience.
        let Ok(status) = server.wait(LET_GO) else {
            let seen = format!("{signal} did not end it within {}.", seconds(LET_GO));
            return fails(Symptom::WentOn, seen);
        };
        // A server may end by the signal, or take its leave and say so by status 0.
        if status.signal() != Some(signal as i32) && !status.success() {
            return fails(Symptom::Died, format!("At {signal} it ended with {status}."));
        }
        server = match Server::start_at(exe, &address.to_string()) {
            Ok(server) => server,
            Err(error) => {
                let seen = format!("Started again on {address} at once, it said: {error:#}.");
                return fails(Symptom::AddressTaken, seen);
            }
        };
    }
    must_remember()?;
    holds("Four times it was ended and started again on the same port at once.")
}

/// The CPU time that it uses in `time`, and whether that is more than `most` or it wanted most of the time.
pub(super) fn spins(
    server: &Server,
    time: Duration,
    most: Duration,
) -> anyhow::Result<(Duration, bool)> {
    let (cpu, wanted) = (server.cpu_time()?, server.wanted_time()?);
    thread::sleep(time);
    let (cpu, wanted) = (server.cpu_time()? - cpu, server.wanted_time()?.saturating_sub(wanted));
    Ok((cpu, cpu > most || wanted > time * 2 / 3))
}

/// Demands room in the table of TIME_WAIT: what makes a restart hard is what the kernel remembers of the
/// connections that the server closed.
pub(super) fn must_remember() -> Result<(), Trouble> {
    if remembers_no_more()? {
        return Err(Trouble::Needs(
            "room in the kernel's table of TIME_WAIT, which is full after a load test \
             (net.ipv4.tcp_max_tw_buckets): wait a minute"
                .into(),
        ));
    }
    Ok(())
}

/// Whether the table of TIME_WAIT is full, so that the kernel forgets connections at once.
fn remembers_no_more() -> anyhow::Result<bool> {
    let most: usize =
        fs::read_to_string("/proc/sys/net/ipv4/tcp_max_tw_buckets")?.trim().parse()?;
    let text = fs::read_to_string("/proc/net/sockstat")?;
    // `TCP: inuse 19 orphan 0 tw 47030 alloc 19 mem 82`
    let mut fields = text.split_whitespace().skip_while(|it| *it != "tw").skip(1);
    let now: usize = fields.next().context("/proc/net/sockstat: tw")?.parse()?;
    Ok(now + 100 > most)
}

/// How many clients come at once: more than a short queue holds, fewer than any sensible one.
const BURST: usize = 100;

pub(super) fn burst(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    // Stopped, it accepts nobody: who gets in now is in the kernel's queue.
    thread::sleep(TO_SLEEP);
    server.stop()?;
    let sockets: Vec<OwnedFd> =
        (0..BURST).map(|_| connect_soon(server.address())).collect::<Result<_, _>>()?;
    let connected = |it: &&OwnedFd| is_connected(it);
    poll(PROMPT, || sockets.iter().filter(connected).count() == BURST);
    let inside: Vec<OwnedFd> = sockets.into_iter().filter(is_connected).collect();
    let count = inside.len();
    for socket in &inside {
        send(socket.as_raw_fd(), b"7\n", nix::sys::socket::MsgFlags::MSG_NOSIGNAL)?;
    }
    server.signal(Signal::SIGCONT)?;
    // Nothing else comes that could wake it for those whom it forgets.
    for (at, socket) in inside.into_iter().enumerate() {
        let heard = Client::adopt(TcpStream::from(socket), "a client of the burst")?.hear(ANSWER);
        if !heard.is(b"Odd\n") {
            server.must_run()?;
            let seen =
                format!("Of {count} clients that got in at once, number {at} heard {heard}.");
            let symptom =
                if heard.end == End::Reset { Symptom::Reset } else { Symptom::Unanswered };
            return fails(symptom, seen);
        }
    }
    if count < BURST {
        let seen = format!(
            "Of {BURST} clients that connected at once, {count} got in; the kernel dropped the SYN of \
             the others, who try again a second later and ever later."
        );
        return fails(Symptom::QueueOverflowed, seen);
    }
    holds(format!("{BURST} clients connected at once, got in at once, and were served."))
}

pub(super) fn out_of_descriptors(exe: &Path) -> Outcome {
    const LIMIT: u64 = 32;
    const SILENT: usize = 60;
    let mut limit = LIMIT;
    let mut server = Server::start(exe)?;
    let has_a_ring = server.has_a_ring();
    if has_a_ring {
        // With many cores it has more than that open before the first client comes.
        limit = limit.max(u64::try_from(server.descriptors()? + SILENT / 4)?);
        server = Server::start_with_descriptors(exe, limit)?;
    }
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    if !has_a_ring {
        server.limit_descriptors(limit)?;
    }
    let said_before = server.stderr_lines();
    let silent: Vec<OwnedFd> =
        (0..SILENT).map(|_| connect_soon(server.address())).collect::<Result<_, _>>()?;
    if has_a_ring && let Some(finding) = must_be_full(&server, limit, None)? {
        return Ok(finding);
    }
    // A fifth of a core.
    let time = Duration::from_secs(3);
    let (cpu, spun) = spins(&server, time, time / 5)?;
    let said = server.stderr_lines() - said_before;
    let story = format!(
        "With {limit} descriptors and {SILENT} silent clients it used {} ms of CPU time in {} and \
         wrote {said} lines.",
        cpu.as_millis(),
        seconds(time)
    );
    // Or a line for each attempt.
    if spun || said > 2 * SILENT {
        return fails(Symptom::Spun, story);
    }
    drop(silent);
    match still_serves(&server, "sixty clients had held its descriptors and left")? {
        Some(finding) => Ok(finding),
        None => holds(story),
    }
}

/// Demands that each number below `limit` is open and that somebody waits in the kernel's queue, `client`
/// if it is given: whoever accepts then is told EMFILE. Of a ring nothing else tells that. A finding where
/// somebody waits though there is a descriptor left: then it accepts nobody any more.
pub(super) fn must_be_full(
    server: &Server,
    limit: u64,
    client: Option<SocketAddr>,
) -> Result<Option<Observation>, Trouble> {
    let waiting = || microscope::look(server.pid(), server.address().port()).waiting;
    let is_full = || {
        let waiting = waiting();
        let is_awaited = client.map_or(!waiting.is_empty(), |it| waiting.contains(&it));
        is_awaited && server.has_all_below(limit)
    };
    if poll(ANSWER, is_full) {
        return Ok(None);
    }
    server.must_run()?;
    let (open, waiting) = (server.descriptors()?, waiting().len());
    if waiting > 0 {
        let seen = format!(
            "With {open} descriptors of {limit} it accepts nobody: {waiting} wait in its accept queue."
        );
        return fails(Symptom::Unanswered, seen).map(Some);
    }
    Err(Trouble::Broken(anyhow::anyhow!(
        "it had {open} descriptors of {limit}, and that its accept failed was not seen"
    )))
}
