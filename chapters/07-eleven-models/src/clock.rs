//! The time, as the core wants it told.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Counts the milliseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// One that begins now.
    pub fn new() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The milliseconds since then. They never go back.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// How long it is until `deadline_ms`: nothing when that has come.
    pub fn until(&self, deadline_ms: u64) -> Duration {
        Duration::from_millis(deadline_ms).saturating_sub(self.start.elapsed())
    }
}

/// The seconds since 1970, which the line `Date:` tells. They may go back, as the machine's clock may.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}
