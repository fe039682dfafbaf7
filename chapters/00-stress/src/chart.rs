//! The chart of a run, as SVG.

use crate::report::Report;

/// Success, latency, throughput and concurrency over time.
pub fn chart(_report: &Report) -> String {
    String::new()
}
