//! What the link does to a packet, decided when the packet arrives. Time is an argument: there is no
//! clock here, and no socket.

use super::{
    Side,
    dice::throw,
    profile::{Outage, Profile},
};

const MS: f64 = 1e6; // in nanoseconds

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is delivered at this time, in nanoseconds.
    At(u64),
    /// It is not.
    Dropped(Cause),
}

/// Why a packet is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Too many were waiting for their turn.
    QueueFull,
    /// Its turn came when nothing got through.
    Outage,
    /// By chance.
    Lost,
}

/// The air between two sides.
pub struct Air {
    profile: Profile,
    seed: u64,
    /// When the last packet that waits has had its turn, in nanoseconds: the link's virtual clock.
    busy_until: f64,
    to_server: Direction,
    to_client: Direction,
}

#[derive(Default)]
struct Direction {
    /// Packets that have come so far.
    arrived: u64,
    /// When the last of them is delivered, in nanoseconds.
    last: u64,
}

impl Air {
    /// An idle link.
    pub fn new(profile: &Profile, seed: u64) -> Air {
        let (to_server, to_client) = Default::default();
        Air { profile: profile.clone(), seed, busy_until: 0.0, to_server, to_client }
    }

    /// The packets that wait for their turn at `now_ns`, the one that has it among them.
    pub fn queue_packets(&self, now_ns: u64) -> f64 {
        let rate = self.profile.packets_per_second.unwrap_or(0.0);
        (self.busy_until - now_ns as f64).max(0.0) / 1e9 * rate
    }

    /// A packet to `to` has arrived at `now_ns`.
    ///
    /// The order is that of a radio: a full queue takes nothing in; what gets its turn uses the air,
    /// also when it is lost there. An outage does not stop the queue: what has its turn then is lost.
    /// (A radio would try again for a while.)
    pub fn arrive(&mut self, to: Side, now_ns: u64) -> Fate {
        let waiting = self.queue_packets(now_ns);
        let Air { profile, seed, busy_until, .. } = self;
        let direction = match to {
            Side::Server => &mut self.to_server,
            Side::Client => &mut self.to_client,
        };
        let throw = throw(profile, *seed, to, direction.arrived);
        direction.arrived += 1;
        let mut sent = now_ns as f64;
        if let Some(rate) = profile.packets_per_second {
            if waiting >= profile.queue_packets as f64 {
                return Fate::Dropped(Cause::QueueFull);
            }
            sent = busy_until.max(sent) + 1e9 / rate;
            *busy_until = sent;
        }
        if profile.outage.is_some_and(|it| it.is_on(sent / MS)) {
            return Fate::Dropped(Cause::Outage);
        }
        if throw.is_lost {
            return Fate::Dropped(Cause::Lost);
        }
        let jitter_ms = throw.jitter_ms.min(profile.jitter_cap_ms);
        let mut at = (sent + (profile.delay_base_ms + jitter_ms) * MS) as u64;
        if profile.keep_order {
            at = at.max(direction.last);
            direction.last = at;
        }
        Fate::At(at)
    }
}

impl Outage {
    fn is_on(&self, at_ms: f64) -> bool {
        at_ms % self.every_ms >= self.every_ms - self.for_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// 1,000 packets a second, 10 ms, nothing left to chance.
    fn plain() -> Profile {
        Profile {
            packets_per_second: Some(1_000.0),
            queue_packets: 5,
            loss_percent: 0.0,
            delay_base_ms: 10.0,
            jitter_mean_ms: 0.0,
            ..Profile::named("wifi-2.4").unwrap()
        }
    }

    #[test]
    fn both_directions_share_the_air_and_the_queue() {
        let mut air = Air::new(&plain(), 1);
        // Each waits for those before it, whichever way they go.
        for turn in 1..=5 {
            let to = if turn % 2 == 0 { Side::Server } else { Side::Client };
            assert_eq!(air.arrive(to, 0), Fate::At(turn * 1_000_000 + 10_000_000));
        }
        assert_eq!(air.queue_packets(0), 5.0);
        assert_eq!(air.arrive(Side::Server, 0), Fate::Dropped(Cause::QueueFull));
        // What was dropped has not used the air: a millisecond later there is a place.
        assert_eq!(air.arrive(Side::Server, 1_000_000), Fate::At(16_000_000));
        assert_eq!(air.queue_packets(SECOND), 0.0);
    }

    #[test]
    fn twice_the_budget_carries_the_budget() {
        let mut air = Air::new(&plain(), 1);
        let arrivals = (0..2_000).map(|index| index * SECOND / 2_000);
        let carried = arrivals.filter(|at| matches!(air.arrive(Side::Server, *at), Fate::At(_)));
        let carried = carried.count();
        assert!((1_000..=1_006).contains(&carried), "{carried}: the budget, and what waits");
    }

    #[test]
    fn order_is_kept_or_not() {
        let jitter =
            Profile { packets_per_second: None, jitter_mean_ms: 5.0, jitter_sd_ms: 5.0, ..plain() };
        let times = |keep_order| -> Vec<u64> {
            let mut air = Air::new(&Profile { keep_order, ..jitter.clone() }, 1);
            let at = |index: u64| match air.arrive(Side::Server, index * 1_000_000) {
                Fate::At(time) => time,
                Fate::Dropped(cause) => panic!("{cause:?}"),
            };
            (0..500).map(at).collect()
        };
        assert!(times(true).is_sorted());
        assert!(!times(false).is_sorted());
        assert!(times(false).iter().zip(times(true)).all(|(free, kept)| *free <= kept));
    }

    #[test]
    fn an_outage_comes_at_the_end_of_each_period() {
        let outage = Some(Outage { every_ms: 100.0, for_ms: 20.0 });
        let mut air = Air::new(&Profile { packets_per_second: None, outage, ..plain() }, 1);
        for (ms, is_out) in [(0, false), (79, false), (80, true), (99, true), (100, false)] {
            let fate = air.arrive(Side::Client, ms * 1_000_000);
            assert_eq!(fate == Fate::Dropped(Cause::Outage), is_out, "at {ms} ms: {fate:?}");
        }
    }

    #[test]
    fn what_is_lost_depends_on_no_time() {
        let lossy = Profile { packets_per_second: None, loss_percent: 20.0, ..plain() };
        let lost = |pace: u64| -> Vec<u64> {
            let mut air = Air::new(&lossy, 7);
            let is_lost =
                |index: &u64| air.arrive(Side::Server, index * pace) == Fate::Dropped(Cause::Lost);
            (0..1_000).filter(is_lost).collect()
        };
        assert_eq!(lost(10_000), lost(3_333_333));
        assert!(!lost(10_000).is_empty());
    }
}
