//! What stays of a trace: the counts as a tidy CSV, every call in its order as JSON, and beside them
//! where they come from.

use super::{NAME, Seen};
use crate::records::{Provenance, round};
use anyhow::{Context, Result};
use contract::trace::{Call, Trace};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What the rows are called: one client at a time, and all at once.
const NAMES: [&str; 2] = ["trace-idle", "trace-batch"];

/// The call that stands for all calls.
pub const ALL: &str = "all";

/// One row for each experiment, server and call, and one for all calls together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// `trace-idle`: one client at a time; `trace-batch`: all at once.
    pub experiment: String,
    /// The binary.
    pub server: String,
    /// Its threads.
    pub threads: usize,
    /// Clients that asked: of a batch, those who got in.
    pub asked: usize,
    /// Clients that were answered right.
    pub answers: usize,
    /// The system call, or [`ALL`].
    pub call: String,
    /// How often it was made.
    pub count: usize,
    /// The same for an answer; empty if there was none.
    pub per_answer: Option<f64>,
}

/// The calls of one server in one experiment, in the order in which they began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// As in [`Count`].
    pub experiment: String,
    /// The binary.
    pub server: String,
    /// Clients that were answered right.
    pub answers: usize,
    /// The calls.
    pub calls: Vec<Event>,
}

/// One call. Its times include the tracer: they give the order, and no latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The thread that made it, from 1.
    pub thread: usize,
    /// Its name.
    pub call: String,
    /// The descriptor that it is about.
    pub descriptor: Option<i32>,
    /// When it began.
    pub start_us: u64,
    /// How long it took; `None` if it had not returned.
    pub duration_us: Option<u64>,
    /// What it returned, or the negative errno; `None` if it had not returned.
    pub returned: Option<i64>,
}

impl Event {
    fn of(call: &Call) -> Event {
        Event {
            thread: call.thread,
            call: call.name(),
            descriptor: call.descriptor,
            start_us: call.start_us,
            duration_us: call.duration_us,
            returned: call.returned,
        }
    }
}

/// Writes `trace.csv`, `trace.json` and `trace-timeline.json` into `folder`, and says so.
///
/// # Errors
/// If the folder cannot be made or a file cannot be written.
pub fn save(folder: &Path, seen: &[Seen], provenance: &Provenance) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| format!("mkdir({})", folder.display()))?;
    let mut csv = csv::Writer::from_writer(Vec::new());
    let mut timelines = Vec::new();
    for row in counts(seen, NAMES) {
        csv.serialize(row).context("the counts as CSV")?;
    }
    for server in seen {
        for (experiment, trace) in NAMES.into_iter().zip([&server.idle, &server.batch]) {
            timelines.push(Timeline {
                experiment: experiment.into(),
                server: server.column.name.into(),
                answers: trace.answers,
                calls: trace.calls.iter().map(Event::of).collect(),
            });
        }
    }
    let mut json = serde_json::to_vec_pretty(provenance).context("the provenance as JSON")?;
    json.push(b'\n');
    let files = [
        (format!("{NAME}.csv"), csv.into_inner().context("the counts as CSV")?),
        (format!("{NAME}.json"), json),
        (format!("{NAME}-timeline.json"), lines(&timelines)?.into_bytes()),
    ];
    let mut written = Vec::new();
    for (name, content) in files {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("write({})", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

/// The counts of all servers; `names` are what the rows are called: one client at a time, and all at once.
pub fn counts(seen: &[Seen], names: [&str; 2]) -> Vec<Count> {
    let mut counts = Vec::new();
    for server in seen {
        for (experiment, trace) in names.into_iter().zip([&server.idle, &server.batch]) {
            counts.extend(rows(experiment, server.column.name, trace));
        }
    }
    counts
}

/// The rows of one trace, the most frequent call first, and last all of them.
fn rows(experiment: &str, server: &str, trace: &Trace) -> Vec<Count> {
    let all = (ALL.to_owned(), trace.calls.len());
    let row = |(call, count): (String, usize)| Count {
        experiment: experiment.into(),
        server: server.into(),
        threads: trace.threads,
        asked: trace.asked,
        answers: trace.answers,
        call,
        count,
        per_answer: (trace.answers > 0).then(|| round(count as f64 / trace.answers as f64)),
    };
    trace.counts().into_iter().chain([all]).map(row).collect()
}

/// JSON with a line for each call: short, and two of them can be compared.
fn lines(timelines: &[Timeline]) -> Result<String> {
    let mut text = String::from("[");
    for (at, timeline) in timelines.iter().enumerate() {
        let head = Timeline { calls: Vec::new(), ..timeline.clone() };
        let head = serde_json::to_string(&head).context("the timeline as JSON")?;
        let head = head.strip_suffix("]}").context("the calls come last")?;
        text += if at == 0 { "\n" } else { ",\n" };
        text += head;
        for (at, call) in timeline.calls.iter().enumerate() {
            text += if at == 0 { "\n  " } else { ",\n  " };
            text += &serde_json::to_string(call).context("the timeline as JSON")?;
        }
        text += "\n]}";
    }
    Ok(text + "\n]\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;

    fn trace() -> Trace {
        let call = |number, returned: Option<i64>| Call {
            thread: 1,
            number,
            descriptor: Some(4),
            start_us: 7,
            duration_us: returned.map(|_| 2),
            returned,
        };
        let calls = vec![
            call(libc::SYS_sendto, Some(4)),
            call(libc::SYS_recvfrom, Some(-11)),
            call(libc::SYS_recvfrom, None),
        ];
        Trace { asked: 2, answers: 2, threads: 1, calls, ..Trace::default() }
    }

    #[test]
    fn the_counts_end_with_their_sum() {
        let rows = rows("trace-idle", "ch04", &trace());
        let short: Vec<(&str, usize, Option<f64>)> =
            rows.iter().map(|it| (it.call.as_str(), it.count, it.per_answer)).collect();
        assert_eq!(
            short,
            [("recvfrom", 2, Some(1.0)), ("sendto", 1, Some(0.5)), ("all", 3, Some(1.5))]
        );
        let nobody = Trace { answers: 0, ..trace() };
        assert!(self::rows("trace-idle", "ch04", &nobody).iter().all(|it| it.per_answer.is_none()));
    }

    #[test]
    fn a_timeline_survives_its_lines() {
        let one = Timeline {
            experiment: "trace-batch".into(),
            server: "ch04".into(),
            answers: 2,
            calls: trace().calls.iter().map(Event::of).collect(),
        };
        let nothing = Timeline { calls: Vec::new(), ..one.clone() };
        let text = lines(&[one.clone(), nothing.clone()]).unwrap();
        let read: Vec<Timeline> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, [one, nothing]);
        assert!(text.contains(
            "\n  {\"thread\":1,\"call\":\"recvfrom\",\"descriptor\":4,\"start_us\":7,\
             \"duration_us\":null,\"returned\":null}"
        ));
    }
}
