//! Results as files, for other programs.

use crate::{
    latency::new_histogram,
    record::{NEVER, Outcome, Record},
    report::Report,
    schedule::steps,
};
use anyhow::{Context, Result};
use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, Tag},
};
use serde::Serialize;
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    time::{Duration, SystemTime},
};

/// Writes the report as JSON.
///
/// # Errors
/// If the file cannot be written.
pub fn json(report: &Report, path: &Path) -> Result<()> {
    let mut file = create(path)?;
    serde_json::to_writer_pretty(&mut file, report).with_context(|| at(path))?;
    writeln!(file).and_then(|()| file.flush()).with_context(|| at(path))
}

/// Writes a line of JSON for each request. Moments are seconds of the monotonic clock, and null if they never came.
///
/// # Errors
/// If the file cannot be written.
pub fn log(report: &Report, path: &Path) -> Result<()> {
    let mut file = create(path)?;
    let steps = steps(&report.plan);
    for record in &report.records {
        let step = &steps[usize::from(record.step)];
        let moment =
            |ns: u64| (ns != NEVER).then_some((report.origin_ns + ns.min(1 << 62)) as f64 / 1e9);
        let line = Line {
            id: record.id,
            t_scheduled: moment(record.scheduled_ns),
            phase: step.phase,
            target_qps: step.target_qps,
            t_start: moment(record.started_ns),
            t_connected: moment(record.connected_ns),
            t_first_byte: moment(record.first_byte_ns),
            t_close: moment(record.closed_ns),
            bytes: record.bytes,
            status: record.outcome,
            error: error_of(record),
        };
        serde_json::to_writer(&mut file, &line).with_context(|| at(path))?;
        writeln!(file).with_context(|| at(path))?;
    }
    file.flush().with_context(|| at(path))
}

#[derive(Serialize)]
struct Line {
    id: u32,
    t_scheduled: Option<f64>,
    phase: &'static str,
    target_qps: f64,
    t_start: Option<f64>,
    t_connected: Option<f64>,
    t_first_byte: Option<f64>,
    t_close: Option<f64>,
    bytes: u32,
    status: Outcome,
    error: Option<String>,
}

fn error_of(record: &Record) -> Option<String> {
    if record.outcome == Outcome::Correct {
        return None;
    }
    let number = match nix::errno::Errno::from_raw(record.errno) {
        nix::errno::Errno::UnknownErrno => String::new(),
        known => format!(" ({known:?})"),
    };
    Some(format!("{}, {}{number}", record.outcome.words(), record.phase.words()))
}

/// Writes an HdrHistogram interval log, version 2. Lines without a tag are the whole latency of correct answers;
/// those of the tags `queue`, `connect` and `first_byte` are of all requests that got that far. Latencies are in
/// nanoseconds from the scheduled moment, which the usual viewers show as milliseconds, and an interval
/// holds the requests that were scheduled in it.
///
/// # Errors
/// If the file cannot be written.
pub fn hdr(report: &Report, path: &Path) -> Result<()> {
    let mut file = create(path)?;
    let mut serializer = V2DeflateSerializer::new();
    let interval_ns = interval_ns(report);
    let now = SystemTime::now();
    let since_start = crate::clock::now_ns().saturating_sub(report.origin_ns);
    // Readers that know of other versions look for the first line, and skip the legend.
    writeln!(file, "#[Histogram log format version 1.3]").with_context(|| at(path))?;
    let mut writer = IntervalLogWriterBuilder::new()
        .add_comment("stress: latencies in ns from the scheduled moment, maxima in ms")
        .with_max_value_divisor(1e6)
        .with_start_time(now - Duration::from_nanos(since_start))
        .with_base_time(now - Duration::from_nanos(since_start))
        .begin_log_with(&mut file, &mut serializer)
        .with_context(|| at(path))?;
    let mut begin = 0;
    while begin < report.records.len() {
        let number = report.records[begin].scheduled_ns / interval_ns;
        let rest = &report.records[begin..];
        let count = rest.partition_point(|record| record.scheduled_ns / interval_ns == number);
        for (tag, moment) in METRICS {
            let mut histogram = new_histogram();
            for record in &rest[..count] {
                if let Some(at_ns) = moment(record) {
                    histogram.saturating_record(at_ns.saturating_sub(record.scheduled_ns));
                }
            }
            let tag = tag.and_then(Tag::new);
            let start = Duration::from_nanos(number * interval_ns);
            let length = Duration::from_nanos(interval_ns);
            writer
                .write_histogram(&histogram, start, length, tag)
                .map_err(|error| anyhow::anyhow!("{}: {error:?}", at(path)))?;
        }
        begin += count;
    }
    file.flush().with_context(|| at(path))
}

type Moment = fn(&Record) -> Option<u64>;

const METRICS: [(Option<&str>, Moment); 4] = [
    (None, |record| (record.outcome == Outcome::Correct).then_some(record.closed_ns)),
    (Some("queue"), |record| reached(record.started_ns)),
    (Some("connect"), |record| reached(record.connected_ns)),
    (Some("first_byte"), |record| reached(record.first_byte_ns)),
];

fn reached(at_ns: u64) -> Option<u64> {
    (at_ns != NEVER).then_some(at_ns)
}

/// A second, or more for a run that would have more than some hundred intervals.
fn interval_ns(report: &Report) -> u64 {
    let length_ns = report.records.last().map_or(0, |record| record.scheduled_ns);
    (length_ns / 300).div_ceil(1_000_000_000).max(1) * 1_000_000_000
}

/// Draws the chart.
///
/// # Errors
/// If the file cannot be written.
pub fn chart(report: &Report, path: &Path) -> Result<()> {
    std::fs::write(path, crate::chart::chart(report)).with_context(|| at(path))
}

pub(crate) fn create(path: &Path) -> Result<BufWriter<File>> {
    let file =
        File::create(path).with_context(|| format!("open of {} for writing", path.display()))?;
    Ok(BufWriter::new(file))
}

pub(crate) fn at(path: &Path) -> String {
    format!("write to {}", path.display())
}
