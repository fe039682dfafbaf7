//! What a link has done so far, and whether it did it on time.

use super::Side;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt::Write;

/// A link that delivers one of a hundred packets later than this is not the link that was asked for.
pub const LATENESS_MAX_MS: f64 = 2.0;

/// How often the queue is looked at.
pub const SAMPLE_MS: u64 = 100;

/// What a link has done so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Packets on their way to the server.
    pub to_server: Packets,
    /// Packets on their way to the client.
    pub to_client: Packets,
    /// The queue over time: one number for each [`SAMPLE_MS`] since the link was opened, the most
    /// packets that waited in it.
    pub queue_packets: Vec<u32>,
    /// How much later than decided a packet was delivered, in ms: half of them no more than this.
    pub lateness_p50_ms: f64,
    /// The same, of 99 in 100.
    pub lateness_p99_ms: f64,
    /// The same, of all.
    pub lateness_max_ms: f64,
    /// Why the router has ended, if it has.
    pub failed: Option<String>,
}

/// The packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Sent by one side.
    pub arrived: u64,
    /// Given to the other.
    pub delivered: u64,
    /// Dropped because the queue was full.
    pub queue_full: u64,
    /// Dropped by chance.
    pub lost: u64,
    /// Dropped in an outage.
    pub outage: u64,
    /// Dropped because the router, or the kernel behind it, did not keep up. The profile asks for none
    /// of these. Those that never came to the router are not among the arrived.
    pub overrun: u64,
}

impl Counts {
    /// Packets that came, both ways.
    pub fn arrived(&self) -> u64 {
        self.to_server.arrived + self.to_client.arrived
    }

    /// Packets dropped for whatever reason, both ways.
    pub fn dropped(&self) -> u64 {
        self.to_server.dropped() + self.to_client.dropped()
    }

    /// Those of one direction.
    pub fn of(&self, to: Side) -> &Packets {
        match to {
            Side::Server => &self.to_server,
            Side::Client => &self.to_client,
        }
    }

    /// The most packets that waited.
    pub fn queue_max(&self) -> u32 {
        self.queue_packets.iter().copied().max().unwrap_or(0)
    }

    /// Why the link was not the one that was asked for, if it was not: the machine was too busy.
    pub fn spoiled(&self) -> Option<String> {
        if let Some(failed) = &self.failed {
            return Some(failed.clone());
        }
        let overruns = self.to_server.overrun + self.to_client.overrun;
        if self.lateness_p99_ms > LATENESS_MAX_MS {
            let late = self.lateness_p99_ms;
            return Some(format!(
                "1 % of the packets were more than {late:.1} ms late, {LATENESS_MAX_MS} ms may be"
            ));
        }
        // One in ten thousand moves no measurement.
        (overruns * 10_000 > self.arrived())
            .then(|| format!("{overruns} packets were dropped since the router did not keep up"))
    }

    /// For people, a line each.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for (to, packets) in [("server", &self.to_server), ("client", &self.to_client)] {
            let Packets { arrived, delivered, queue_full, lost, outage, overrun } = packets;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "to the {to}: {arrived} packets, {delivered} delivered; dropped: {queue_full} by a \
                 full queue, {lost} by chance, {outage} in outages, {overrun} by the router"
            );
        }
        let _ = writeln!(
            text,
            "queue: {} packets at most; deliveries late by {:.3} ms (half), {:.3} ms (99 %)",
            self.queue_max(),
            self.lateness_p50_ms,
            self.lateness_p99_ms
        );
        if let Some(why) = self.spoiled() {
            let _ = writeln!(text, "SPOILED: {why}: do not trust what was measured over it");
        }
        text
    }
}

impl Packets {
    /// Dropped for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.queue_full + self.lost + self.outage + self.overrun
    }
}

/// What the router writes down.
pub struct Tally {
    /// Of packets to the server, and to the client.
    pub packets: [Packets; 2],
    /// Why the router has ended, if it has.
    pub failed: Option<String>,
    queue_packets: Vec<u32>,
    lateness_ns: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Tally {
        let lateness_ns = Histogram::new(3).expect("three digits are a precision");
        Tally { packets: Default::default(), failed: None, queue_packets: Vec::new(), lateness_ns }
    }
}

impl Tally {
    /// Those on their way to `to`.
    pub fn to(&mut self, to: Side) -> &mut Packets {
        &mut self.packets[to as usize]
    }

    /// So many packets wait now.
    pub fn queue(&mut self, now_ns: u64, packets: f64) {
        let at = (now_ns / (SAMPLE_MS * 1_000_000)) as usize;
        if self.queue_packets.len() <= at {
            self.queue_packets.resize(at + 1, 0);
        }
        let most = &mut self.queue_packets[at];
        *most = (*most).max(packets.ceil() as u32);
    }

    /// A packet was delivered, so much too late.
    pub fn late(&mut self, ns: u64) {
        // It grows as needed, and no time of ours is beyond what it can grow to.
        let _ = self.lateness_ns.record(ns);
    }

    /// As of now.
    pub fn counts(&self) -> Counts {
        let ms = |quantile| self.lateness_ns.value_at_quantile(quantile) as f64 / 1e6;
        Counts {
            to_server: self.packets[Side::Server as usize],
            to_client: self.packets[Side::Client as usize],
            queue_packets: self.queue_packets.clone(),
            lateness_p50_ms: ms(0.5),
            lateness_p99_ms: ms(0.99),
            lateness_max_ms: ms(1.0),
            failed: self.failed.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_link_is_spoiled_and_says_so() {
        let mut tally = Tally::default();
        for _ in 0..98 {
            tally.late(50_000);
        }
        assert_eq!(tally.counts().spoiled(), None);
        tally.late(9_000_000);
        tally.late(9_000_000);
        let counts = tally.counts();
        assert!(counts.spoiled().unwrap().contains("2 ms may be"));
        assert!(counts.summary().contains("SPOILED: 1 % of the packets"));
        assert!((0.04..0.06).contains(&counts.lateness_p50_ms));
    }

    #[test]
    fn the_queue_is_the_most_of_each_sample() {
        let mut tally = Tally::default();
        tally.queue(10_000_000, 1.0);
        tally.queue(20_000_000, 3.2);
        tally.queue(30_000_000, 2.0);
        tally.queue(250_000_000, 7.0);
        assert_eq!(tally.counts().queue_packets, [4, 0, 7]);
        assert_eq!(tally.counts().queue_max(), 7);
    }
}
