//! Latencies, summed up from histograms of nanoseconds.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Below this, two latencies are one: a microsecond.
const LOWEST_NS: u64 = 1_000;
/// 24 hours and a little, the longest timeout that a plan may have.
const HIGHEST_NS: u64 = 90_000_000_000_000;

/// The latencies of a step, each a [`Summary`] in milliseconds. All but [`Latency::from_start`] count from the
/// moment for which the request was scheduled.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Scheduled to start, of every request that was sent: how late the generator (or its limit of
    /// connections) made them.
    pub queue: Summary,
    /// Scheduled to connected, of all that got that far.
    pub connect: Summary,
    /// Scheduled to the first byte of the answer, of all that got that far.
    pub first_byte: Summary,
    /// Scheduled to the end, of all correct answers.
    pub total: Summary,
    /// Scheduled to the end, whatever the end was, of every request that was sent.
    pub any_end: Summary,
    /// Start to the end, of all correct answers: what a generator that waits for its turn before it looks
    /// at the clock would have called the latency.
    pub from_start: Summary,
}

/// A distribution of latencies in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How many were recorded: never more than happened.
    pub count: u64,
    /// The least.
    pub min_ms: f64,
    /// The mean.
    pub mean_ms: f64,
    /// Half took at most this.
    pub p50_ms: f64,
    /// 90 of 100 took at most this.
    pub p90_ms: f64,
    /// 99 of 100 took at most this.
    pub p99_ms: f64,
    /// 999 of 1,000 took at most this.
    #[serde(rename = "p99.9_ms")]
    pub p999_ms: f64,
    /// The most.
    pub max_ms: f64,
}

impl Summary {
    /// Sums up latencies in nanoseconds. Three digits hold, and min and max are exact.
    pub fn of(latencies_ns: impl IntoIterator<Item = u64>) -> Summary {
        let mut histogram = new_histogram();
        let (mut least, mut most, mut sum) = (u64::MAX, 0, 0.0);
        for latency in latencies_ns {
            histogram.saturating_record(latency);
            least = least.min(latency);
            most = most.max(latency);
            sum += latency as f64;
        }
        if histogram.is_empty() {
            return Summary::default();
        }
        let at = |quantile| {
            let value = histogram.value_at_quantile(quantile).clamp(least, most);
            value as f64 / 1e6
        };
        Summary {
            count: histogram.len(),
            min_ms: least as f64 / 1e6,
            mean_ms: sum / histogram.len() as f64 / 1e6,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: most as f64 / 1e6,
        }
    }

    /// Sums up a histogram of nanoseconds. Three digits hold, also of min and max.
    pub fn of_histogram(histogram: &Histogram<u64>) -> Summary {
        if histogram.is_empty() {
            return Summary::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Summary {
            count: histogram.len(),
            min_ms: histogram.min() as f64 / 1e6,
            mean_ms: histogram.mean() / 1e6,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: histogram.max() as f64 / 1e6,
        }
    }
}

/// An empty histogram of nanoseconds for answers over connections that stay open, which take microseconds.
pub(crate) fn http_histogram() -> Histogram<u64> {
    let made = Histogram::new_with_bounds(100, HIGHEST_NS, 3);
    made.expect("the bounds are constants, and in order")
}

/// An empty histogram of nanoseconds.
pub(crate) fn new_histogram() -> Histogram<u32> {
    let made = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 3);
    made.expect("the bounds are constants, and in order")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_right_to_three_digits() {
        let summary = Summary::of((1..=1000).map(|ms| ms * 1_000_000));
        assert_eq!(summary.count, 1000);
        assert_eq!((summary.min_ms, summary.max_ms), (1.0, 1000.0));
        for (seen, truth) in [
            (summary.mean_ms, 500.5),
            (summary.p50_ms, 500.0),
            (summary.p90_ms, 900.0),
            (summary.p99_ms, 990.0),
            (summary.p999_ms, 999.0),
        ] {
            assert!((seen / truth - 1.0).abs() < 0.002, "{seen} for {truth}");
        }
        assert_eq!(Summary::of([]), Summary::default());
    }
}
