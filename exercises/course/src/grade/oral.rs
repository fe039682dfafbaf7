//! Five questions about the student's own server, from a trace of its system calls.
//!
//! Who has written a server can say why it makes the calls that it makes. The questions are for whoever
//! grades: they stand in a file of their own beside the results, which no student sees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use contract::trace::{self, Call, Question, Trace};
use nix::errno::Errno;
use nix::sys::prctl;

use super::caller::{ANSWER, Ground};
use super::parameters::{Dice, Parameters, Stop};
use super::scenarios::Finding;
use super::student::DESCRIPTORS;

/// The hidden command that traces a server.
pub const TRACE: &str = "__trace";

/// How many calls a question quotes.
const QUOTED: usize = 14;

/// The main function of the hidden command: `"" EXE PARAMETERS SEED`, the questions as a finding.
///
/// # Errors
///
/// When the arguments are none of ours.
pub fn main(arguments: &[OsString]) -> anyhow::Result<()> {
    prctl::set_dumpable(false).context("prctl(PR_SET_DUMPABLE)")?;
    let [_, exe, parameters, seed] = arguments else { bail!("{TRACE} \"\" EXE PARAMETERS SEED") };
    let dice = Dice::of(&seed.to_string_lossy());
    let parameters = parameters.to_string_lossy().parse::<Parameters>();
    let parameters = parameters.map_err(anyhow::Error::msg)?;
    let mut ground =
        Ground { exe: PathBuf::from(exe), parameters, dice, reactors: 2, descriptors: DESCRIPTORS };
    let finding = match traced(&ground) {
        Ok((single, batch)) => Finding::Holds(questions(&mut ground.dice, &single, &batch)),
        Err(error) => Finding::Lacks(format!("{error:#}")),
    };
    crate::say::line(serde_json::to_string(&finding).context("a finding")?);
    Ok(())
}

fn traced(ground: &Ground) -> anyhow::Result<(Trace, Trace)> {
    let server = ground.start()?;
    ground.must_serve(&server, ANSWER)?;
    let question = question(ground);
    let single = trace::one_at_a_time_asking(&server, 2, &question)?;
    let batch = trace::batch_asking(&server, 32, &question)?;
    Ok((single, batch))
}

/// What the clients ask for.
const ASKED: &str = "20 22";

/// One sum in the frames of the variant, where only a conversation of one request ends with its answer.
fn question(ground: &Ground) -> Question {
    Question {
        request: ground.framed(ASKED),
        answer: ground.framed("42"),
        closes: ground.parameters.stop == Stop::Count(1),
    }
}

/// Writes the questions beside the results.
///
/// # Errors
///
/// When the file cannot be written.
pub fn ask(results: &Path, seed: &str, finding: Finding) -> anyhow::Result<()> {
    let mut text = format!(
        "# Oral questions for {seed}\n\nFor whoever grades. Each client of this trace asks for the sum of `{ASKED}` in the frame of the variant, and leaves when it has it.\n\n"
    );
    match finding {
        Finding::Holds(questions) => text += &questions,
        Finding::Broken(why) | Finding::Lacks(why) => {
            let _ = writeln!(text, "No trace could be made: {why}\n\nAsk about the code instead.");
        }
    }
    let path = results.with_extension("oral.md");
    fs::write(&path, text).with_context(|| path.display().to_string())
}

fn questions(dice: &mut Dice, single: &Trace, batch: &Trace) -> String {
    let mut text = String::new();
    for (what, trace) in [("one after the other", single), ("at once", batch)] {
        if let Some(heard) = &trace.unanswered {
            let (answers, asked) = (trace.answers, trace.asked);
            let _ = writeln!(
                text,
                "Of {asked} clients {what}, {answers} heard the sum. One of the others heard {heard}.\n"
            );
        }
    }
    text += "Two clients, one after the other:\n\n```text\n";
    for call in single.calls.iter().take(QUOTED) {
        let _ = writeln!(text, "{}", shown(call));
    }
    text += "```\n\n";
    let most = batch.counts();
    let asked = batch.asked.max(1);
    let (name, count) = most.first().cloned().unwrap_or(("no call".into(), 0));
    let mut failed: BTreeMap<String, usize> = BTreeMap::new();
    for call in single.calls.iter().chain(&batch.calls) {
        if let Some(errno) = errno(call) {
            *failed.entry(format!("`{}` with {errno:?}", call.name())).or_default() += 1;
        }
    }
    let sleeps = single.calls.iter().max_by_key(|it| it.duration_us.unwrap_or(u64::MAX));
    let sleeps = sleeps.map_or("no call".into(), shown);
    let any = match single.calls.len() {
        0 => "no call".into(),
        length => shown(&single.calls[dice.roll(length as u64) as usize]),
    };
    let mut threads: BTreeMap<usize, usize> = BTreeMap::new();
    for call in &batch.calls {
        *threads.entry(call.thread).or_default() += 1;
    }
    let threads: Vec<String> =
        threads.iter().map(|(id, calls)| format!("thread {id} made {calls}")).collect();
    let failed = match failed.iter().nth(dice.roll(failed.len().max(1) as u64) as usize) {
        Some((what, count)) => format!(
            "{count} times, {what} failed. Why is this call made although it may fail so, and what does your code do next?"
        ),
        None => "No call failed. Which of these calls could fail with EAGAIN under load, and what would your code do?".into(),
    };
    let asked_five = [
        format!(
            "This call is in the list above: `{any}`. Show the line of your code that makes it. What would a client see if it were left out?"
        ),
        format!(
            "The longest one was `{sleeps}`. What is it waiting for, and which three things can end it?"
        ),
        failed,
        format!(
            "{asked} clients at once cost {} calls, {count} of them `{name}`. Which calls would {} clients cost, and why?",
            batch.calls.len(),
            2 * asked
        ),
        format!(
            "In the batch {}. Who decided which thread serves which client, and what happens to a client whose thread is busy?",
            threads.join(", ")
        ),
    ];
    for (at, question) in asked_five.iter().enumerate() {
        let _ = writeln!(text, "{}. {question}", at + 1);
    }
    text
}

fn errno(call: &Call) -> Option<Errno> {
    let returned = i32::try_from(call.returned?).ok().filter(|it| (-4095..0).contains(it))?;
    Some(Errno::from_raw(-returned))
}

fn shown(call: &Call) -> String {
    let on = call.descriptor.map_or(String::new(), |it| format!("descriptor {it}"));
    let returned = match (errno(call), call.returned) {
        (Some(errno), _) => format!("{errno:?}"),
        (None, Some(value)) => value.to_string(),
        (None, None) => "(it had not returned)".into(),
    };
    format!("thread {} {}({on}) = {returned}", call.thread, call.name())
}
