//! The chart of the race (SVG). To be drawn.

use crate::{experiment::Scale, records::Record};
use contract::verdicts::Column;

/// The chart, if there is anything to draw.
pub fn chart(_servers: &[Column], _records: &[Record], _scale: &Scale) -> Option<String> {
    None
}
