//! Results of a run over HTTP as files, in the formats of the other runs.

use super::report::Report;
use crate::{
    clock::now_ns,
    files::{at, create},
};
use anyhow::{Context, Result};
use hdrhistogram::serialization::{V2DeflateSerializer, interval_log::IntervalLogWriterBuilder};
use serde::Serialize;
use std::{
    io::Write,
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

/// Writes a line of JSON for each request that was answered, in the order of the schedule, if the plan kept
/// records. The names are those of the other logs; moments are seconds of the monotonic clock.
///
/// # Errors
/// If the file cannot be written.
pub fn log(report: &Report, path: &Path) -> Result<()> {
    let mut file = create(path)?;
    let seconds = |ns: u64| ns as f64 / 1e9;
    for (index, record) in report.records.iter().enumerate() {
        let line = Line {
            id: index as u64 + 1,
            t_scheduled: seconds(record.scheduled_ns),
            phase: "steady",
            target_qps: report.plan.qps(),
            connection: record.connection,
            t_start: seconds(record.sent_ns),
            t_close: seconds(record.answered_ns),
            bytes: record.bytes,
            status: if record.status == 200 { "correct" } else { "wrong" },
            http_status: record.status,
        };
        serde_json::to_writer(&mut file, &line).with_context(|| at(path))?;
        writeln!(file).with_context(|| at(path))?;
    }
    file.flush().with_context(|| at(path))
}

#[derive(Serialize)]
struct Line {
    id: u64,
    t_scheduled: f64,
    phase: &'static str,
    target_qps: Option<f64>,
    connection: u32,
    t_start: f64,
    t_close: f64,
    bytes: u64,
    status: &'static str,
    http_status: u16,
}

/// Writes an HdrHistogram interval log, version 2, of one interval: the latencies of correct answers in
/// nanoseconds, from the scheduled moment, or in a closed loop from sending.
///
/// # Errors
/// If the file cannot be written.
pub fn hdr(report: &Report, path: &Path) -> Result<()> {
    let mut file = create(path)?;
    let mut serializer = V2DeflateSerializer::new();
    let start = SystemTime::now() - Duration::from_nanos(now_ns().saturating_sub(report.origin_ns));
    writeln!(file, "#[Histogram log format version 1.3]").with_context(|| at(path))?;
    let mut writer = IntervalLogWriterBuilder::new()
        .add_comment(&format!("stress: {}, latencies in ns, maxima in ms", report.mode))
        .with_max_value_divisor(1e6)
        .with_start_time(start)
        .with_base_time(start)
        .begin_log_with(&mut file, &mut serializer)
        .with_context(|| at(path))?;
    let length = Duration::from_secs_f64(report.elapsed_s);
    writer
        .write_histogram(&report.histogram, Duration::ZERO, length, None)
        .map_err(|error| anyhow::anyhow!("{}: {error:?}", at(path)))?;
    file.flush().with_context(|| at(path))
}
