//! The largest of recent values.

/// A maximum over a sliding window, kept in constant space (Nichols' filter, as in
/// draft-ietf-ccwg-bbr): the largest value, and the largest ones that came after it. Exact unless
/// three larger ones crowd out a fourth, which only ages the answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MaxFilter {
    /// Time and value, the value falling and the time rising.
    best: [(u64, u64); 3],
}

impl MaxFilter {
    /// Adds `value` at `time`, forgets what is older than `length`, and returns the maximum.
    pub(crate) fn update(&mut self, time: u64, value: u64, length: u64) -> u64 {
        let new = (time, value);
        if value >= self.best[0].1 || time.saturating_sub(self.best[2].0) > length {
            self.best = [new; 3];
            return value;
        }
        if value >= self.best[1].1 {
            (self.best[1], self.best[2]) = (new, new);
        } else if value >= self.best[2].1 {
            self.best[2] = new;
        }
        while time.saturating_sub(self.best[0].0) > length {
            self.best = [self.best[1], self.best[2], new];
        }
        self.spread(new, length);
        self.best[0].1
    }

    /// Without this a long run of falling values would keep only stale runners-up.
    fn spread(&mut self, new: (u64, u64), length: u64) {
        let age = new.0.saturating_sub(self.best[0].0);
        if self.best[1].0 == self.best[0].0 && age > length / 4 {
            (self.best[1], self.best[2]) = (new, new);
        } else if self.best[2].0 == self.best[1].0 && age > length / 2 {
            self.best[2] = new;
        }
    }

    /// The maximum when it was last updated.
    pub(crate) fn value(&self) -> u64 {
        self.best[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_lags_by_a_fraction_of_its_window_at_most() {
        const WINDOW: u64 = 10;
        // A pseudo-random walk against the whole window.
        let (mut filter, mut values, mut state) = (MaxFilter::default(), vec![], 1u64);
        for time in 1..2_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            values.push(1_000 + (state >> 54));
            filter.update(time, 1_000 + (state >> 54), WINDOW);
            let newest = values.iter().rev();
            let longest = newest.clone().take(WINDOW as usize + 1).max();
            assert!(filter.value() <= *longest.unwrap(), "{time}: too old");
            let shortest = newest.take(WINDOW as usize / 4).max();
            assert!(filter.value() >= *shortest.unwrap(), "{time}: forgot");
        }
    }

    #[test]
    fn the_maximum_ages_out() {
        let mut filter = MaxFilter::default();
        assert_eq!(filter.update(0, 9, 10), 9);
        assert_eq!(filter.update(5, 3, 10), 9);
        assert_eq!(filter.update(10, 2, 10), 9);
        assert_eq!(filter.update(11, 1, 10), 3);
        assert_eq!(filter.update(30, 1, 10), 1);
    }

    proptest! {
        #[test]
        fn it_never_exceeds_the_true_maximum_nor_falls_below_the_latest(
            steps in prop::collection::vec((0_u64..4, 0_u64..100), 1..200),
        ) {
            let (mut filter, mut time, mut seen) = (MaxFilter::default(), 0, Vec::new());
            for (step, value) in steps {
                time += step;
                seen.push((time, value));
                let got = filter.update(time, value, 10);
                let recent = seen.iter().filter(|(at, _)| time - at <= 10).map(|(_, v)| *v);
                prop_assert!(got <= recent.max().unwrap_or(0));
                prop_assert!(got >= value);
                prop_assert_eq!(got, filter.value());
            }
        }
    }
}
