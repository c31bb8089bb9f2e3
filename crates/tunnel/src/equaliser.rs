//! Gives all paths the same delay, for receivers that cannot restore the order of packets.
//!
//! Each item of a path is delayed by as much as the path is faster than the slowest one, either
//! before it is sent or after it has arrived. This takes the advantage from the fast paths and
//! lengthens their control loops; where the far end can [re-sequence](crate::resequencer), do that
//! instead.

use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::time::{Duration, Instant};
use anabranch_wire::PathId;
use std::collections::BTreeMap;

/// The default limit of the delay of an item.
pub const LONGEST_DELAY: Duration = Duration::from_millis(100);

/// Holds items back so that all paths have the same delay.
#[derive(Debug)]
pub struct Equaliser<T> {
    longest: Duration,
    capacity: usize,
    /// Forward delay of each path in use relative to the others, in microseconds.
    delays: BTreeMap<PathId, i64>,
    /// When the last item of each path leaves: a path keeps its order even if its delay shrinks.
    last: BTreeMap<PathId, Instant>,
    waiting: BTreeMap<(Instant, u64), T>,
    sequence: u64,
    dropped: u64,
}

impl<T> Equaliser<T> {
    /// Holds at most `capacity` items, each for at most `longest`; see [`LONGEST_DELAY`].
    pub fn new(longest: Duration, capacity: usize) -> Self {
        Self {
            longest,
            capacity: capacity.max(1),
            delays: BTreeMap::new(),
            last: BTreeMap::new(),
            waiting: BTreeMap::new(),
            sequence: 0,
            dropped: 0,
        }
    }

    /// Sets the forward delay of a path relative to the others, in microseconds; `None` for a path
    /// that is gone or does not answer, so that no other path waits for it.
    pub fn set_path_delay(&mut self, path: PathId, delay_us: Option<i64>) {
        let Some(delay) = delay_us else {
            self.delays.remove(&path);
            self.last.remove(&path);
            return;
        };
        if self.delays.len() < MAX_OPEN_PATHS || self.delays.contains_key(&path) {
            self.delays.insert(path, delay);
        }
    }

    /// How long items of a path are held; zero if its delay is not known.
    pub fn delay_of(&self, path: PathId) -> Duration {
        let own = self.delays.get(&path);
        let slowest = self.delays.values().max();
        let (Some(own), Some(slowest)) = (own, slowest) else {
            return Duration::ZERO;
        };
        let lag = u64::try_from(slowest.saturating_sub(*own)).unwrap_or(0);
        Duration::from_micros(lag).min(self.longest)
    }

    /// Takes an item of a path. If too many are waiting, the item is dropped.
    pub fn push(&mut self, now: Instant, path: PathId, item: T) {
        if self.waiting.len() >= self.capacity {
            self.dropped += 1;
            return;
        }
        let mut at = now + self.delay_of(path);
        if self.delays.contains_key(&path) {
            let last = self.last.entry(path).or_default();
            at = at.max(*last);
            *last = at;
        }
        self.sequence += 1;
        self.waiting.insert((at, self.sequence), item);
    }

    /// When the next item is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next item that is due.
    pub fn poll(&mut self, now: Instant) -> Option<T> {
        let entry = self.waiting.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// Items dropped because too many were waiting.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);

    fn ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn the_fast_path_waits_for_the_difference() {
        let mut equaliser = Equaliser::new(LONGEST_DELAY, 10);
        equaliser.set_path_delay(A, Some(10_000));
        equaliser.set_path_delay(B, Some(50_000));
        equaliser.push(ms(0), A, "fast");
        equaliser.push(ms(0), B, "slow");
        assert_eq!(equaliser.poll(ms(0)), Some("slow"));
        assert_eq!(equaliser.deadline(), Some(ms(40)));
        assert_eq!(equaliser.poll(ms(39)), None);
        assert_eq!(equaliser.poll(ms(40)), Some("fast"));
        equaliser.set_path_delay(B, None);
        assert_eq!(equaliser.delay_of(A), Duration::ZERO, "it failed");
        equaliser.set_path_delay(B, Some(1_000_000));
        assert_eq!(equaliser.delay_of(A), LONGEST_DELAY);
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let mut equaliser = Equaliser::new(LONGEST_DELAY, 1);
        equaliser.push(ms(0), A, 1);
        equaliser.push(ms(0), A, 2);
        assert_eq!((equaliser.poll(ms(0)), equaliser.dropped()), (Some(1), 1));
        assert_eq!(equaliser.deadline(), None);
    }

    proptest! {
        #[test]
        fn a_path_keeps_its_order_and_nothing_waits_too_long(
            steps in prop::collection::vec((0..3u32, 0..200_000i64, 0..20u64), 1..100),
        ) {
            let mut equaliser = Equaliser::new(LONGEST_DELAY, 1000);
            let (mut now, mut out) = (0, Vec::new());
            for (number, (path, delay, wait)) in steps.iter().enumerate() {
                now += wait;
                equaliser.set_path_delay(PathId(number as u32 % 3), Some(*delay));
                equaliser.push(ms(now), PathId(*path), (*path, number, ms(now)));
                while let Some(at) = equaliser.deadline().filter(|at| *at <= ms(now)) {
                    out.extend(equaliser.poll(at).map(|item| (at, item)));
                }
            }
            while let Some(at) = equaliser.deadline() {
                out.extend(equaliser.poll(at).map(|item| (at, item)));
            }
            prop_assert_eq!(out.len(), steps.len());
            let mut last = [None; 3];
            for (at, (path, number, pushed)) in out {
                prop_assert!(at.since(pushed) <= LONGEST_DELAY);
                let last = &mut last[path as usize];
                prop_assert!(*last < Some(number), "path {} sends {} too early", path, number);
                *last = Some(number);
            }
        }
    }
}
