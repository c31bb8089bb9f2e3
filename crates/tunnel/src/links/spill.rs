//! When links that stand by carry what the others do not.
//!
//! ```text
//! standing by ──more than the threshold for 500 ms──> spilling
//!             <──less than 7/10 of it for 5 s──────
//! ```
//! What all links carry is compared: while the secondary ones help, the others alone would say too
//! little. The way back is slow, since a transfer pauses more often than a link is worth another
//! change.

use std::time::Duration;

/// How long more than the threshold has to be carried.
const LASTS: Duration = Duration::from_millis(500);

/// How long less has to be carried before it is over.
const RESTS: Duration = Duration::from_secs(5);

/// The share of the threshold, in tenths, that counts as less.
const LOW: u64 = 7;

/// Whether a link helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spill {
    helps: bool,
    /// How long traffic has called for the opposite of `helps`.
    lasted: Duration,
}

impl Spill {
    /// Adds the `bytes` that all links carried in `time`. Returns whether a link that helps above
    /// the rate `above`, in bits a second, is to help.
    pub(super) fn carry(&mut self, above: u64, bytes: u64, time: Duration) -> bool {
        let bits = u128::from(bytes) * 8_000_000_000;
        let allowed = u128::from(above) * time.as_nanos();
        let (is_other, long) = if self.helps {
            (bits < allowed * u128::from(LOW) / 10, RESTS)
        } else {
            (bits > allowed, LASTS)
        };
        self.lasted = if is_other {
            self.lasted + time
        } else {
            Duration::ZERO
        };
        if self.lasted >= long {
            self.helps = !self.helps;
            self.lasted = Duration::ZERO;
        }
        self.helps
    }

    /// Whether it helps.
    pub(super) fn helps(self) -> bool {
        self.helps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(250);
    const ABOVE: u64 = 8_000_000;

    /// Carries at so many bits a second for so many ticks; returns the tick at which it turned.
    fn carry(spill: &mut Spill, bits: u64, ticks: u64) -> Option<u64> {
        let before = spill.helps();
        (1..=ticks).find(|_| spill.carry(ABOVE, bits / 8 / 4, TICK) != before)
    }

    #[test]
    fn more_than_the_others_shall_carry_for_half_a_second_brings_help() {
        let mut spill = Spill::default();
        assert_eq!(carry(&mut spill, 7_900_000, 100), None);
        assert_eq!(carry(&mut spill, 9_000_000, 100), Some(2));
    }

    #[test]
    fn a_burst_brings_none() {
        let mut spill = Spill::default();
        for _ in 0..100 {
            assert_eq!(carry(&mut spill, 100_000_000, 1), None);
            assert_eq!(carry(&mut spill, 0, 1), None);
        }
    }

    #[test]
    fn help_goes_on_until_there_was_clearly_less_for_a_while() {
        let mut spill = Spill::default();
        assert_eq!(carry(&mut spill, 9_000_000, 2), Some(2));
        assert_eq!(carry(&mut spill, 6_000_000, 100), None, "hardly less");
        assert_eq!(carry(&mut spill, 0, 10), None, "a pause");
        assert_eq!(carry(&mut spill, 9_000_000, 1), None);
        assert_eq!(carry(&mut spill, 5_000_000, 100), Some(20));
    }
}
