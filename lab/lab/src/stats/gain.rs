//! The gain of several paths over the best of them alone.

/// The aggregation gain of a goodput over the goodputs of each path alone, all in the same unit:
///
/// ```text
/// goodput >= best   (goodput - best) / (sum - best)    1 with all that the paths have
/// goodput <  best   (goodput - best) / best           -1 with nothing
/// ```
///
/// 0 is what the best path alone achieves. `None` if there is nothing to gain: with fewer than two
/// paths that have a goodput, or none at all.
pub fn aggregation_gain(goodput: f64, singles: &[f64]) -> Option<f64> {
    let sum: f64 = singles.iter().sum();
    let best = singles.iter().copied().fold(0.0, f64::max);
    let scale = if goodput >= best { sum - best } else { best };
    (scale > 0.0).then(|| (goodput - best) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_path_is_nothing_all_of_both_is_one_and_no_goodput_is_minus_one() {
        let of = |goodput| aggregation_gain(goodput, &[10.0, 30.0]);
        assert_eq!(of(30.0), Some(0.0));
        assert_eq!(of(40.0), Some(1.0));
        assert_eq!(of(35.0), Some(0.5));
        assert_eq!(of(15.0), Some(-0.5));
        assert_eq!(of(0.0), Some(-1.0));
    }

    #[test]
    fn nothing_is_gained_from_one_path() {
        assert_eq!(aggregation_gain(30.0, &[30.0]), None);
        assert_eq!(aggregation_gain(0.0, &[]), None);
    }
}
