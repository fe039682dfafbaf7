//! The table of chapter 07: eleven models of one HTTP server, and what each way of waiting is worth.
//!
//! The core is the same to the byte, so that a cell is about the waiting alone. Where a model fails by
//! its nature, the cell says how.

use super::Symptom::{
    CostGrew, MemoryGrew, OneCore, StalledForEver, StalledForItsPatience, TurnedAway,
};
use super::Verdict::{self, Fails, Holds};
use super::{Column, Row, Table};

/// The eleven models.
pub const HTTP: Table = Table { columns: &MODELS, rows: &ROWS };

/// The models, as `ch07 --model` names them.
pub const MODELS: [Column; 11] = [
    Column { name: "iterative", about: "one client at a time" },
    Column { name: "fork", about: "a process for each client" },
    Column { name: "prefork", about: "a pool of processes" },
    Column { name: "thread-per-connection", about: "a thread for each client" },
    Column { name: "thread-pool", about: "a pool of threads" },
    Column { name: "poll", about: "one thread, and a list handed to poll" },
    Column { name: "epoll-level", about: "one thread, and epoll says who is ready" },
    Column { name: "epoll-edge", about: "one thread, and epoll says who became ready" },
    Column { name: "reactor", about: "one loop that calls back" },
    Column { name: "multireactor", about: "a loop for each core" },
    Column { name: "io-uring", about: "a ring for each core" },
];

/// How many workers the model called `name` has where its system calls are counted, and how many calls it
/// may make for each answer where 64 connections ask at once: a ring asks for all of it in one call; a loop
/// makes a receive and a send for each, and one wait for all; who serves one client at a time makes these
/// two, and its own arrangements. A server that is no model may what a loop may.
pub(crate) fn calls(name: &str) -> (&'static str, f64) {
    match name {
        "io-uring" => ("1", 0.25),
        "iterative" | "fork" | "thread-per-connection" => ("1", 3.25),
        "prefork" | "thread-pool" => ("64", 3.25),
        _ => ("1", 2.25),
    }
}

const H: Verdict = Holds;
/// One client at a time, or a pool that is all taken: who comes waits until a patience has run out.
const P: Verdict = Fails(StalledForItsPatience);
/// The same where no patience ends it: as long as the one goes on, the others wait.
const E: Verdict = Fails(StalledForEver);
/// A pool that is all taken, and says so when somebody has waited for as long as a request may take.
const X: Verdict = Fails(TurnedAway);
/// All that are there are gone through for each answer.
const G: Verdict = Fails(CostGrew);
/// One thread does it all.
const C: Verdict = Fails(OneCore);
/// What it holds for a client is a stack or a process.
const M: Verdict = Fails(MemoryGrew);

/// The promises, those about the answers first, then those about who waits for whom.
#[rustfmt::skip]
pub const ROWS: [Row; 32] = [
    //  iterative, fork, prefork, thread-per-connection, thread-pool | poll, epoll-level, epoll-edge, reactor, multireactor, io-uring
    row("answers_get_parity_and_404", "answers what it has, and says so where it has nothing",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("any_split_is_the_same_request", "gives the same answer however the network cuts a request",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_half_closed_client_is_answered", "answers a client that has said all it will say",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("pipelined_requests_are_answered_in_order", "answers every request of a packet, and in order",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("no_answer_waits_for_an_acknowledgement", "sends an answer though the one before is not acknowledged",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_refusal_is_not_lost_to_a_reset", "refuses a request that still arrives, and is heard",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_large_answer_survives_a_slow_reader", "sends a large answer whole, however slowly it is read",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("resets_harm_nobody_else", "survives clients that reset, at whatever moment",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("an_accept_error_stops_nobody", "goes on after an accept that failed, and does not spin where all do",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("an_interrupted_wait_harms_nobody", "loses nobody when a signal interrupts its waiting",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("nothing_leaks", "gives back descriptors, threads, processes and memory",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("an_idle_server_burns_no_cpu", "sleeps while nobody asks anything",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("it_restarts_at_once", "can be started again on the same port at once",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("stop_answers_what_is_in_flight", "stops in good order: answers what was asked, and ends",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_stop_cuts_no_answer_short", "sends an answer whole that is on its way when it is told to stop",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_second_stop_ends_at_once", "ends at once when it is told to a second time",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("running_out_of_descriptors_does_not_spin", "waits for a descriptor without burning CPU time",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_full_pool_refuses_politely_or_queues", "loses nobody of those who come when it is full",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_burst_of_connects_is_queued", "lets in a burst of 1,024 clients at once",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("three_hundred_at_once_are_all_answered", "answers three hundred who ask at the same moment",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_thousand_at_once_are_all_answered", "answers a thousand who ask at the same moment",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_silent_client_is_let_go", "lets a client go that says nothing",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_dripping_head_is_let_go", "lets a client go that sends a byte now and then",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
    row("a_silent_client_stalls_nobody", "serves others while a client says nothing",
        &[P, H, H, H, H,  H, H, H, H, H, H]),
    row("half_a_head_stalls_nobody", "serves others while a client has said half a head",
        &[P, H, H, H, H,  H, H, H, H, H, H]),
    row("a_pool_full_of_silent_clients_stalls_nobody", "serves others while sixty-four clients say nothing",
        &[P, H, P, H, X,  H, H, H, H, H, H]),
    row("a_slow_reader_costs_only_itself", "keeps its memory and the others while a client does not read",
        &[P, H, H, H, H,  H, H, H, H, H, H]),
    row("one_greedy_client_does_not_starve_others", "serves others while a client asks without end",
        &[E, H, H, H, H,  H, H, H, H, H, H]),
    row("idle_connections_are_free", "holds 10,000 idle connections for next to nothing",
        &[E, M, E, M, E,  H, H, H, H, H, H]),
    row("idle_connections_slow_nobody", "does no more for an answer because others are connected",
        &[E, H, E, H, E,  G, H, H, H, H, H]),
    row("every_core_serves", "serves on every core that it may use",
        &[C, H, H, H, H,  C, C, C, C, H, H]),
    row("few_system_calls_per_answer", "answers many who ask at once with few system calls",
        &[H, H, H, H, H,  H, H, H, H, H, H]),
];

const fn row(name: &'static str, promise: &'static str, cells: &'static [Verdict]) -> Row {
    Row::of(&MODELS, name, promise, cells)
}

/// The row called `name`, if the table has it.
pub fn find(name: &str) -> Option<&'static Row> {
    HTTP.rows.iter().find(|it| it.name == name)
}
