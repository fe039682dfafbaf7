//! The promise about system calls, of connections that are there already.

use super::super::holds;
use super::{ODD, Outcome, QUESTION, Subject, Trouble, ask_promptly, expect, fails, still_serves};
use crate::http::{Caller, get};
use crate::trace::{self, Trace};
use crate::verdicts::Symptom;

/// How many ask at once.
const BATCH: usize = 64;

pub(super) fn few_calls(subject: &Subject) -> Outcome {
    // Every loop pays for its own waiting, which is not what is counted here. Of a pool the batch is as many
    // as it has workers.
    let server = subject.start_with(&["--workers", subject.workers_of_batch])?;
    if let Some(finding) = still_serves(&server, "its start")? {
        return Ok(finding);
    }
    let mut callers = Vec::new();
    for _ in 0..BATCH {
        let mut caller = Caller::connect(&server, "one of a batch")?;
        match ask_promptly(&server, &mut caller, &get(QUESTION)) {
            Ok(answer) if answer.is(ODD) => callers.push(caller),
            // It serves so many at once, and no more: they are the batch.
            Err(no) if no.wrong.is_none() && !callers.is_empty() => {
                caller.client.reset()?;
                break;
            }
            other => {
                if let Some(finding) = expect(&server, other, ODD, "A client asked")? {
                    return Ok(finding);
                }
            }
        }
    }
    let (count, request) = (callers.len(), get(QUESTION));
    let mut clients: Vec<_> = callers.into_iter().map(|it| it.client).collect();
    let trace = match trace::exchange(&server, &mut clients, &request, is_answer) {
        Ok(trace) => trace,
        Err(error) if error.is::<trace::Refused>() => {
            return Err(Trouble::Needs(format!("{error:#}")));
        }
        Err(error) => return Err(error.into()),
    };
    if trace.answers < count || trace.late > 0 {
        let heard = trace.unanswered.as_ref().map_or("nothing yet".into(), ToString::to_string);
        let seen = format!("Of {count} who asked at once, one heard {heard}.");
        return fails(Symptom::Unanswered, seen);
    }
    let seen = story(&trace);
    match trace.per_answer() <= subject.calls_per_answer {
        true => holds(seen),
        false => fails(Symptom::ManyCalls, seen),
    }
}

fn is_answer(bytes: &[u8]) -> bool {
    matches!(crate::http::parse(bytes, false), Ok(Some((answer, _))) if answer.is(ODD))
}

fn story(trace: &Trace) -> String {
    let counts = trace.counts();
    let most: Vec<String> =
        counts.iter().take(6).map(|(name, count)| format!("{name} {count}")).collect();
    format!(
        "{} connections asked at once; their answers took {} system calls, {:.2} each: {}.",
        trace.asked,
        trace.calls.len(),
        trace.per_answer(),
        most.join(", ")
    )
}
