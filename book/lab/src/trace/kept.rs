//! A trace as the journal keeps it. One that lacks nothing: who was not answered is asked again.

use super::Seen;
use contract::{
    trace::{Call, Trace},
    verdicts::Column,
};
use serde::{Deserialize, Serialize};

/// What was seen of a server, without its column.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    idle: Half,
    tried: usize,
    batch: Half,
}

#[derive(Debug, Serialize, Deserialize)]
struct Half {
    asked: usize,
    answers: usize,
    threads: usize,
    calls: Vec<Line>,
}

/// The fields of a [`Call`] in their order. There are many: without names they are short.
type Line = (usize, i64, Option<i32>, u64, Option<u64>, Option<i64>);

impl From<&Seen> for Kept {
    fn from(seen: &Seen) -> Kept {
        Kept { idle: Half::of(&seen.idle), tried: seen.tried, batch: Half::of(&seen.batch) }
    }
}

impl Kept {
    /// What was seen of `column`.
    pub fn of(self, column: Column) -> Seen {
        Seen { column, idle: self.idle.trace(), tried: self.tried, batch: self.batch.trace() }
    }
}

impl Half {
    fn of(trace: &Trace) -> Half {
        let line = |it: &Call| {
            (it.thread, it.number, it.descriptor, it.start_us, it.duration_us, it.returned)
        };
        Half {
            asked: trace.asked,
            answers: trace.answers,
            threads: trace.threads,
            calls: trace.calls.iter().map(line).collect(),
        }
    }

    fn trace(self) -> Trace {
        let call = |(thread, number, descriptor, start_us, duration_us, returned): Line| Call {
            thread,
            number,
            descriptor,
            start_us,
            duration_us,
            returned,
        };
        Trace {
            asked: self.asked,
            answers: self.answers,
            threads: self.threads,
            calls: self.calls.into_iter().map(call).collect(),
            ..Trace::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{record, table};
    use contract::verdicts::CHAPTERS;
    use nix::libc;

    #[test]
    fn what_is_kept_makes_the_same_rows_and_the_same_table() {
        let call = |thread, number, returned| Call {
            thread,
            number,
            descriptor: (thread == 1).then_some(4),
            start_us: 7,
            duration_us: None,
            returned,
        };
        let calls = vec![call(1, libc::SYS_sendto, Some(4)), call(2, libc::SYS_recvfrom, None)];
        let idle = Trace { asked: 2, answers: 2, threads: 3, calls, ..Trace::default() };
        let batch = Trace { asked: 1, ..idle.clone() };
        let seen = [Seen { column: CHAPTERS[3], idle, tried: 5, batch }];
        let text = serde_json::to_string(&Kept::from(&seen[0])).unwrap();
        let again = [serde_json::from_str::<Kept>(&text).unwrap().of(CHAPTERS[3])];
        let rows = |seen: &[Seen]| record::counts(seen, ["one", "many"]);
        assert_eq!(rows(&again), rows(&seen));
        assert_eq!(table::of(&again), table::of(&seen));
        assert_eq!(again[0].idle.calls, seen[0].idle.calls);
        assert_eq!(again[0].tried, 5);
    }
}
