//! The promise about small answers that follow each other: Nagle's algorithm delays none of them.
//!
//! Nagle's algorithm (RFC 896; RFC 9293, section 3.7.4) holds a small segment back while an earlier one is not
//! acknowledged, and a client that has nothing to say delays its acknowledgement, on Linux by 40 ms or more. A
//! client that asks and waits never sees it: its next question acknowledges the answer. One that asks twice at
//! once does.

use super::super::{ANSWER, holds};
use super::{Observation, Outcome, Subject, Trouble, expect, fails};
use crate::http::{Caller, get};
use crate::server::Server;
use crate::verdicts::Symptom;

/// An answer to this is ready a little later than the one before it, and much sooner than a client that
/// delays its acknowledgement sends it.
const SOON: &str = "/slow/5";
const BODY: &[u8] = b"At last.\n";

/// How often it is asked twice. Once is enough to see that nothing is held back; where something is, the client's
/// acknowledgement leaves first each time.
const ROUNDS: usize = 20;

/// How often both answers may come together, which says nothing of either.
const TOGETHER_MAX: usize = 40;

pub(super) fn none_waits(subject: &Subject) -> Outcome {
    let server = subject.start()?;
    let mut caller = Caller::connect(&server, "a client")?;
    let (mut held, mut together) = (0, 0);
    while held < ROUNDS && together < TOGETHER_MAX {
        match ask_twice(&server, &mut caller)? {
            Ok(Second::Together) => together += 1,
            Ok(Second::AfterAcknowledgement) => held += 1,
            Ok(Second::Before) => {
                return holds(format!(
                    "Round {} of a client that asked twice at once for {SOON}: the second answer came \
                     before the client had acknowledged the first.",
                    held + together + 1
                ));
            }
            Err(finding) => return Ok(finding),
        }
    }
    let seen = format!(
        "A client asked twice at once for {SOON}, {} times over. {held} times the second answer came only when \
         the client had acknowledged the first, {together} times both came together.",
        held + together
    );
    fails(Symptom::HeldBack, seen)
}

/// How the second of two answers came.
enum Second {
    /// With the first.
    Together,
    /// Before the client had acknowledged the first.
    Before,
    /// After that.
    AfterAcknowledgement,
}

fn ask_twice(server: &Server, caller: &mut Caller) -> Result<Result<Second, Observation>, Trouble> {
    let told = |error: std::io::Error| Trouble::Broken(error.into());
    caller.client.acknowledge_late().map_err(told)?;
    // The questions are one segment. Counted before they leave: what has left later is an acknowledgement.
    let asked = caller.client.segments_sent().map_err(told)? + 1;
    let _ = caller.say(&get(SOON).repeat(2)); // If it has ended the stream, that is what is heard.
    let story = format!("A client asked twice at once for {SOON}");
    let first = caller.answer(ANSWER);
    if let Some(finding) = expect(server, first, BODY, &story)? {
        return Ok(Err(finding));
    }
    let mut second = Second::Together;
    if !caller.has_more() {
        caller.client.wait_for_more(ANSWER).map_err(told)?;
        let acknowledged = caller.client.segments_sent().map_err(told)? > asked;
        second = if acknowledged { Second::AfterAcknowledgement } else { Second::Before };
    }
    let answer = caller.answer(ANSWER);
    Ok(expect(server, answer, BODY, &story)?.map_or(Ok(second), Err))
}
