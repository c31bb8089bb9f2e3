//! How often a path may follow its peer to new addresses.

use crate::time::{Duration, Instant};

/// Moves a path may make in a row. NATs forget a mapping once in a while and hosts change networks
/// once in a while; even both at once fit.
const BURST: u32 = 8;

/// One more is allowed after this long.
const INTERVAL: Duration = Duration::from_secs(1);

/// What is left of the moves to addresses a path was not at before. Each costs a route, with a
/// controller and a validation of its own, and datagrams towards somebody who may not have asked
/// for them; a peer could ask for one with every packet.
#[derive(Debug, Clone)]
pub(crate) struct Moves {
    left: u32,
    since: Instant,
}

impl Moves {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            since: now,
        }
    }

    /// Whether the path may move now; counts the move if so.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let earned = now.since(self.since).as_nanos() / INTERVAL.as_nanos();
        let earned = u32::try_from(earned).map_or(BURST, |earned| earned.min(BURST));
        self.left += earned;
        self.since += INTERVAL * earned;
        if self.left >= BURST {
            (self.left, self.since) = (BURST, now);
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000) + Duration::from_millis(ms)
    }

    #[test]
    fn a_path_moves_a_few_times_at_once_and_then_once_a_second() {
        let mut moves = Moves::new(at(0));
        assert_eq!((0..100).filter(|_| moves.take(at(0))).count(), 8);
        assert!(!moves.take(at(999)));
        assert!(moves.take(at(1000)));
        assert!(!moves.take(at(1999)), "fractions are not lost and not won");
        assert!(moves.take(at(2000)));
        let in_a_minute = (2001..62_000).filter(|ms| moves.take(at(*ms))).count();
        assert_eq!(in_a_minute, 59);
    }

    #[test]
    fn rest_earns_no_more_than_the_first_moves() {
        let mut moves = Moves::new(at(0));
        assert!(moves.take(at(0)));
        let later = at(1_000_000_000);
        assert_eq!((0..100).filter(|_| moves.take(later)).count(), 8);
    }
}
