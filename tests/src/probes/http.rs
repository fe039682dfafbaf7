//! What each promise of the table of chapter 07 means: probes of an HTTP server, in the manner of the
//! others.
//!
//! Where a probe is about patience, the server is told to have two seconds of it, so that no deadline here
//! is that.

mod acknowledgements;
mod answers;
mod calls;
mod cores;
mod crowds;
mod errors;
mod resources;
mod stalls;
mod stops;

use std::thread;
use std::time::{Duration, Instant};

use super::{ANSWER, Observation, Outcome, PROMPT, Trouble, fails, judged, poll};
use crate::http::{Answer, Caller, NoAnswer, get_and_close};
use crate::inject::Injection;
use crate::microscope;
use crate::server::{Client, End, Program, Server};
use crate::verdicts::{Symptom, models};

/// A server that is held to the table.
#[derive(Clone, Debug)]
pub struct Subject {
    /// How it is started; an address and options follow.
    pub program: Program,
    /// How many workers it has where its system calls are counted.
    pub workers_of_batch: &'static str,
    /// How many calls it may make then for each answer.
    pub calls_per_answer: f64,
}

type Probe = fn(&Subject) -> Outcome;

/// The probes, in the order of the table, and how much room each needs: see [`weight`].
#[rustfmt::skip]
const PROBES: [(&str, Probe, usize); 32] = [
    ("answers_get_parity_and_404", answers::parity_and_404, 1),
    ("any_split_is_the_same_request", answers::any_split, 1),
    ("a_half_closed_client_is_answered", answers::half_closed, 1),
    ("pipelined_requests_are_answered_in_order", answers::pipelined, 1),
    ("no_answer_waits_for_an_acknowledgement", acknowledgements::none_waits, 1),
    ("a_refusal_is_not_lost_to_a_reset", answers::refusal, 1),
    ("a_large_answer_survives_a_slow_reader", answers::large_answer, 1),
    ("resets_harm_nobody_else", errors::resets, 2),
    ("an_accept_error_stops_nobody", errors::accepts, 2),
    ("an_interrupted_wait_harms_nobody", errors::interrupted, 2),
    ("nothing_leaks", resources::leaks, 4),
    ("an_idle_server_burns_no_cpu", resources::idle, 1),
    ("it_restarts_at_once", resources::restart, 1),
    ("stop_answers_what_is_in_flight", stops::in_flight, 1),
    ("a_stop_cuts_no_answer_short", stops::on_its_way, 1),
    ("a_second_stop_ends_at_once", stops::second, 1),
    ("running_out_of_descriptors_does_not_spin", resources::out_of_descriptors, 1),
    ("a_full_pool_refuses_politely_or_queues", crowds::full, 1),
    ("a_burst_of_connects_is_queued", crowds::burst, 6),
    ("three_hundred_at_once_are_all_answered", crowds::three_hundred, 4),
    ("a_thousand_at_once_are_all_answered", crowds::a_thousand, 6),
    ("a_silent_client_is_let_go", stalls::silent_let_go, 1),
    ("a_dripping_head_is_let_go", stalls::dripping_let_go, 1),
    ("a_silent_client_stalls_nobody", stalls::silent, 1),
    ("half_a_head_stalls_nobody", stalls::half_a_head, 1),
    ("a_pool_full_of_silent_clients_stalls_nobody", stalls::pool_full, 1),
    ("a_slow_reader_costs_only_itself", stalls::slow_reader, 1),
    ("one_greedy_client_does_not_starve_others", stalls::greedy, 8),
    ("idle_connections_are_free", crowds::idle, 16),
    ("idle_connections_slow_nobody", crowds::idle_slow, 8),
    ("every_core_serves", cores::every_core, 4),
    ("few_system_calls_per_answer", calls::few_calls, 4),
];

/// The rows that can be probed.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROBES.iter().map(|it| it.0)
}

/// How much of a machine the probe of `row` needs: 1 where it sleeps most of the time, 16 where nothing else
/// should run beside it.
pub fn weight(row: &str) -> usize {
    PROBES.iter().find(|it| it.0 == row).map_or(1, |it| it.2)
}

/// Probes `subject` for the promise called `row`.
///
/// # Errors
///
/// [`Trouble`]: there is no such row, the server cannot be run, or the machine lacks something.
pub fn run(row: &str, subject: &Subject) -> Outcome {
    let Some((_, probe, _)) = PROBES.iter().find(|it| it.0 == row) else {
        return Err(Trouble::Broken(anyhow::anyhow!("no probe is called {row:?}")));
    };
    judged(|| probe(subject))
}

/// Two seconds of patience, with a request and with a silent connection.
const IMPATIENT: [&str; 4] = ["--patience-ms", "2000", "--idle-ms", "2000"];

/// More patience than any machine needs, where a probe is not about that.
const PATIENT: [&str; 4] = ["--patience-ms", "60000", "--idle-ms", "60000"];

/// Enough workers for a pool to hold the few clients of a probe at once.
const FOUR: [&str; 2] = ["--workers", "4"];

/// `GET /parity/7`, and the body of its answer.
const QUESTION: &str = "/parity/7";
const ODD: &[u8] = b"Odd\n";

impl Subject {
    /// `program`, which may use what the model called `name` may; what a loop may, if there is none.
    pub fn new(program: Program, name: &str) -> Subject {
        let (workers_of_batch, calls_per_answer) = models::calls(name);
        Subject { program, workers_of_batch, calls_per_answer }
    }

    /// The server with the patience that it has by itself.
    fn start(&self) -> anyhow::Result<Server> {
        Server::start_program(&self.program)
    }

    fn start_with(&self, options: &[&str]) -> anyhow::Result<Server> {
        Server::start_program(&self.program.with(options))
    }

    fn start_impatient(&self) -> anyhow::Result<Server> {
        self.start_with(&IMPATIENT)
    }

    fn start_injected(&self, injection: Injection) -> anyhow::Result<Server> {
        Server::launch(&self.program, "127.0.0.1:0", Some(injection), None)
    }
}

/// How a missing answer is wrong.
fn symptom(no_answer: &NoAnswer) -> Symptom {
    match (&no_answer.wrong, no_answer.heard.end) {
        (Some(_), _) => Symptom::WrongAnswer,
        (None, End::Reset) => Symptom::Reset,
        (None, _) => Symptom::Unanswered,
    }
}

/// A finding unless `answer` is 200 with `body`. `story` says who asked what, in a clause.
fn expect(
    server: &Server,
    answer: Result<Answer, NoAnswer>,
    body: &[u8],
    story: &str,
) -> Result<Option<Observation>, Trouble> {
    match answer {
        Ok(answer) if answer.is(body) => Ok(None),
        Ok(answer) => fails(Symptom::WrongAnswer, format!("{story} and heard {answer}.")).map(Some),
        Err(no_answer) => {
            if no_answer.heard.end != End::Open {
                server.must_run()?;
            }
            let asleep = meanwhile(server, no_answer.heard.end);
            let seen = format!("{story} and heard {no_answer}.{asleep}");
            fails(symptom(&no_answer), seen).map(Some)
        }
    }
}

/// Where the server sleeps while somebody waits, to follow what was heard. Nothing when the stream has ended.
fn meanwhile(server: &Server, end: End) -> String {
    match end {
        End::Open => format!(" Meanwhile {}.", server.look().sentence(&[])),
        _ => String::new(),
    }
}

/// A plain request, after whatever was done to the server. `None` when it is answered, and the connection
/// closed; otherwise the finding.
fn still_serves(server: &Server, after: &str) -> Result<Option<Observation>, Trouble> {
    let mut caller = match server.connect_within("a plain client", ANSWER) {
        Ok(client) => Caller::new(client),
        Err(error) => {
            server.must_run()?;
            let seen = format!("After {after} a plain client could not connect: {error}.");
            return fails(Symptom::Unanswered, seen).map(Some);
        }
    };
    let story = format!("After {after} a plain client asked for {QUESTION}");
    let answer = caller.ask(&get_and_close(QUESTION), ANSWER);
    if let Some(finding) = expect(server, answer, ODD, &story)? {
        return Ok(Some(finding));
    }
    let rest = caller.rest(ANSWER);
    if !rest.is(b"") {
        let symptom = if rest.end == End::Reset { Symptom::Reset } else { Symptom::WrongAnswer };
        let seen = format!("{story} and \"close\", and heard after the answer {rest}.");
        return fails(symptom, seen).map(Some);
    }
    Ok(None)
}

/// The answer to `request`, as [`answer_promptly`] has it.
fn ask_promptly(server: &Server, caller: &mut Caller, request: &[u8]) -> Result<Answer, NoAnswer> {
    let _ = caller.say(request);
    answer_promptly(server, caller)
}

/// The next answer, for which it waits for [`PROMPT`], and longer while the server has something to do: one
/// that waits for a core is slow. One that sleeps while somebody waits stalls.
fn answer_promptly(server: &Server, caller: &mut Caller) -> Result<Answer, NoAnswer> {
    let start = Instant::now();
    let mut answer = caller.answer(PROMPT / 2);
    let mut was_asleep = false;
    while let Err(no) = &answer
        && no.heard.end == End::Open
        && no.wrong.is_none()
        && start.elapsed() < if was_asleep { PROMPT } else { ANSWER }
    {
        was_asleep |= server.is_asleep();
        // It may have answered, and then gone to sleep.
        answer = caller.answer(PROMPT.saturating_sub(start.elapsed()));
    }
    answer
}

/// Waits until the server has accepted `client` and read what it said, at most for a moment. Whether that
/// was seen.
fn is_taken_in(server: &Server, client: &Client) -> bool {
    let (pid, port) = (server.pid(), server.address().port());
    let look = || microscope::has_taken_in(pid, port, client.address());
    if look().is_none() {
        thread::sleep(UNSEEN);
        return false;
    }
    poll(MOMENT, || look() == Some(true))
}

/// Waits until the server has done what it had to do, and sleeps. One that never sleeps is not waited for
/// without end.
fn settle(server: &Server) {
    poll(PROMPT, || server.is_asleep());
}

/// Whether it is a refusal that says when to come again.
fn is_polite(answer: &Answer) -> bool {
    answer.status == 503 && answer.closes() && answer.field("Retry-After").is_some()
}

/// How long is waited instead where it cannot be seen whether the server has read what was sent.
const UNSEEN: Duration = Duration::from_millis(40);

/// A short time, in which a server on a busy machine has done what it had to do.
const MOMENT: Duration = Duration::from_millis(300);
