//! A priority that holds while little is carried: who types gets ahead of who copies, even where
//! both come by the same port.

use std::time::Duration;

/// Bytes that may be carried at once.
const BURST: u64 = 256 << 10;
/// Bytes a second that may be carried for long.
const RATE: u64 = 128 << 10;

/// Counts what a flow carries in one direction.
#[derive(Debug, Clone)]
pub struct Light {
    /// What may be carried now, in bytes.
    credit: u64,
    /// When that was.
    since: Duration,
    carries_little: bool,
}

impl Default for Light {
    fn default() -> Self {
        Self {
            credit: BURST,
            since: Duration::ZERO,
            carries_little: true,
        }
    }
}

impl Light {
    /// Whether the flow carries little, once it carries so many bytes more. `now` is counted from
    /// any time.
    pub fn carry(&mut self, bytes: usize, now: Duration) -> bool {
        let passed = now.saturating_sub(self.since);
        let earned = (passed.as_secs_f64() * RATE as f64) as u64;
        if earned > 0 {
            self.credit = self.credit.saturating_add(earned).min(BURST);
            self.since = now;
        }
        self.credit = self.credit.saturating_sub(bytes as u64);
        // Half of the burst is earned anew first: it does not go back and forth.
        self.carries_little = self.credit >= if self.carries_little { 1 } else { BURST / 2 };
        self.carries_little
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_types_carries_little_and_who_copies_is_not_until_it_rests() {
        let mut light = Light::default();
        let at = Duration::from_millis;
        assert!((0..5000).all(|n| light.carry(100, at(n * 10))), "typing");
        let copied = (0..64).map(|n| light.carry(16 << 10, at(50_000 + n)));
        assert!(!copied.collect::<Vec<_>>().pop().unwrap());
        assert!(!light.carry(100, at(50_500)), "it has hardly rested");
        assert!(light.carry(100, at(52_000)));
    }
}
