//! Clients that come on a schedule, resolve a name (each time, or once before the first), connect and ask.
//!
//! One thread sends the questions, one hears the answers, and a few connect and ask. A request that gets no
//! answer to its question does not ask again: what is looked at is the first answer.

use super::resolver::{question, read_answer};
use crate::records::round;
use anyhow::{Context, Result};
use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// The name that is asked for.
const NAME: &str = "server.test";

/// So many connect and ask at once. The server that they ask needs less than a millisecond for each.
const ASKERS: usize = 8;

/// Between two looks at whether all is over.
const LOOK: Duration = Duration::from_millis(50);

/// When the name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Before the first request.
    Once,
    /// In each request.
    PerRequest,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Requests per second of each step.
    pub rates: Vec<f64>,
    /// The length of a step.
    pub hold: Duration,
    /// The patience of a client, with the look-up in it.
    pub timeout: Duration,
}

/// What came of a step.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// From 1.
    pub number: u32,
    /// Requests per second.
    pub rate: f64,
    /// Requests that were due.
    pub scheduled: u64,
    /// Answered right, in time.
    pub correct: u64,
    /// The name was not resolved in time.
    pub unresolved: u64,
    /// The server did not answer in time.
    pub unanswered: u64,
    /// Latency of those answered, from the moment for which they were scheduled.
    pub p50_ms: Option<f64>,
    /// As above.
    pub p99_ms: Option<f64>,
    /// Latency of the look-ups.
    pub lookup_p50_ms: Option<f64>,
}

/// One request, and how far it has come.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    /// When it was due.
    due: Option<Instant>,
    resolved_ms: Option<f64>,
    answered_ms: Option<f64>,
}

impl Lookup {
    /// As in the record.
    pub fn name(self) -> &'static str {
        match self {
            Lookup::Once => "once",
            Lookup::PerRequest => "per-request",
        }
    }
}

/// Drives the server at `port` of whatever address the resolver says. Each step ends before the next one
/// begins, so that none waits for what another has left. A step that `stop` ends is left out.
///
/// # Errors
/// If a socket cannot be made, or the name cannot be resolved where that is done once.
pub fn drive(
    plan: &Plan,
    lookup: Lookup,
    resolver: SocketAddr,
    port: u16,
    progress: &mut dyn FnMut(f64, &str),
    stop: &AtomicBool,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (index, &rate) in plan.rates.iter().enumerate() {
        progress(index as f64 / plan.rates.len() as f64, &format!("{rate}/s"));
        let count = (rate * plan.hold.as_secs_f64()).round() as u16;
        let known = match lookup {
            Lookup::Once => Some(resolve(resolver)?),
            Lookup::PerRequest => None,
        };
        let requests = climb(rate, count, plan.timeout, known, (resolver, port), stop)?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        steps.push(Step::of(index as u32 + 1, rate, &requests, lookup));
    }
    Ok(steps)
}

/// One question and its answer.
fn resolve(resolver: SocketAddr) -> Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("bind: a question")?;
    socket.set_read_timeout(Some(Duration::from_secs(5))).context("setsockopt(SO_RCVTIMEO)")?;
    socket.send_to(&question(1, NAME), resolver).context("sendto: the resolver")?;
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer).context("recv: the resolver does not answer")?;
    Ok(read_answer(&buffer[..length]).context("the resolver's answer is none")?.1)
}

/// One step: `count` requests at `rate`, with the address if it is `known`.
fn climb(
    rate: f64,
    count: u16,
    timeout: Duration,
    known: Option<Ipv4Addr>,
    (resolver, port): (SocketAddr, u16),
    stop: &AtomicBool,
) -> Result<Vec<Request>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("bind: the questions")?;
    socket.set_read_timeout(Some(LOOK)).context("setsockopt(SO_RCVTIMEO)")?;
    let start = Instant::now() + LOOK;
    let due = |id: u16| start + Duration::from_secs_f64(f64::from(id) / rate);
    let requests: Vec<Mutex<Request>> = (0..count)
        .map(|id| Mutex::new(Request { due: Some(due(id)), ..Request::default() }))
        .collect();
    let over = due(count) + timeout;
    let is_over = || Instant::now() > over || stop.load(Ordering::Relaxed);
    let (ready, next) = mpsc::channel::<(u16, Ipv4Addr)>();
    let next = Mutex::new(next);
    thread::scope(|scope| {
        let (requests, next, socket, is_over) = (&requests, &next, &socket, &is_over);
        for _ in 0..ASKERS {
            scope.spawn(move || {
                while let Some((id, address)) = take(next, is_over) {
                    let target = SocketAddr::from((address, port));
                    ask(&requests[usize::from(id)], id, target, timeout);
                }
            });
        }
        if known.is_none() {
            let ready = ready.clone();
            scope.spawn(move || hear(socket, requests, &ready, is_over));
        }
        for id in 0..count {
            thread::sleep(due(id).saturating_duration_since(Instant::now()));
            if is_over() {
                break;
            }
            // Nobody takes it, or it cannot be sent: it counts as a request without an answer.
            match known {
                Some(address) => drop(ready.send((id, address))),
                None => drop(socket.send_to(&question(id, NAME), resolver)),
            }
        }
        drop(ready);
    });
    let read = |it: Mutex<Request>| it.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(requests.into_iter().map(read).collect())
}

/// The next one to ask; `None` when there will be none.
fn take(
    next: &Mutex<mpsc::Receiver<(u16, Ipv4Addr)>>,
    is_over: &impl Fn() -> bool,
) -> Option<(u16, Ipv4Addr)> {
    loop {
        let waiting = next.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.recv_timeout(LOOK) {
            Ok(one) => return Some(one),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) if is_over() => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Hears the answers of the resolver and hands them on.
fn hear(
    socket: &UdpSocket,
    requests: &[Mutex<Request>],
    ready: &mpsc::Sender<(u16, Ipv4Addr)>,
    is_over: &impl Fn() -> bool,
) {
    let mut buffer = [0; 512];
    let mut left = requests.len();
    while left > 0 && !is_over() {
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        let Some((id, address)) = read_answer(&buffer[..length]) else { continue };
        let Some(request) = requests.get(usize::from(id)) else { continue };
        left -= 1;
        note(request, |it, took_ms| it.resolved_ms = Some(took_ms));
        let _ = ready.send((id, address)); // Nobody takes it: nobody answers it.
    }
}

fn ask(request: &Mutex<Request>, id: u16, target: SocketAddr, timeout: Duration) {
    let number = u64::from(id) + 1;
    let due = request.lock().unwrap_or_else(PoisonError::into_inner).due;
    let waited = due.map_or(Duration::ZERO, |due| due.elapsed());
    let Some(left) = timeout.checked_sub(waited).filter(|left| !left.is_zero()) else { return };
    let right = if number % 2 == 1 { "Odd" } else { "Even" };
    if stress::ask(&number.to_string(), target, left).is_ok_and(|it| it.answer == right) {
        note(request, |it, took_ms| it.answered_ms = Some(took_ms));
    }
}

fn note(request: &Mutex<Request>, note: impl FnOnce(&mut Request, f64)) {
    let mut request = request.lock().unwrap_or_else(PoisonError::into_inner);
    let took = request.due.map_or(Duration::ZERO, |due| due.elapsed());
    note(&mut request, took.as_secs_f64() * 1e3);
}

impl Step {
    fn of(number: u32, rate: f64, requests: &[Request], lookup: Lookup) -> Step {
        let sorted = |value: fn(&Request) -> Option<f64>| {
            let mut values: Vec<f64> = requests.iter().filter_map(value).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (answered, resolved) = (sorted(|it| it.answered_ms), sorted(|it| it.resolved_ms));
        let (all, correct) = (requests.len() as u64, answered.len() as u64);
        let unresolved = match lookup {
            Lookup::Once => 0,
            Lookup::PerRequest => all - resolved.len() as u64,
        };
        Step {
            number,
            rate,
            scheduled: all,
            correct,
            unresolved,
            unanswered: all - correct - unresolved,
            p50_ms: at(&answered, 0.5),
            p99_ms: at(&answered, 0.99),
            lookup_p50_ms: at(&resolved, 0.5),
        }
    }
}

/// The value that `share` of the sorted `values` do not exceed.
fn at(values: &[f64], share: f64) -> Option<f64> {
    let index = (share * values.len() as f64).ceil() as usize;
    values.get(index.saturating_sub(1)).map(|ms| round(*ms))
}
