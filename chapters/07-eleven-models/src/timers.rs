//! Deadlines, found without walking all connections.
//!
//! A connection's deadline moves with each request, a hundred thousand times in a second. Its timer does
//! not: it is set once, and when it rings too early it is set again for what is left. A slot has one timer
//! that counts, whoever uses it, so that clients who come and go leave no timers behind.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::slots;

/// The timers of one loop.
pub struct Timers {
    /// When one rings and whose it is, in one number: ten thousand of them are weighed.
    heap: BinaryHeap<Reverse<u64>>,
    /// For each slot, when its timer rings, as [`low`] has it; [`NEVER`] when it has none.
    rings_at_ms: Vec<u32>,
    /// Before this, no timer is set: the end of the time whose timers are ringing just now.
    after_ms: u64,
}

/// No timer.
const NEVER: u32 = u32::MAX;

/// So many bits of the number are the slot: 16 million clients, and the rest lasts for 34 years.
const SLOT_BITS: u32 = 24;

impl Timers {
    /// None yet.
    pub fn new() -> Timers {
        let heap = BinaryHeap::with_capacity(slots::ROOM);
        Timers { heap, rings_at_ms: Vec::with_capacity(slots::ROOM), after_ms: 0 }
    }

    /// Sees to it that the timer of `slot` rings at `deadline_ms` or before. Almost always there is nothing
    /// to do.
    ///
    /// While timers ring, none is set for now: whoever is due again at once has the next turn of the loop,
    /// and not all that is left of this one.
    pub fn set(&mut self, slot: u32, deadline_ms: u64) {
        let deadline_ms = deadline_ms.max(self.after_ms);
        let slot_index = slot as usize;
        if slot_index >= self.rings_at_ms.len() {
            self.rings_at_ms.resize(slot_index + 1, NEVER);
        }
        let at_ms = &mut self.rings_at_ms[slot_index];
        if *at_ms == NEVER || is_before(low(deadline_ms), *at_ms) {
            *at_ms = low(deadline_ms);
            self.heap.push(Reverse(deadline_ms << SLOT_BITS | u64::from(slot)));
        }
    }

    /// When the next one rings.
    pub fn next_ms(&self) -> Option<u64> {
        self.heap.peek().map(|&Reverse(timer)| timer >> SLOT_BITS)
    }

    /// A slot whose timer has rung: look at the deadline of whoever is there, and [`Timers::set`] it again.
    /// To be asked until there is none.
    pub fn rung(&mut self, now_ms: u64) -> Option<u32> {
        self.after_ms = now_ms + 1;
        while let Some(at_ms) = self.next_ms().filter(|&at_ms| at_ms <= now_ms) {
            let Reverse(timer) = self.heap.pop()?;
            let slot = (timer & ((1 << SLOT_BITS) - 1)) as u32;
            // Another is one that was overtaken by an earlier deadline of the same slot.
            if self.rings_at_ms[slot as usize] == low(at_ms) {
                self.rings_at_ms[slot as usize] = NEVER;
                return Some(slot);
            }
        }
        self.after_ms = 0;
        None
    }
}

/// Half of a time, which is enough to compare two that are less than 24 days apart.
fn low(at_ms: u64) -> u32 {
    (at_ms as u32).min(NEVER - 1)
}

/// Whether one such time is before the other, also when the count has begun anew between them.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_moves_away_costs_nothing() {
        let mut timers = Timers::new();
        timers.set(3, 100);
        (101..10_000).for_each(|deadline_ms| timers.set(3, deadline_ms));
        assert_eq!(timers.heap.len(), 1);
        assert_eq!(timers.rung(99), None);
        assert_eq!(timers.rung(100), Some(3));
        assert_eq!(timers.rung(100), None);
        assert_eq!(timers.next_ms(), None);
    }

    #[test]
    fn a_nearer_deadline_rings_first_and_its_elder_not_at_all() {
        let mut timers = Timers::new();
        timers.set(0, 100);
        timers.set(1, 50);
        timers.set(0, 40);
        assert_eq!(timers.next_ms(), Some(40));
        assert_eq!(timers.rung(200), Some(0));
        assert_eq!(timers.rung(200), Some(1));
        assert_eq!(timers.rung(200), None);
    }

    #[test]
    fn who_is_due_again_at_once_lets_the_others_have_their_turn() {
        let mut timers = Timers::new();
        timers.set(0, 100);
        assert_eq!(timers.rung(100), Some(0));
        timers.set(0, 100);
        assert_eq!(timers.rung(100), None, "the loop would never end");
        assert_eq!(timers.next_ms(), Some(101));
        timers.set(1, 100);
        assert_eq!(timers.rung(100), Some(1), "this one was set before the timers rang");
        assert_eq!(timers.rung(101), Some(0));
    }

    #[test]
    fn the_count_of_half_a_time_begins_anew() {
        let mut timers = Timers::new();
        let end_ms = u64::from(u32::MAX);
        timers.set(0, end_ms + 100);
        timers.set(0, end_ms - 100);
        timers.set(1, end_ms);
        timers.set(1, end_ms + 5);
        assert_eq!(timers.rung(end_ms - 101), None);
        assert_eq!(timers.rung(end_ms - 100), Some(0));
        assert_eq!(timers.rung(end_ms - 1), None);
        assert_eq!(timers.rung(end_ms), Some(1));
        timers.set(0, end_ms + 50);
        assert_eq!(timers.rung(end_ms + 49), None);
        assert_eq!(timers.rung(end_ms + 200), Some(0));
        assert_eq!(timers.rung(end_ms + 200), None);
    }
}
