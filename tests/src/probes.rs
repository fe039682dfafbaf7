//! What each promise means: one probe a row, each with servers of its own.
//!
//! A probe *holds*, *observes* and *releases*: a first client puts the server in a state, known to be
//! reached; a second one asks; the first lets go. The servers' patience is two seconds, so that no
//! deadline here is: who must be served is served within [`PROMPT`] while the holder is still held, and
//! who must be let go is let go within [`LET_GO`].
//!
//! Expected bytes are written out, not computed: a probe must not share the servers' code.

mod answers;
mod calls;
mod errors;
pub mod http;
mod reactors;
mod resources;
mod stalls;

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::server::{Ended, Server};
use crate::verdicts::{Symptom, Verdict};

/// A client that must be served is served within this time.
pub const PROMPT: Duration = Duration::from_secs(1);

/// A client that must be let go is let go within this time.
pub const LET_GO: Duration = Duration::from_secs(4);

/// How long an answer may take when nobody holds the server up, on a busy machine.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a server that has nothing to do takes to be asleep.
const TO_SLEEP: Duration = Duration::from_millis(30);

/// What a probe found.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Kept, or how it was broken.
    pub verdict: Verdict,
    /// What was seen, in sentences: who held, who waited, for how long, who slept on whom.
    pub seen: String,
}

/// Why a probe found nothing.
#[derive(Debug)]
pub enum Trouble {
    /// This machine lacks something; the sentence says what to do.
    Needs(String),
    /// The server could not be run, or the probe itself failed.
    Broken(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Broken(error.into())
    }
}

/// What every probe returns.
pub type Outcome = Result<Observation, Trouble>;

type Probe = fn(&Path) -> Outcome;

/// The probes, in the order of the table.
const PROBES: [(&str, Probe); 21] = [
    ("answers_odd_even_invalid", answers::odd_even_invalid),
    ("any_split_is_the_same_request", answers::any_split),
    ("a_half_closed_client_is_answered", answers::half_closed),
    ("an_overlong_line_is_refused", answers::overlong_line),
    ("resets_harm_nobody_else", errors::resets),
    ("an_accept_error_stops_nobody", errors::accept_errors),
    ("a_signal_loses_nobody", errors::signals),
    ("a_short_send_is_finished", errors::short_sends),
    ("a_reused_descriptor_is_a_new_client", errors::reused_descriptors),
    ("nothing_leaks", resources::leaks),
    ("an_idle_server_burns_no_cpu", resources::idle),
    ("it_restarts_at_once", resources::restart),
    ("a_burst_of_connects_is_queued", resources::burst),
    ("a_silent_client_is_let_go", stalls::silent_let_go),
    ("a_silent_client_stalls_nobody", stalls::silent_stalls),
    ("half_a_line_stalls_nobody", stalls::half_a_line_stalls),
    ("a_dripping_client_is_let_go", stalls::dripping_let_go),
    ("running_out_of_descriptors_does_not_spin", resources::out_of_descriptors),
    ("every_core_serves", reactors::every_core),
    ("a_restart_loses_nobody", reactors::restart),
    ("few_system_calls_per_answer", calls::few_calls),
];

/// The rows that can be probed.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROBES.iter().map(|it| it.0)
}

/// Probes the program `exe` for the promise called `row`.
///
/// # Errors
///
/// [`Trouble`]: there is no such row, the server cannot be run, or the machine lacks something.
pub fn run(row: &str, exe: &Path) -> Outcome {
    let Some((_, probe)) = PROBES.iter().find(|it| it.0 == row) else {
        return Err(Trouble::Broken(anyhow::anyhow!("no probe is called {row:?}")));
    };
    judged(|| probe(exe))
}

/// What `probe` finds on a machine that does not stand still meanwhile.
fn judged(probe: impl Fn() -> Outcome) -> Outcome {
    match on_a_steady_machine(probe) {
        // Wherever a probe meets a server that has ended, this is what it has found.
        Err(Trouble::Broken(error)) if error.is::<Ended>() => {
            fails(Symptom::Died, format!("{error:#}."))
        }
        // The server's own sentence: missing, forbidden or too old, and what to do.
        Err(Trouble::Broken(error)) if format!("{error:#}").contains("io_uring is ") => {
            Err(Trouble::Needs(format!("io_uring: {error:#}")))
        }
        outcome => outcome,
    }
}

/// A machine that stood still for so long has changed who was in time.
const STOOD_STILL: Duration = Duration::from_millis(400);

/// Makes `probe` once more, whatever it found, when this machine stood still meanwhile (a virtual
/// machine that was not run, a disk that was waited for): what was found then concerns the machine.
fn on_a_steady_machine(probe: impl Fn() -> Outcome) -> Outcome {
    for _ in 0..3 {
        let pulse = Pulse::start();
        let outcome = probe();
        if pulse.longest_gap() < STOOD_STILL {
            return outcome;
        }
    }
    probe()
}

/// A thread that wakes up often, and notes when it could not.
struct Pulse {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<Duration>,
}

impl Pulse {
    fn start() -> Pulse {
        let every = Duration::from_millis(20);
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            loop {
                let before = Instant::now();
                let stopped = stopped.recv_timeout(every) != Err(mpsc::RecvTimeoutError::Timeout);
                longest = longest.max(before.elapsed().saturating_sub(every));
                if stopped {
                    return longest;
                }
            }
        });
        Pulse { stop, thread }
    }

    fn longest_gap(self) -> Duration {
        drop(self.stop);
        self.thread.join().unwrap_or(Duration::MAX)
    }
}

fn holds(seen: impl Into<String>) -> Outcome {
    Ok(Observation { verdict: Verdict::Holds, seen: seen.into() })
}

fn fails(symptom: Symptom, seen: impl Into<String>) -> Outcome {
    Ok(Observation { verdict: Verdict::Fails(symptom), seen: seen.into() })
}

/// A plain request, after whatever was done to the server. `None` when it is answered; otherwise the
/// finding.
fn still_serves(server: &Server, after: &str) -> Result<Option<Observation>, Trouble> {
    let heard = match server.connect_within("a plain client", ANSWER) {
        Ok(mut client) => client.ask(b"7\n", ANSWER),
        Err(error) => {
            server.must_run()?;
            let seen = format!("After {after} a plain client could not connect: {error}.");
            return fails(Symptom::Unanswered, seen).map(Some);
        }
    };
    if heard.is(b"Odd\n") {
        return Ok(None);
    }
    let symptom = match heard.bytes.as_slice() {
        b"Odd\n" => Symptom::Reset,
        b"" => {
            server.must_run()?;
            Symptom::Unanswered
        }
        _ => Symptom::WrongAnswer,
    };
    fails(symptom, format!("After {after} a plain client asked 7 and heard {heard}.")).map(Some)
}

/// Looks every few milliseconds whether `condition` holds, at most `within`. Whether it did.
fn poll(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A duration as it is told: seconds with one digit.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
