//! The dice of a link: what chance does to a packet depends on the seed, the direction and the number of
//! the packet, and on nothing else. So two runs with one seed lose the same packets, whatever the
//! machine's scheduler does to their times.
//!
//! Ours and not `rand`'s: its `StdRng` may give other numbers with its next version, by its own words,
//! and a seed in a record is to mean the same then. The generator is SplitMix64 (Steele, Lea, Flood:
//! "Fast splittable pseudorandom number generators", 2014), started anew for every packet.

use super::{Side, profile::Profile};

/// 2^64 divided by the golden ratio, the step of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What chance does to one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throw {
    /// It is lost.
    pub is_lost: bool,
    /// What is added to its delay, before the cap.
    pub jitter_ms: f64,
}

/// Throws for packet `index`, counted from 0, of those that go to `to`.
pub fn throw(profile: &Profile, seed: u64, to: Side, index: u64) -> Throw {
    let direction = match to {
        Side::Server => 1,
        Side::Client => 2,
    };
    let mut dice = Dice(seed);
    // Each part goes through the mixer, so that neighbours have nothing in common.
    for part in [direction, index] {
        dice = Dice(dice.next().wrapping_add(part));
    }
    let is_lost = dice.uniform() * 100.0 < profile.loss_percent;
    Throw { is_lost, jitter_ms: dice.gamma(profile.jitter_mean_ms, profile.jitter_sd_ms) }
}

/// A generator of random numbers.
struct Dice(u64);

impl Dice {
    /// The next 64 bits.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From 0 to below 1: as many bits as a double holds.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Of the normal distribution: Box and Muller, the second number thrown away.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Of the Gamma distribution with this mean and standard deviation: Marsaglia and Tsang, "A simple
    /// method for generating gamma variables", 2000. A deviation of 0 is the mean itself.
    fn gamma(&mut self, mean: f64, sd: f64) -> f64 {
        if mean <= 0.0 || sd <= 0.0 {
            return mean.max(0.0);
        }
        let (shape, scale) = ((mean / sd).powi(2), sd * sd / mean);
        if shape < 1.0 {
            // Their note: one of shape + 1, times a power of a uniform number.
            let power = (1.0 - self.uniform()).powf(1.0 / shape);
            return self.gamma_of_one_or_more(shape + 1.0) * power * scale;
        }
        self.gamma_of_one_or_more(shape) * scale
    }

    fn gamma_of_one_or_more(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.uniform()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THROWS: u64 = 100_000;

    fn profile(loss_percent: f64, jitter_mean_ms: f64, jitter_sd_ms: f64) -> Profile {
        let wifi = Profile::named("wifi-2.4").unwrap();
        Profile { loss_percent, jitter_mean_ms, jitter_sd_ms, ..wifi }
    }

    #[test]
    fn the_numbers_are_those_of_the_paper() {
        // The first three of seed 1234567, as other implementations of SplitMix64 publish them.
        let mut dice = Dice(1_234_567);
        let numbers = [dice.next(), dice.next(), dice.next()];
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn mean_and_deviation_are_those_asked_for() {
        // Shapes below, at and above 1.
        for (mean, sd) in [(7.0, 8.5), (5.0, 5.0), (10.0, 2.0)] {
            let profile = profile(0.0, mean, sd);
            let jitter = |index| throw(&profile, 1, Side::Server, index).jitter_ms;
            let all: Vec<f64> = (0..THROWS).map(jitter).collect();
            let found = all.iter().sum::<f64>() / THROWS as f64;
            let squares = all.iter().map(|it| (it - found).powi(2)).sum::<f64>();
            let deviation = (squares / THROWS as f64).sqrt();
            assert!((found / mean - 1.0).abs() < 0.02, "mean {found}, not {mean}");
            assert!((deviation / sd - 1.0).abs() < 0.03, "deviation {deviation}, not {sd}");
        }
    }

    #[test]
    fn as_many_are_lost_as_are_to_be() {
        for percent in [0.0, 1.0, 20.0, 100.0] {
            let profile = profile(percent, 7.0, 8.5);
            let is_lost = |index: &u64| throw(&profile, 3, Side::Client, *index).is_lost;
            let lost = (0..THROWS).filter(is_lost).count() as f64;
            let expected = THROWS as f64 * percent / 100.0;
            let bound = 5.0 * (expected * (1.0 - percent / 100.0)).sqrt();
            assert!((lost - expected).abs() <= bound, "{lost} lost, not {expected} ± {bound}");
        }
    }

    #[test]
    fn seeds_and_directions_have_dice_of_their_own() {
        let profile = profile(50.0, 7.0, 8.5);
        let lost = |seed, to| -> Vec<bool> {
            (0..200).map(|index| throw(&profile, seed, to, index).is_lost).collect()
        };
        assert_eq!(lost(1, Side::Server), lost(1, Side::Server));
        for other in [lost(2, Side::Server), lost(1, Side::Client)] {
            let same = lost(1, Side::Server).iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!((60..140).contains(&same), "{same} of 200 agree: by chance, 100 would");
        }
    }
}
