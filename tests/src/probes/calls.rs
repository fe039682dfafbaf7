//! The promise about system calls: when many requests wait at once, one call does for many of them.

use std::path::Path;

use super::{Observation, Outcome, Trouble, Verdict, still_serves};
use crate::server::{End, Heard};
use crate::trace::{self, Trace};
use crate::verdicts::Symptom;

/// How many requests wait at once.
const BATCH: usize = 64;

/// How many calls an answer may take. A server that makes one call or more for each client takes at
/// least four times as many; one that asks for everything in one call takes a small part of this.
const CALLS_MAX: f64 = 0.25;

pub(super) fn few_calls(exe: &Path) -> Outcome {
    // Every reactor pays for its own waiting, which is not what is counted here.
    let server = trace::start(exe, 1)?;
    // What is allocated once is there.
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    match trace::batch(&server, BATCH) {
        Ok(trace) => Ok(judge(&trace)),
        Err(error) if error.is::<trace::Refused>() => Err(Trouble::Needs(format!("{error:#}"))),
        Err(error) => Err(error.into()),
    }
}

fn judge(trace: &Trace) -> Observation {
    if let Some(heard) = &trace.unanswered {
        let seen = format!(
            "Of {} requests that waited at once, {} were answered; one client heard {heard}.",
            trace.asked, trace.answers
        );
        return Observation { verdict: Verdict::Fails(symptom(heard)), seen };
    }
    if trace.late > 0 {
        let seen = format!(
            "Of {} requests that waited at once, {} had no answer when the server slept.",
            trace.asked, trace.late
        );
        return Observation { verdict: Verdict::Fails(Symptom::Unanswered), seen };
    }
    let counts = trace.counts();
    let most: Vec<String> =
        counts.iter().take(8).map(|(name, count)| format!("{name} {count}")).collect();
    let others = match trace.asked {
        BATCH => "",
        _ => " (nobody else got in)",
    };
    let seen = format!(
        "{} requests waited at once{others}; their answers took {} system calls, {:.2} each: {}{}.",
        trace.asked,
        trace.calls.len(),
        trace.per_answer(),
        most.join(", "),
        if counts.len() > most.len() { ", and others" } else { "" }
    );
    let verdict = match trace.per_answer() <= CALLS_MAX {
        true => Verdict::Holds,
        false => Verdict::Fails(Symptom::ManyCalls),
    };
    Observation { verdict, seen }
}

fn symptom(heard: &Heard) -> Symptom {
    match (heard.bytes.as_slice(), heard.end) {
        (b"Odd\n" | b"", End::Reset) => Symptom::Reset,
        (b"Odd\n" | b"", _) => Symptom::Unanswered,
        _ => Symptom::WrongAnswer,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::Call;

    fn trace(answers: usize, calls: usize) -> Trace {
        let call = Call {
            thread: 1,
            number: libc::SYS_io_uring_enter,
            descriptor: Some(3),
            start_us: 0,
            duration_us: Some(1),
            returned: Some(0),
        };
        Trace { asked: 64, answers, calls: vec![call; calls], ..Trace::default() }
    }

    #[test]
    fn a_quarter_of_a_call_is_few_and_one_more_is_not() {
        assert_eq!(judge(&trace(64, 16)).verdict, Verdict::Holds);
        assert_eq!(judge(&trace(64, 17)).verdict, Verdict::Fails(Symptom::ManyCalls));
        assert_eq!(judge(&trace(2, 12)).verdict, Verdict::Fails(Symptom::ManyCalls));
    }

    #[test]
    fn who_answers_nobody_has_not_saved_calls() {
        for (bytes, end, symptom) in [
            (b"".as_slice(), End::Open, Symptom::Unanswered),
            (b"Odd\n", End::Open, Symptom::Unanswered),
            (b"", End::Reset, Symptom::Reset),
            (b"Even\n", End::Closed, Symptom::WrongAnswer),
        ] {
            let heard = Heard { bytes: bytes.into(), end, after: Duration::ZERO };
            let trace = Trace { unanswered: Some(heard), ..trace(63, 1) };
            assert_eq!(judge(&trace).verdict, Verdict::Fails(symptom));
        }
    }
}
