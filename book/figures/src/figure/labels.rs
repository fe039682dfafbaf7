//! Labels beside the ends of lines, none of them over another.

/// Where labels stand that would like to stand at `wanted`, if each is `height` high and all have to be
/// between `top` and `bottom` (their centres): as near to their wishes as they can, in the same order.
///
/// It is a least-squares fit: those that would overlap are pushed together around their common mean.
/// If there are too many for the room, they go on below the bottom, evenly apart.
pub fn apart(wanted: &[f64], height: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    // Without the labels above it, where would each be? These must not decrease.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (rank, label) in order.iter().enumerate() {
        let mut block = (wanted[*label] - rank as f64 * height, 1);
        while let Some(before) = blocks.last().copied().filter(|it| it.0 > block.0) {
            let count = before.1 + block.1;
            let sum = before.0 * before.1 as f64 + block.0 * block.1 as f64;
            block = (sum / count as f64, count);
            blocks.pop();
        }
        blocks.push(block);
    }
    let lowest = bottom - height * wanted.len().saturating_sub(1) as f64;
    let mut places = vec![0.0; wanted.len()];
    let bases = blocks.into_iter().flat_map(|(base, count)| std::iter::repeat_n(base, count));
    for (rank, (label, base)) in order.into_iter().zip(bases).enumerate() {
        places[label] = base.min(lowest).max(top) + rank as f64 * height;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That no two are nearer than `height`, and all are in their room.
    fn assert_apart(wanted: &[f64], height: f64, top: f64, bottom: f64) {
        let mut places = apart(wanted, height, top, bottom);
        places.sort_by(f64::total_cmp);
        for pair in places.windows(2) {
            assert!(pair[1] - pair[0] >= height - 1e-9, "{wanted:?}: {places:?}");
        }
        let is_inside = places.iter().all(|it| (top - 1e-9..=bottom + 1e-9).contains(it));
        assert!(is_inside, "{wanted:?}: {places:?}");
    }

    #[test]
    fn labels_with_room_stand_where_they_want() {
        assert_eq!(apart(&[50.0, 10.0, 30.0], 12.0, 0.0, 100.0), [50.0, 10.0, 30.0]);
        assert_eq!(apart(&[], 12.0, 0.0, 100.0), [0.0; 0]);
    }

    #[test]
    fn labels_that_would_overlap_make_room_for_each_other() {
        assert_eq!(apart(&[50.0, 50.0], 12.0, 0.0, 100.0), [44.0, 56.0]);
        assert_eq!(apart(&[50.0, 52.0, 54.0], 12.0, 0.0, 100.0), [40.0, 52.0, 64.0]);
        assert_eq!(apart(&[0.0, 0.0, 0.0], 10.0, 0.0, 100.0), [0.0, 10.0, 20.0]);
        assert_eq!(apart(&[99.0, 100.0, 20.0], 10.0, 0.0, 100.0), [90.0, 100.0, 20.0]);
    }

    #[test]
    fn whatever_is_wanted_they_are_apart() {
        // A generator of many cases without a dependency: a multiplicative congruence.
        let mut state = 12345_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 % 140.0 - 20.0
        };
        for count in 0..=8 {
            for _ in 0..500 {
                let wanted: Vec<f64> = (0..count).map(|_| next()).collect();
                assert_apart(&wanted, 13.0, 0.0, 100.0);
            }
        }
    }
}
