//! Datagrams under way that are sent again when they are lost, as long as that is in time.
//!
//! ```text
//! written ──> kept under a number that the record of its packet has
//!               acknowledged                    ──> forgotten
//!               lost, or its path went silent   ──> queued again, before what came after it
//!               too late for its order          ──> forgotten
//! ```

use super::OVERHEAD;
use super::outgoing::Item;
use crate::time::Instant;
use std::collections::VecDeque;
use std::num::NonZeroU64;

/// What is under way and worth sending again.
#[derive(Debug)]
pub(super) struct Repairs {
    /// In the order in which they were sent, from number `first` on.
    kept: VecDeque<Option<Item>>,
    first: u64,
    cost: usize,
    limit: usize,
}

impl Repairs {
    /// For datagrams that cost no more than this together. Those beyond are not sent again.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            first: 1,
            cost: 0,
            limit,
        }
    }

    /// Keeps one that was sent; returns its number, or `None` if it is not worth it.
    pub(super) fn keep(&mut self, now: Instant, mut item: Item) -> Option<NonZeroU64> {
        let skew = item.options.max_skew.filter(|_| item.options.repair)?;
        item.until.get_or_insert(now + skew);
        self.forget_old(now);
        let cost = item.data.len() + OVERHEAD;
        if self.cost + cost > self.limit {
            return None;
        }
        self.cost += cost;
        self.kept.push_back(Some(item));
        NonZeroU64::new(self.first + self.kept.len() as u64 - 1)
    }

    /// Takes what a number stands for, if it is still there.
    pub(super) fn take(&mut self, number: NonZeroU64) -> Option<Item> {
        let at = number.get().checked_sub(self.first)?;
        let item = self.kept.get_mut(usize::try_from(at).ok()?)?.take()?;
        self.cost -= item.data.len() + OVERHEAD;
        self.skip_taken();
        Some(item)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.first += self.kept.len() as u64;
        self.kept = VecDeque::new();
        self.cost = 0;
    }

    fn forget_old(&mut self, now: Instant) {
        let is_old = |item: &Item| item.until.is_some_and(|until| until < now);
        while let Some(item) = self
            .kept
            .front_mut()
            .and_then(|kept| kept.take_if(|item| is_old(item)))
        {
            self.cost -= item.data.len() + OVERHEAD;
            self.skip_taken();
        }
    }

    fn skip_taken(&mut self) {
        while self.kept.front().is_some_and(Option::is_none) {
            self.kept.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::DatagramOptions;
    use super::*;
    use crate::time::Duration;
    use bytes::Bytes;

    fn ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn item(turn: u64, skew_ms: u64) -> Item {
        let options = DatagramOptions {
            max_skew: Some(Duration::from_millis(skew_ms)),
            repair: true,
            ..DatagramOptions::default()
        };
        Item {
            data: Bytes::from(vec![0; 100]),
            options,
            turn,
            until: None,
        }
    }

    #[test]
    fn what_is_kept_is_found_once_by_its_number() {
        let mut repairs = Repairs::new(10_000);
        let numbers: Vec<_> = (0..5)
            .map(|turn| repairs.keep(ms(0), item(turn, 50)).unwrap())
            .collect();
        for turn in [3, 0, 1, 4] {
            let found = repairs.take(numbers[turn]).unwrap();
            assert_eq!((found.turn, found.until), (turn as u64, Some(ms(50))));
            assert!(repairs.take(numbers[turn]).is_none());
        }
        assert_eq!(repairs.kept.len(), 3, "what is behind the oldest");
        repairs.take(numbers[2]).unwrap();
        assert_eq!((repairs.kept.len(), repairs.cost), (0, 0));
    }

    #[test]
    fn what_is_too_old_or_too_much_or_has_no_order_is_not_kept() {
        let mut repairs = Repairs::new(3 * (100 + OVERHEAD));
        let old: Vec<_> = (0..3)
            .map(|turn| repairs.keep(ms(0), item(turn, 50)))
            .collect();
        assert!(old.iter().all(Option::is_some));
        assert_eq!(repairs.keep(ms(50), item(3, 50)), None, "no room");
        assert!(repairs.keep(ms(51), item(4, 50)).is_some());
        assert!(repairs.take(old[0].unwrap()).is_none(), "too old");
        let mut any_time = item(5, 50);
        any_time.options.max_skew = None;
        assert_eq!(repairs.keep(ms(51), any_time), None);
    }

    #[test]
    fn the_time_of_what_is_sent_again_goes_on() {
        let mut repairs = Repairs::new(10_000);
        let number = repairs.keep(ms(0), item(0, 50)).unwrap();
        let again = repairs.take(number).unwrap();
        let number = repairs.keep(ms(40), again).unwrap();
        assert_eq!(repairs.take(number).unwrap().until, Some(ms(50)));
    }
}
