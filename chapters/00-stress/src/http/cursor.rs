//! When each connection's next request is due.

use super::plan::{Pace, Plan};
use crate::{clock::to_ns_f64, plan::Arrivals, schedule::Dice};

/// A request that is noticed later than this is left out, as in the engine for one line a connection.
pub(crate) const LATE_NS_MAX: u64 = 250_000_000;

/// Once one was later than this, the next come at twice the planned pace at most, until they are not.
const LATE_NS: u64 = 5_000_000;

/// A request of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub at_ns: u64,
    /// Index among the connections of this thread.
    pub line: usize,
}

/// The schedule of one thread's connections: what is due next, and on which connection.
///
/// Uniform: connection `i` of `N` asks at `i/rate`, and then each `N/rate`. Poisson: the moments of a
/// random walk, each given to a connection by dice, so that each connection has a walk of its own that
/// knows nothing of the others.
pub(crate) struct Cursor {
    next: Due,
    count: u64,
    end_ns: u64,
    origin_ns: u64,
    thread: usize,
    threads: usize,
    connections: usize,
    lines: usize,
    gap_ns: f64,
    dice: Option<(Dice, f64)>,
    /// Where twice the pace began: the moment, and what was due then.
    hurry: Option<(u64, u64)>,
}

impl Cursor {
    /// The schedule of thread `thread`, from `origin_ns` to `end_ns`. `None` for a closed loop.
    pub fn new(plan: &Plan, thread: usize, origin_ns: u64, end_ns: u64) -> Option<Cursor> {
        let Pace::Schedule { qps, arrivals, seed } = plan.pace else { return None };
        let dice = match arrivals {
            Arrivals::Uniform => None,
            Arrivals::Poisson => Some((Dice::new(seed.wrapping_add(thread as u64)), 0.0)),
        };
        let mut cursor = Cursor {
            next: Due { at_ns: origin_ns, line: 0 },
            count: 0,
            end_ns,
            origin_ns,
            thread,
            threads: plan.threads,
            connections: plan.connections,
            lines: share(plan, thread),
            gap_ns: 1e9 / qps,
            dice,
            hurry: None,
        };
        cursor.place();
        Some(cursor)
    }

    /// What is due next; `None` when the schedule has ended.
    pub fn peek(&self) -> Option<Due> {
        (self.next.at_ns < self.end_ns).then_some(self.next)
    }

    /// The moment at which the engine has to look again.
    pub fn wake_ns(&self) -> Option<u64> {
        let due = self.peek()?;
        Some(match self.hurry {
            // Half of what is due later than where the hurry began comes after as much time.
            Some((since_ns, from_ns)) => due.at_ns.max(since_ns + (due.at_ns - from_ns) / 2),
            None => due.at_ns,
        })
    }

    /// The next request, if it may leave now.
    pub fn take(&mut self, now_ns: u64) -> Option<Due> {
        let due = self.peek().filter(|due| due.at_ns <= now_ns)?;
        let late_ns = now_ns - due.at_ns;
        // One that is too late is left out, and a hurry is over when it has all but caught up.
        let hurries = (LATE_NS / 5..=LATE_NS_MAX).contains(&late_ns);
        self.hurry = match self.hurry.filter(|_| hurries) {
            None if late_ns > LATE_NS && hurries => Some((now_ns, due.at_ns)),
            other => other,
        };
        if let Some((since_ns, from_ns)) = self.hurry
            && due.at_ns - from_ns > 2 * (now_ns - since_ns)
        {
            return None;
        }
        self.count += 1;
        self.place();
        Some(due)
    }

    /// The next request that was due before `now_ns`, to be left out: the run has ended without it.
    pub fn leave_out(&mut self, now_ns: u64) -> Option<Due> {
        let due = self.peek().filter(|due| due.at_ns < now_ns)?;
        self.count += 1;
        self.place();
        Some(due)
    }

    fn place(&mut self) {
        let lines = self.lines as u64;
        let offset = match &mut self.dice {
            None => {
                let (round, line) = (self.count / lines, (self.count % lines) as usize);
                self.next.line = line;
                let index = (self.thread + line * self.threads) as f64;
                (index + round as f64 * self.connections as f64) * self.gap_ns
            }
            Some((dice, at)) => {
                *at += dice.exponential() * self.gap_ns * self.connections as f64 / lines as f64;
                self.next.line = (dice.next() % lines) as usize;
                *at
            }
        };
        self.next.at_ns = self.origin_ns + to_ns_f64(offset);
    }
}

/// How many of the plan's connections are those of `thread`.
pub(crate) fn share(plan: &Plan, thread: usize) -> usize {
    plan.connections / plan.threads + usize::from(thread < plan.connections % plan.threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn plan(connections: usize, threads: usize, qps: f64) -> Plan {
        let target = "127.0.0.1:1".parse().unwrap();
        Plan::steady(target, "/", connections, qps, Duration::from_secs(1)).with_threads(threads)
    }

    /// All that is due in a second, each taken in time.
    fn all(plan: &Plan, thread: usize) -> Vec<Due> {
        let mut cursor = Cursor::new(plan, thread, 1000, 1_000_001_000).unwrap();
        let mut all = Vec::new();
        while let Some(due) = cursor.peek() {
            assert_eq!(cursor.take(due.at_ns), Some(due));
            all.push(due);
        }
        all
    }

    #[test]
    fn each_connection_has_its_own_even_schedule() {
        let plan = plan(5, 2, 100.0);
        let (first, second) = (all(&plan, 0), all(&plan, 1));
        assert_eq!((first.len(), second.len()), (60, 40));
        assert!(first.is_sorted_by_key(|due| due.at_ns));
        for (dues, lines) in [(&first, 3), (&second, 2)] {
            for line in 0..lines {
                let mine: Vec<u64> =
                    dues.iter().filter(|due| due.line == line).map(|due| due.at_ns).collect();
                assert_eq!(mine.len(), 20);
                assert!(mine.windows(2).all(|pair| pair[1] - pair[0] == 50_000_000));
            }
        }
        // Connection 1 of the five is the first of the second thread.
        assert_eq!((first[0].at_ns, second[0].at_ns), (1000, 10_001_000));
    }

    #[test]
    fn dice_keep_the_rate_and_give_each_connection_its_share() {
        let plan = plan(4, 1, 10_000.0).with_arrivals(Arrivals::Poisson, 7);
        let dues = all(&plan, 0);
        assert_eq!(dues, all(&plan, 0));
        assert!((9_500..10_500).contains(&dues.len()), "{}", dues.len());
        for line in 0..4 {
            let mine = dues.iter().filter(|due| due.line == line).count();
            assert!((2_200..2_800).contains(&mine), "{mine}");
        }
    }

    #[test]
    fn after_a_stall_they_come_at_twice_the_pace_and_not_at_once() {
        let plan = plan(1, 1, 1000.0);
        let mut cursor = Cursor::new(&plan, 0, 0, 1_000_000_000).unwrap();
        let ms = 1_000_000;
        assert_eq!(cursor.take(0).unwrap().at_ns, 0);
        // A hundred milliseconds go by: 100 are due, and one leaves.
        assert_eq!(cursor.take(100 * ms).unwrap().at_ns, ms);
        assert_eq!(cursor.take(100 * ms), None);
        assert_eq!(cursor.wake_ns(), Some(100 * ms + ms / 2));
        let mut taken = 0;
        while cursor.take(110 * ms).is_some() {
            taken += 1;
        }
        assert_eq!(taken, 20);
        // Twice the pace has caught up after another hundred milliseconds, more or less.
        let mut now = 110 * ms;
        while cursor.peek().unwrap().at_ns + ms < now {
            now += ms / 4;
            while cursor.take(now).is_some() {}
        }
        assert!((190 * ms..210 * ms).contains(&now), "{now}");
        // The next one is in time, and the hurry is over.
        let next = cursor.peek().unwrap();
        assert_eq!(cursor.take(next.at_ns), Some(next));
        assert_eq!(cursor.hurry, None);
    }
}
