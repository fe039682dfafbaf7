//! The promises about clients that stall: the subject of the course.

use std::path::Path;
use std::thread;
use std::time::Duration;

use super::{ANSWER, LET_GO, Observation, Outcome, PROMPT, Trouble, fails, holds, poll, seconds};
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
    // On a machine that is too busy, A may be let go before B has had its time, and then B's answer
    // says nothing: once more, with others.
    for _ in 0..3 {
        if let Some(observation) = observe_once(exe, said, did)? {
            return Ok(observation);
        }
    }
    Err(Trouble::Broken(anyhow::anyhow!(
        "three times client A was let go before client B could be observed: is this machine very busy, \
         or the server's patience much shorter than two seconds?"
    )))
}

fn observe_once(exe: &Path, said: &[u8], did: &str) -> Result<Option<Observation>, Trouble> {
    let server = Server::start(exe)?;
    let mut a = server.connect("client A")?;
    let _ = a.send(said);
    // The state is reached when the server has accepted A and read what A said. A server that will never
    // do so is observed all the same, and so is one into which this machine does not let us look.
    let port = server.address().port();
    let taken_in = poll(Duration::from_millis(300), || {
        microscope::has_taken_in(server.pid(), port, a.address()) == Some(true)
    });
    let unread = if taken_in { "" } else { " (it was not seen that the server took it in)" };
    let mut b = server.connect("client B")?;
    let heard = b.ask(b"7\n", PROMPT);
    if heard.end == End::Open && heard.bytes.is_empty() {
        return who_had_to_go(&server, a, b, &format!("Client A {did}{unread}.")).map(Some);
    }
    if !heard.is(b"Odd\n") {
        let seen = format!("Client A {did}; client B heard {heard}.");
        return fails(Symptom::WrongAnswer, seen).map(Some);
    }
    let Some(held) = is_held_or_answered(&mut a) else { return Ok(None) };
    // One more holder than there are threads is what it takes to stall a pool.
    let mut holders = Vec::new();
    for _ in 0..HOLDERS {
        thread::sleep(Duration::from_micros(200)); // A short queue is another row's subject.
        let mut holder = server.connect("a holder")?;
        let _ = holder.send(said);
        holders.push(holder);
    }
    let heard = server.connect("client B")?.ask(b"7\n", PROMPT);
    if heard.end == End::Open && heard.bytes.is_empty() {
        let view = microscope::look(server.pid(), port).sentence(&[]);
        drop(holders);
        let seen = format!("One client that {did} stalled nobody, {HOLDERS} did: {view}.");
        return fails(Symptom::StalledForEver, seen).map(Some);
    }
    if !heard.is(b"Odd\n") {
        let seen = format!("{HOLDERS} clients {did}; client B heard {heard}.");
        return fails(Symptom::WrongAnswer, seen).map(Some);
    }
    if !holders.iter_mut().all(|it| is_held_or_answered(it).is_some()) {
        return Ok(None);
    }
    holds(format!("Client A {did}; client B was served while {held}.")).map(Some)
}

/// Whether a client that stalls has neither been let go nor reset: what it was worth to B.
fn is_held_or_answered(client: &mut Client) -> Option<&'static str> {
    if client.is_held() {
        return Some("A was still held");
    }
    let heard = client.hear(Duration::ZERO);
    (!heard.bytes.is_empty()).then_some("A had been answered, with half a line")
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
    // Its end may be on the way.
    if a.hear(every).end != End::Open {
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
