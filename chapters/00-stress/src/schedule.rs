//! The schedule: the moment of every request, worked out before the first one leaves.

use crate::plan::{Arrivals, Load, Plan};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::time::Duration;

/// A record of a request takes some 80 bytes until the run is reported.
const REQUESTS_MAX: f64 = 20e6;

/// One stretch of the run with one rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepPlan {
    /// `warmup` or `steady`.
    pub phase: &'static str,
    /// Requests per second; of a warm-up, the rate at its end.
    pub target_qps: f64,
    /// When it begins, in nanoseconds from the start of the run.
    pub start_ns: u64,
    /// How long it lasts, in nanoseconds.
    pub length_ns: u64,
}

/// One moment of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Nanoseconds from the start of the run.
    pub at_ns: u64,
    /// Index into [`steps`].
    pub step: u16,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A request, with its number from 1.
    Request { id: u32 },
    /// A stalled client; index into the stalls of the plan.
    Stalled { stall: u8 },
}

/// The steps of a plan, in order.
pub fn steps(plan: &Plan) -> Vec<StepPlan> {
    let (rates, hold, warmup) = match &plan.load {
        Load::Steady { qps, warmup, steady } => (vec![*qps], *steady, *warmup),
        Load::Staircase { rates, hold, warmup } => (rates.clone(), *hold, *warmup),
    };
    let mut steps = Vec::new();
    let mut start_ns = 0;
    let mut add = |phase, target_qps, length: Duration| {
        let length_ns = length.as_nanos() as u64;
        if length_ns > 0 {
            steps.push(StepPlan { phase, target_qps, start_ns, length_ns });
            start_ns += length_ns;
        }
    };
    add("warmup", rates[0], warmup);
    for rate in rates {
        add("steady", rate, hold);
    }
    steps
}

/// Every moment of the plan, in order of time.
pub(crate) fn slots(plan: &Plan) -> Result<Vec<Slot>> {
    plan.check()?;
    let steps = steps(plan);
    let expected: f64 = steps.iter().map(requests_expected).sum();
    ensure!(
        expected <= REQUESTS_MAX,
        "the schedule holds {expected:.0} requests, and each is kept until the report: \
         plan at most {REQUESTS_MAX:.0}, in several runs"
    );
    ensure!(steps.len() < 60_000, "the schedule has {} steps", steps.len());
    let mut slots = Vec::with_capacity(expected as usize + 16);
    let mut dice = Dice(plan.seed);
    let mut owed = vec![0.0; plan.stalls.len()];
    let mut id = 0;
    for (index, step) in steps.iter().enumerate() {
        for offset_ns in offsets(step, plan.arrivals, &mut dice) {
            id += 1;
            let at_ns = step.start_ns + offset_ns;
            let slot = |what| Slot { at_ns, step: index as u16, what };
            slots.push(slot(What::Request { id }));
            for (stall, owed) in owed.iter_mut().enumerate() {
                *owed += plan.stalls[stall].share;
                // A share of 1/200 added 200 times is a little less than 1.
                if *owed >= 1.0 - 1e-9 {
                    *owed -= 1.0;
                    slots.push(slot(What::Stalled { stall: stall as u8 }));
                }
            }
        }
    }
    Ok(slots)
}

fn requests_expected(step: &StepPlan) -> f64 {
    let full = step.target_qps * step.length_ns as f64 / 1e9;
    if step.phase == "warmup" { full / 2.0 } else { full }
}

/// The moments within a step, in nanoseconds from its start.
fn offsets(step: &StepPlan, arrivals: Arrivals, dice: &mut Dice) -> Vec<u64> {
    let expected = requests_expected(step);
    // Arrivals come at the whole numbers of a clock that ticks `expected` times within the step: at the
    // halves for uniform ones, at the steps of a random walk for Poisson's.
    let mut ticks = Vec::new();
    match arrivals {
        Arrivals::Uniform => {
            let count = (expected + 1e-6).floor() as u64;
            ticks.extend((0..count).map(|index| index as f64));
        }
        Arrivals::Poisson => {
            let mut tick = dice.exponential();
            while tick < expected {
                ticks.push(tick);
                tick += dice.exponential();
            }
        }
    }
    let length = step.length_ns as f64;
    let place = |tick: f64| match step.phase {
        // The rate grows in a line, so that the number so far grows with the square of the time.
        "warmup" => ((tick + 0.5) / (expected + 0.5)).sqrt() * length,
        _ => tick / expected * length,
    };
    ticks.into_iter().map(|tick| place(tick).min(length).round() as u64).collect()
}

/// A small generator of random numbers (splitmix64): the same seed gives the same schedule everywhere.
pub(crate) struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Mean 1.
    pub fn exponential(&mut self) -> f64 {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - uniform).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Stall, StallKind};
    use std::net::SocketAddr;

    fn target() -> SocketAddr {
        "127.0.0.1:1".parse().unwrap()
    }

    #[test]
    fn the_staircase_of_the_story_has_23_500_requests() {
        let plan = Plan::staircase(target(), 10.0, 460.0, 50.0, Duration::from_secs(10));
        let slots = slots(&plan).unwrap();
        assert_eq!(slots.len(), 23_500);
        assert!(slots.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
        assert_eq!(slots[1].at_ns, 100_000_000);
        assert_eq!(
            slots[100],
            Slot { at_ns: 10_000_000_000, step: 1, what: What::Request { id: 101 } }
        );
    }

    #[test]
    fn the_warm_up_is_a_line_to_the_full_rate() {
        let second = Duration::from_secs(1);
        let slots = slots(&Plan::steady(target(), 10.0, second, second * 5)).unwrap();
        assert_eq!(slots.iter().filter(|slot| slot.step == 0).count(), 5);
        assert_eq!(slots.len(), 55);
        let gaps: Vec<u64> =
            slots[..6].windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns).collect();
        assert!(gaps[..4].windows(2).all(|pair| pair[0] > pair[1]), "{gaps:?}");
        assert!(slots[4].at_ns < 1_000_000_000);
    }

    #[test]
    fn poisson_keeps_the_rate_and_the_seed_decides() {
        let plan = Plan::steady(target(), 1000.0, Duration::ZERO, Duration::from_secs(20));
        let one = slots(&plan.clone().with_arrivals(Arrivals::Poisson, 1)).unwrap();
        let again = slots(&plan.clone().with_arrivals(Arrivals::Poisson, 1)).unwrap();
        let two = slots(&plan.with_arrivals(Arrivals::Poisson, 2)).unwrap();
        assert_eq!(one, again);
        assert_ne!(one, two);
        assert!((19_000..21_000).contains(&one.len()), "{}", one.len());
        // Of exponential gaps, 1/e are longer than the mean.
        let long =
            one.windows(2).filter(|pair| pair[1].at_ns - pair[0].at_ns > 1_000_000).count() as f64;
        assert!((0.33..0.41).contains(&(long / one.len() as f64)));
    }

    #[test]
    fn stalled_clients_come_on_top_and_evenly() {
        let plan = Plan::steady(target(), 1000.0, Duration::ZERO, Duration::from_secs(1))
            .with_stall(Stall { share: 0.005, kind: StallKind::Silent })
            .with_stall(Stall { share: 0.01, kind: StallKind::Drip });
        let slots = slots(&plan).unwrap();
        let count = |wanted| slots.iter().filter(|slot| slot.what == wanted).count();
        assert_eq!(count(What::Stalled { stall: 0 }), 5);
        assert_eq!(count(What::Stalled { stall: 1 }), 10);
        assert_eq!(slots.len(), 1015);
        let first = slots.iter().position(|slot| slot.what == What::Stalled { stall: 0 });
        assert_eq!(slots[first.unwrap()].at_ns, 199_000_000);
    }

    #[test]
    fn a_schedule_too_long_to_keep_is_refused() {
        let plan = Plan::steady(target(), 1e6, Duration::ZERO, Duration::from_secs(60));
        assert!(slots(&plan).unwrap_err().to_string().contains("60000000 requests"));
    }
}
