//! What a link is like: the numbers of a profile, and the mean that follows from them.

use serde::{Deserialize, Serialize};

/// The parameters of a link. Both directions have the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name, or what it was made from.
    pub name: String,
    /// Packets that both directions together carry in a second: a radio sends one at a time, whoever
    /// it comes from. `None`: as many as come.
    pub packets_per_second: Option<f64>,
    /// Packets that wait for their turn. One more is dropped.
    pub queue_packets: usize,
    /// Packets lost at random, after they have had their turn.
    pub loss_percent: f64,
    /// What every packet takes, each way.
    pub delay_base_ms: f64,
    /// The mean of what is added to it: a Gamma distribution, before it is capped.
    pub jitter_mean_ms: f64,
    /// The standard deviation of that distribution, before it is capped.
    pub jitter_sd_ms: f64,
    /// The most that is added.
    pub jitter_cap_ms: f64,
    /// Whether a packet waits for those before it that go the same way.
    pub keep_order: bool,
    /// When nothing gets through.
    pub outage: Option<Outage>,
}

/// Nothing gets through at the end of every period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// The period.
    pub every_ms: f64,
    /// How much of it, at its end.
    pub for_ms: f64,
}

/// The profiles that have a name.
pub const NAMES: [&str; 5] = ["wifi-2.4", "wifi-5", "ethernet", "lossy", "satellite"];

/// Parts of the sum that stands for an integral.
const PARTS: u32 = 10_000;

impl Profile {
    /// The profile called `name`, one of [`NAMES`].
    pub fn named(name: &str) -> Option<Profile> {
        let profile = match name {
            // Fitted: with it, the blog's staircase comes out as the blog measured it.
            "wifi-2.4" => Profile {
                packets_per_second: Some(2_150.0),
                queue_packets: 50,
                loss_percent: 1.0,
                delay_base_ms: 8.0,
                jitter_mean_ms: 7.0,
                jitter_sd_ms: 8.5,
                jitter_cap_ms: 36.0,
                ..Profile::wire()
            },
            // Not fitted to any radio. A short frame alone on 5 GHz: 34 us of silence, 67.5 us of
            // mean backoff, some 40 us of frame, 16 us, and 28 us of acknowledgement: 5,000 a second.
            "wifi-5" => Profile {
                packets_per_second: Some(5_000.0),
                queue_packets: 100,
                loss_percent: 0.2,
                delay_base_ms: 1.0,
                jitter_mean_ms: 1.0,
                jitter_sd_ms: 1.5,
                jitter_cap_ms: 20.0,
                ..Profile::wire()
            },
            "ethernet" => Profile::wire(),
            // A long way with a bad end, such as a telephone in a train.
            "lossy" => Profile {
                loss_percent: 5.0,
                delay_base_ms: 20.0,
                jitter_mean_ms: 5.0,
                jitter_sd_ms: 5.0,
                jitter_cap_ms: 50.0,
                ..Profile::wire()
            },
            // Twice 35,786 km at the speed of light are 239 ms; the stations need some more.
            "satellite" => Profile {
                packets_per_second: Some(5_000.0),
                queue_packets: 500,
                loss_percent: 0.5,
                delay_base_ms: 260.0,
                jitter_mean_ms: 10.0,
                jitter_sd_ms: 10.0,
                jitter_cap_ms: 100.0,
                ..Profile::wire()
            },
            _ => return None,
        };
        Some(Profile { name: name.into(), ..profile })
    }

    /// A switch and two cables. Its two directions do not share anything, so that no budget is set.
    fn wire() -> Profile {
        Profile {
            name: "ethernet".into(),
            packets_per_second: None,
            queue_packets: 1_000,
            loss_percent: 0.0,
            delay_base_ms: 0.2,
            jitter_mean_ms: 0.05,
            jitter_sd_ms: 0.05,
            jitter_cap_ms: 1.0,
            keep_order: true,
            outage: None,
        }
    }

    /// What a packet takes one way on an idle link, in ms: the mean, with the cap taken into account,
    /// and with its own time on the air.
    pub fn mean_delay_ms(&self) -> f64 {
        let air_ms = self.packets_per_second.map_or(0.0, |rate| 1e3 / rate);
        self.delay_base_ms + self.mean_jitter_ms() + air_ms
    }

    /// The mean of the capped Gamma distribution.
    ///
    /// Its density has a pole at 0 for a shape k below 1. With u = x^k in place of x the pole is gone:
    /// the density becomes exp(-x/scale), but for a factor that drops out of the quotient.
    fn mean_jitter_ms(&self) -> f64 {
        let (mean, sd) = (self.jitter_mean_ms, self.jitter_sd_ms);
        if mean <= 0.0 || sd <= 0.0 {
            return mean.clamp(0.0, self.jitter_cap_ms);
        }
        let (shape, scale) = ((mean / sd).powi(2), sd * sd / mean);
        let end = (mean + 40.0 * sd).powf(shape);
        let (mut sum, mut weights) = (0.0, 0.0);
        for part in 0..PARTS {
            let x = (end * (f64::from(part) + 0.5) / f64::from(PARTS)).powf(1.0 / shape);
            let weight = (-x / scale).exp();
            sum += x.min(self.jitter_cap_ms) * weight;
            weights += weight;
        }
        sum / weights
    }

    /// What makes no sense about it, in a sentence.
    ///
    /// # Errors
    /// If there is something.
    pub fn check(&self) -> Result<(), String> {
        let of_time = [
            ("the delay", self.delay_base_ms),
            ("the jitter", self.jitter_mean_ms),
            ("the jitter's deviation", self.jitter_sd_ms),
            ("the jitter's cap", self.jitter_cap_ms),
        ];
        for (what, ms) in of_time {
            if !(0.0..=60_000.0).contains(&ms) {
                return Err(format!("{what} is {ms} ms: it has to be 0 to 60,000 ms"));
            }
        }
        if !(0.0..=100.0).contains(&self.loss_percent) {
            return Err(format!("the loss is {} %: it has to be 0 to 100 %", self.loss_percent));
        }
        if let Some(rate) = self.packets_per_second.filter(|rate| !(1.0..=1e6).contains(rate)) {
            return Err(format!("the budget is {rate} packets/s: it has to be 1 to 1,000,000"));
        }
        match self.outage {
            Some(Outage { every_ms, for_ms }) if !(every_ms > 0.0 && for_ms >= 0.0) => {
                Err(format!("an outage of {for_ms} ms every {every_ms} ms is none"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_profile_that_makes_sense() {
        for name in NAMES {
            let profile = Profile::named(name).unwrap();
            assert_eq!(profile.name, name);
            assert_eq!(profile.check(), Ok(()));
        }
        assert_eq!(Profile::named("wifi-7"), None);
    }

    #[test]
    fn the_mean_knows_of_the_cap() {
        // Shape 1 is the exponential distribution: its capped mean is mean · (1 − exp(−cap/mean)).
        let exponential = |cap| Profile {
            jitter_mean_ms: 5.0,
            jitter_sd_ms: 5.0,
            jitter_cap_ms: cap,
            ..Profile::wire()
        };
        for cap in [1.0, 5.0, 50.0] {
            let expected = 5.0 * (1.0 - f64::exp(-cap / 5.0));
            let found = exponential(cap).mean_jitter_ms();
            assert!((found - expected).abs() < 0.02, "cap {cap}: {found}, not {expected}");
        }
        let fixed = Profile { jitter_sd_ms: 0.0, ..exponential(3.0) };
        assert_eq!(fixed.mean_jitter_ms(), 3.0);
    }

    #[test]
    fn nonsense_is_a_sentence() {
        let of = |profile: Profile| profile.check().unwrap_err();
        assert!(of(Profile { loss_percent: 101.0, ..Profile::wire() }).contains("0 to 100 %"));
        assert!(of(Profile { delay_base_ms: f64::NAN, ..Profile::wire() }).contains("the delay"));
        assert!(
            of(Profile { packets_per_second: Some(0.0), ..Profile::wire() }).contains("budget")
        );
    }
}
