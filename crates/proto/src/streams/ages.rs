//! When the bytes of a stream were first sent.

use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// Bytes sent within this time of each other share a mark, which has the older time: schedulers
/// compare ages with round-trip times.
const STEP: Duration = Duration::from_millis(1);

/// Marks kept; bytes sent when there are as many share the last one.
const MAX_MARKS: usize = 1024;

/// The times at which ascending offsets were first reached.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// Everything below the offset that no mark before covers was first sent at the time, or up to
    /// [`STEP`] later.
    marks: VecDeque<(u64, Instant)>,
}

impl Ages {
    /// Bytes up to `end` were sent for the first time at `now`. Bytes that a scheduler left out
    /// before and that are sent now count as old as those around them.
    pub(super) fn on_sent(&mut self, end: u64, now: Instant) {
        let is_full = self.marks.len() >= MAX_MARKS;
        match self.marks.back_mut() {
            Some((known, _)) if end <= *known => {}
            Some((known, at)) if is_full || now.since(*at) < STEP => *known = end,
            _ => self.marks.push_back((end, now)),
        }
    }

    /// Everything below `base` was acknowledged.
    pub(super) fn on_base(&mut self, base: u64) {
        while self.marks.front().is_some_and(|(end, _)| *end <= base) {
            self.marks.pop_front();
        }
    }

    /// When the oldest byte that is not acknowledged was first sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.marks.front().map(|(_, at)| *at)
    }

    pub(super) fn clear(&mut self) {
        self.marks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_oldest_byte_is_as_old_as_its_first_sending() {
        let mut ages = Ages::default();
        assert_eq!(ages.oldest(), None);
        ages.on_sent(100, ms(1));
        ages.on_sent(200, ms(5));
        ages.on_sent(150, ms(9));
        assert_eq!(ages.oldest(), Some(ms(1)));
        ages.on_base(99);
        assert_eq!(ages.oldest(), Some(ms(1)));
        ages.on_base(100);
        assert_eq!(ages.oldest(), Some(ms(5)));
        ages.on_base(200);
        assert_eq!(ages.oldest(), None);
    }

    #[test]
    fn marks_are_bounded_however_long_a_gap_stays() {
        let mut ages = Ages::default();
        for step in 1..10_000 {
            ages.on_sent(step * 10, ms(step * 2));
        }
        assert_eq!(ages.marks.len(), MAX_MARKS);
        ages.on_base(99_989);
        assert!(ages.oldest().is_some(), "the newest byte still has a mark");
    }
}
