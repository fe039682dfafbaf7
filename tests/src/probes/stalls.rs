//! The promises about clients that stall: the subject of the course.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{ANSWER, LET_GO, Outcome, PROMPT, fails, holds, poll, seconds};
use crate::microscope;
use crate::server::{Client, End, Server};
use crate::verdicts::Symptom;

/// How many clients stall at once in the second round: more than any small pool of threads has.
const HOLDERS: usize = 64;

pub(super) fn silent_stalls(exe: &Path) -> Outcome {
    observe(exe, b"", "connected and said nothing")
}

pub(super) fn half_a_line_stalls(exe: &Path) -> Outcome {
    observe(exe, b"12", "sent half a line (`12`) and stopped")
}

/// Client A stalls; client B asks; A lets go.
fn observe(exe: &Path, said: &[u8], did: &str) -> Outcome {
    let server = Server::start(exe)?;
    let mut a = server.connect("client A")?;
    let _ = a.send(said);
    let since = Instant::now();
    // The state is reached when the server has accepted A and read what A said; a server that will
    // never do so (it may not be asked to read) is observed all the same.
    let taken_in = poll(PROMPT, || {
        microscope::has_taken_in(server.pid(), server.address().port(), a.address())
            .unwrap_or(since.elapsed() > Duration::from_millis(100))
    });
    let unread = if taken_in { "" } else { " (the server has not taken that in)" };
    let mut b = server.connect("client B")?;
    let _ = b.send(b"7\n");
    let heard = b.hear(PROMPT);
    if heard.end == End::Open && heard.bytes.is_empty() {
        return who_had_to_go(&server, a, b, &format!("Client A {did}{unread}."));
    }
    if !heard.is(b"Odd\n") {
        return fails(Symptom::WrongAnswer, format!("Client A {did}; client B heard {heard}."));
    }
    let held = if a.is_held() { "A was still held" } else { "A had been answered or let go" };
    // One more holder than there are threads is what it takes to stall a pool.
    let mut holders = vec![a];
    for _ in 1..HOLDERS {
        let mut holder = server.connect("a holder")?;
        let _ = holder.send(said);
        holders.push(holder);
    }
    let heard = server.connect("client B")?.ask(b"7\n", PROMPT);
    if heard.end == End::Open && heard.bytes.is_empty() {
        let view = microscope::look(server.pid(), server.address().port()).sentence(&[]);
        drop(holders);
        let seen = format!("One client that {did} stalled nobody, {HOLDERS} did: {view}.");
        return fails(Symptom::StalledForEver, seen);
    }
    if !heard.is(b"Odd\n") {
        return fails(Symptom::WrongAnswer, format!("{HOLDERS} {did}; client B heard {heard}."));
    }
    holds(format!("Client A {did}; client B was served while {held}."))
}

/// B was not served promptly: who had to go before it was?
fn who_had_to_go(server: &Server, mut a: Client, mut b: Client, story: &str) -> Outcome {
    let port = server.address().port();
    let names = [(a.name, a.address()), (b.name, b.address())];
    let view = microscope::look(server.pid(), port).sentence(&names);
    let story = format!(
        "{story} Client B asked 7 and had heard nothing {} later: {view}.",
        seconds(PROMPT)
    );
    let heard = b.hear(LET_GO);
    if heard.is(b"Odd\n") {
        let waited = seconds(b.age());
        // A was let go first, or B could not have been served; its end may still be on the way.
        if a.hear(PROMPT).end != End::Open {
            let seen = format!(
                "{story} B was served after {waited}, when the server's patience with A ran out; \
                 A had not let go."
            );
            return fails(Symptom::StalledForItsPatience, seen);
        }
        return fails(
            Symptom::Late,
            format!("{story} B was served after {waited}; A was still held."),
        );
    }
    if heard.end != End::Open || !heard.bytes.is_empty() {
        return fails(Symptom::WrongAnswer, format!("{story} At last B heard {heard}."));
    }
    let held = seconds(a.age());
    drop(a);
    let heard = b.hear(ANSWER);
    if heard.is(b"Odd\n") {
        let seen = format!("{story} A let go after {held}, and only then was B served.");
        return fails(Symptom::StalledForEver, seen);
    }
    fails(Symptom::Unanswered, format!("{story} A let go after {held}, and still B heard {heard}."))
}

pub(super) fn silent_let_go(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    let mut a = server.connect("client A")?;
    let heard = a.hear(LET_GO);
    let view = microscope::look(server.pid(), server.address().port());
    if heard.end == End::Open {
        let view = view.sentence(&[(a.name, a.address())]);
        let seen =
            format!("A client that said nothing was still held after {}: {view}.", seconds(LET_GO));
        return fails(Symptom::HeldForEver, seen);
    }
    if !heard.bytes.is_empty() {
        return fails(Symptom::WrongAnswer, format!("A client that said nothing heard {heard}."));
    }
    holds(format!("A client that said nothing was let go after {}.", seconds(heard.after)))
}

pub(super) fn dripping_let_go(exe: &Path) -> Outcome {
    let server = Server::start(exe)?;
    let mut a = server.connect("client A")?;
    // A byte each half second: always more, and never all of it.
    let every = Duration::from_millis(500);
    while a.age() < LET_GO {
        if a.send(b"1").is_err() {
            break;
        }
        let heard = a.hear(every);
        if heard.end != End::Open {
            return holds(format!("A client that dripped was let go after {}.", seconds(a.age())));
        }
        // A server that answers has chosen to; what it says is judged by another row.
        if !heard.bytes.is_empty() {
            return holds("A client that dripped was answered.");
        }
    }
    if !a.is_held() {
        return holds(format!("A client that dripped was let go after {}.", seconds(a.age())));
    }
    let view =
        microscope::look(server.pid(), server.address().port()).sentence(&[(a.name, a.address())]);
    let story = format!(
        "A client that sent a byte each half second was still held after {}: {view}.",
        seconds(a.age())
    );
    // Was it the bytes that renewed the patience, or is there none?
    if a.hear(LET_GO).end == End::Open {
        return fails(Symptom::HeldForEver, format!("{story} When it stopped, it was held still."));
    }
    let seen =
        format!("{story} When it stopped, it was let go: each byte had renewed the patience.");
    fails(Symptom::PatienceRenewed, seen)
}

/// Sleeps until `client` is as old as `age`.
pub(super) fn grow(client: &Client, age: Duration) {
    thread::sleep(age.saturating_sub(client.age()));
}
