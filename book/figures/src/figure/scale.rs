//! Axes: from numbers to places, and the few numbers that are written at them.

/// An axis from a number to a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    is_log: bool,
    /// The numbers to write, in order.
    pub ticks: Vec<f64>,
}

/// The numbers that an axis must have room for, and how they are spread over it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Whether equal steps are equal factors.
    pub is_log: bool,
}

impl Extent {
    /// Of numbers of which there is at least one.
    pub fn of(values: impl Iterator<Item = f64>, is_log: bool) -> Extent {
        let (min, max) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), it| {
            (f64::min(min, it), f64::max(max, it))
        });
        Extent { min, max, is_log }
    }
}

impl Scale {
    /// An axis for values, from `start` to `end`: from zero, or from one round
    /// number to another if it is logarithmic.
    pub fn of_values(extent: Extent, start: f64, end: f64) -> Scale {
        if extent.is_log {
            return Scale::of_factors(extent, start, end);
        }
        // Zero is on the axis, since lengths are compared.
        let (low, high) = (extent.min.min(0.0), extent.max.max(0.0));
        let high = if high > low { high } else { low + 1.0 };
        let step = nice_step(high - low, 5);
        let from = (low / step).floor() * step;
        let to = (high / step).ceil() * step;
        Scale { from, to, start, end, is_log: false, ticks: multiples(from, to, step) }
    }

    /// An axis for places, from `start` to `end`: no wider than they are, and from zero if it is near.
    ///
    /// The places themselves are written if each has `room` for its number, otherwise round numbers.
    pub fn of_places(extent: Extent, places: &[f64], room: f64, start: f64, end: f64) -> Scale {
        let Extent { min, max, is_log } = extent;
        let (from, to) = match is_log {
            _ if min == max && is_log => (min / 2.0, max * 2.0),
            _ if min == max => (min - 1.0, max + 1.0),
            false if min > 0.0 && min <= max / 4.0 => (0.0, max),
            _ => (min, max),
        };
        let mut scale = Scale { from, to, start, end, is_log, ticks: places.to_vec() };
        let is_tight = |it: &[f64]| (scale.place(it[1]) - scale.place(it[0])).abs() < room;
        if places.windows(2).any(is_tight) {
            scale.ticks = if is_log {
                rounds(from, to)
            } else {
                let count = ((end - start).abs() / room).floor().clamp(2.0, 6.0);
                let step = nice_step(to - from, count as usize);
                multiples((from / step).ceil() * step, to, step)
            };
        }
        scale
    }

    /// An axis with as many places as there are words.
    pub fn of_words(count: usize, start: f64, end: f64) -> Scale {
        let to = count as f64 - 0.5;
        let ticks = (0..count).map(|it| it as f64).collect();
        Scale { from: -0.5, to, start, end, is_log: false, ticks }
    }

    /// Where a number is.
    pub fn place(&self, value: f64) -> f64 {
        let by = |it: f64| if self.is_log { it.log10() } else { it };
        let part = (by(value) - by(self.from)) / (by(self.to) - by(self.from));
        self.start + part * (self.end - self.start)
    }

    fn of_factors(extent: Extent, start: f64, end: f64) -> Scale {
        let (from, mut to) = (round_below(extent.min), round_above(extent.max));
        if from >= to {
            to = from * 10.0;
        }
        Scale { from, to, start, end, is_log: true, ticks: rounds(from, to) }
    }
}

/// The greatest of 1, 2, 5, 10, 20 … (or 0.5, 0.2 …) that is not above `value`.
fn round_below(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [5.0, 2.0, 1.0].into_iter().find(|it| it * decade <= value * 1.000_001);
    factor.unwrap_or(1.0) * decade
}

/// The least of them that is not below `value`.
fn round_above(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|it| it * decade >= value * 0.999_999);
    factor.unwrap_or(10.0) * decade
}

/// The least of 1, 2, 5, 10, 20 … (or 0.5, 0.2 …) that divides `length` into at most `count` parts.
fn nice_step(length: f64, count: usize) -> f64 {
    let rough = length / count as f64;
    let decade = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|it| it * decade >= rough * 0.999_999);
    factor.unwrap_or(10.0) * decade
}

fn multiples(from: f64, to: f64, step: f64) -> Vec<f64> {
    let count = ((to - from) / step + 1e-6).floor() as usize;
    // Divided and multiplied again, so that 3 · 0.1 is 0.3.
    let first = (from / step).round();
    (0..=count).map(|it| (first + it as f64) * step).map(|it| (it * 1e9).round() / 1e9).collect()
}

/// 1, 2, 5, 10, 20 … between two numbers; powers of ten only, if that would be too many.
fn rounds(from: f64, to: f64) -> Vec<f64> {
    let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let of = |factors: &[f64]| -> Vec<f64> {
        let all = decades.clone().flat_map(|decade| factors.iter().map(move |it| (decade, it)));
        let all = all.map(|(decade, factor)| factor * 10_f64.powi(decade));
        all.filter(|it| (from * 0.999..=to * 1.001).contains(it)).collect()
    };
    let all = of(&[1.0, 2.0, 5.0]);
    if all.len() <= 6 {
        return all;
    }
    let powers = of(&[1.0]);
    let stride = powers.len().div_ceil(6);
    powers.into_iter().step_by(stride).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(min: f64, max: f64, is_log: bool) -> Extent {
        Extent { min, max, is_log }
    }

    #[test]
    fn values_begin_at_zero_and_end_at_a_round_number() {
        for (min, max, ticks) in [
            (12.0, 100.0, &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0][..]),
            (0.11, 0.31, &[0.0, 0.1, 0.2, 0.3, 0.4]),
            (0.0, 0.0, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
            (-5.0, 12.0, &[-5.0, 0.0, 5.0, 10.0, 15.0]),
            (1.0, 23_500.0, &[0.0, 5_000.0, 10_000.0, 15_000.0, 20_000.0, 25_000.0]),
        ] {
            let scale = Scale::of_values(extent(min, max, false), 100.0, 0.0);
            assert_eq!(scale.ticks, ticks, "{min} to {max}");
            assert_eq!(scale.place(ticks[0]), 100.0);
            assert!(scale.place(ticks[ticks.len() - 1]).abs() < 1e-9);
        }
    }

    #[test]
    fn a_logarithmic_axis_goes_from_a_round_number_to_another() {
        for (min, max, ticks) in [
            (0.1, 10_000.0, &[0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0][..]),
            (0.3, 4_000.0, &[1.0, 10.0, 100.0, 1_000.0]),
            (0.98, 9.5, &[0.5, 1.0, 2.0, 5.0, 10.0]),
            (1e-3, 1e9, &[1e-3, 1e0, 1e3, 1e6, 1e9]),
            (10.0, 10.0, &[10.0, 20.0, 50.0, 100.0]),
        ] {
            let scale = Scale::of_values(extent(min, max, true), 100.0, 0.0);
            let is_near = |(it, other): (&f64, &f64)| (it / other - 1.0).abs() < 1e-9;
            assert!(scale.ticks.iter().zip(ticks).all(is_near), "{min} to {max}: {scale:?}");
            assert_eq!(scale.ticks.len(), ticks.len(), "{min} to {max}: {scale:?}");
            assert!(scale.place(min) <= 100.0 + 1e-9 && scale.place(max) >= -1e-9, "{scale:?}");
        }
        let scale = Scale::of_values(extent(0.1, 10_000.0, true), 100.0, 0.0);
        assert!((scale.place(1.0) - 80.0).abs() < 1e-9);
    }

    #[test]
    fn places_are_written_if_they_have_room() {
        let places = [10.0, 110.0, 210.0, 310.0, 460.0];
        let wide = Scale::of_places(extent(10.0, 460.0, false), &places, 20.0, 0.0, 460.0);
        assert_eq!(wide.ticks, places);
        assert_eq!(wide.place(230.0), 230.0, "from zero");
        let narrow = Scale::of_places(extent(10.0, 460.0, false), &places, 40.0, 0.0, 160.0);
        assert_eq!(narrow.ticks, [0.0, 200.0, 400.0]);
        let far = Scale::of_places(extent(100.0, 110.0, false), &[100.0, 110.0], 20.0, 0.0, 100.0);
        assert_eq!(far.place(100.0), 0.0, "not from zero");
        let one = Scale::of_places(extent(4.0, 4.0, false), &[4.0], 20.0, 0.0, 100.0);
        assert_eq!((one.place(4.0), &one.ticks[..]), (50.0, &[4.0][..]));
        let dense: Vec<f64> = (1..=1000).map(f64::from).collect();
        let log = Scale::of_places(extent(1.0, 1000.0, true), &dense, 30.0, 0.0, 300.0);
        assert_eq!(log.ticks, [1.0, 10.0, 100.0, 1000.0]);
    }
}
