//! Drops duplicates.

/// A window of numbers, with those already seen; everything below the window counts as seen.
///
/// The packet number spaces of QUIC drop duplicate packets, but not contents that were sent twice
/// on purpose.
#[derive(Debug, Clone)]
pub struct DuplicateFilter {
    /// One bit for each number of the window: `number % span`.
    bits: Vec<u64>,
    span: u64,
    /// The window ends before this number.
    end: u64,
}

impl DuplicateFilter {
    /// A filter that distinguishes the last `span` numbers, rounded up to a multiple of 64 and at
    /// least 64. This should exceed the capacity of the resequencer, and the distance by which
    /// copies may lag behind.
    pub fn new(span: usize) -> Self {
        let words = span.div_ceil(64).max(1);
        Self {
            bits: vec![0; words],
            span: words as u64 * 64,
            end: 0,
        }
    }

    /// Whether the number was seen before, or is too old to tell.
    pub fn is_seen(&self, number: u64) -> bool {
        if number >= self.end {
            return false;
        }
        let too_old = self.end - number > self.span;
        too_old || self.bits[self.word(number)] & bit(number) != 0
    }

    /// Records a number; returns whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        if self.is_seen(number) {
            return false;
        }
        if number >= self.end {
            self.advance(number);
        }
        let word = self.word(number);
        self.bits[word] |= bit(number);
        true
    }

    /// Moves the window so that it ends with `number`, and clears the numbers that enter it.
    fn advance(&mut self, number: u64) {
        if number - self.end >= self.span {
            self.bits.fill(0);
        } else {
            for entering in self.end..=number {
                let word = self.word(entering);
                self.bits[word] &= !bit(entering);
            }
        }
        // No datagram is ever given the largest possible number.
        self.end = number.saturating_add(1);
    }

    fn word(&self, number: u64) -> usize {
        (number % self.span / 64) as usize
    }
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_first_copy_passes_whatever_the_order() {
        let mut filter = DuplicateFilter::new(64);
        let passed = [5, 5, 4, 5].map(|number| filter.insert(number));
        assert_eq!(passed, [true, false, true, false]);
    }

    #[test]
    fn what_is_older_than_the_window_counts_as_seen() {
        let mut filter = DuplicateFilter::new(64);
        assert!(filter.insert(100));
        assert!(filter.is_seen(36));
        assert!(!filter.is_seen(37));
        assert!(filter.insert(10_000));
        assert!(!filter.is_seen(9_990));
        assert!(filter.is_seen(100));
    }

    proptest! {
        #[test]
        fn a_number_passes_once_as_long_as_the_window_lasts(
            steps in prop::collection::vec((0..200u64, 0..4u8), 1..300),
        ) {
            let mut filter = DuplicateFilter::new(128);
            let mut seen = BTreeSet::new();
            let (mut base, mut end) = (0u64, 0u64);
            for (offset, leap) in steps {
                base += u64::from(leap) * 40;
                let number = (base + offset).saturating_sub(100);
                let is_new = number + 128 >= end && !seen.contains(&number);
                prop_assert_eq!(filter.insert(number), is_new, "{}", number);
                seen.insert(number);
                end = end.max(number + 1);
            }
        }
    }
}
