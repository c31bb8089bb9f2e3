//! How late the acknowledgements of a path come although it works.
//!
//! A peer may hold them back for longer than it announced, and links stall for a moment. Taken for
//! silence, each such wait would have everything in flight sent again by another path, for as long
//! as the peer keeps its habit. What one such wait took is allowed to the next ones.

use crate::time::{Duration, Instant};

/// How long a path that was only slow is given more time before it is doubted again: links that
/// stall do so often, and each doubt costs copies.
const MEMORY: Duration = Duration::from_secs(30);

/// An acknowledgement that is later than this, beyond the probe time-out, is no matter of patience:
/// the data is better sent by another path meanwhile.
const MOST: Duration = Duration::from_millis(100);

/// The waits of one path that turned out to be none for a dead one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stalls {
    /// When the path last answered something sent before it was doubted.
    last: Option<Instant>,
    /// The longest recent wait beyond a probe time-out, and when it ended.
    longest: Option<(Duration, Instant)>,
}

impl Stalls {
    /// The path was doubted, and was slow.
    pub(super) fn on_slow(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// Something was acknowledged that had been `waited` for, without a word on the path, where a
    /// probe time-out is `pto`.
    pub(super) fn on_answer(&mut self, now: Instant, waited: Duration, pto: Duration) {
        if waited <= pto || waited > most(pto) {
            return;
        }
        let known = self.longest.filter(|(_, at)| now.since(*at) < MEMORY);
        if known.is_none_or(|(longest, _)| waited * 8 >= longest * 7) {
            let longest = known.map_or(waited, |(longest, _)| longest.max(waited));
            self.longest = Some((longest, now));
        }
    }

    /// Whether a path that was last heard of at `heard` had only been slow shortly before.
    pub(super) fn were_before(&self, heard: Instant) -> bool {
        self.last.is_some_and(|last| heard < last + MEMORY)
    }

    /// How long it may be silent from `heard` on: a probe time-out, or a quarter more than the
    /// longest wait of late.
    pub(super) fn patience(&self, heard: Instant, pto: Duration) -> Duration {
        let known = self.longest.filter(|(_, at)| heard < *at + MEMORY);
        let learnt = known.map_or(Duration::ZERO, |(longest, _)| longest * 5 / 4);
        learnt.min(most(pto)).max(pto)
    }
}

/// The longest silence that is taken for slowness.
pub(super) fn most(pto: Duration) -> Duration {
    pto.saturating_add(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTO: Duration = Duration::from_millis(20);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000) + Duration::from_millis(ms)
    }

    #[test]
    fn what_comes_in_time_earns_no_patience() {
        let mut stalls = Stalls::default();
        stalls.on_answer(at(0), PTO, PTO);
        assert_eq!(stalls.patience(at(1), PTO), PTO);
    }

    #[test]
    fn a_late_answer_earns_the_next_ones_a_quarter_more_than_it_took() {
        let mut stalls = Stalls::default();
        stalls.on_answer(at(0), ms(40), PTO);
        stalls.on_answer(at(1), ms(24), PTO);
        assert_eq!(stalls.patience(at(29_999), PTO), ms(50));
        assert_eq!(stalls.patience(at(30_000), PTO), PTO);
    }

    #[test]
    fn the_longest_wait_is_remembered_while_others_are_nearly_as_long() {
        let mut stalls = Stalls::default();
        stalls.on_answer(at(0), ms(40), PTO);
        stalls.on_answer(at(20_000), ms(36), PTO);
        assert_eq!(stalls.patience(at(49_000), PTO), ms(50));
        stalls.on_answer(at(60_000), ms(24), PTO);
        assert_eq!(stalls.patience(at(61_000), PTO), ms(30));
    }

    #[test]
    fn silence_that_is_worth_going_round_earns_nothing() {
        let mut stalls = Stalls::default();
        stalls.on_answer(at(0), ms(121), PTO);
        assert_eq!(stalls.patience(at(1), PTO), PTO);
        stalls.on_answer(at(0), ms(120), PTO);
        assert_eq!(
            stalls.patience(at(1), PTO),
            ms(120),
            "and no wait is longer"
        );
    }
}
