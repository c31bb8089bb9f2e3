//! A priority that holds while little is carried: who types gets ahead of who copies, even where
//! both come by the same port.

use super::Treatment;
use std::time::Duration;

/// Bytes that may be carried at once.
const BURST: u64 = 256 << 10;
/// Bytes a second that may be carried for long.
const RATE: u64 = 128 << 10;

/// Counts what a flow carries in one direction.
#[derive(Debug, Clone)]
struct Light {
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
    /// Counts `bytes`, and returns whether the flow still carries little. `now` is counted from any
    /// time.
    fn carry(&mut self, bytes: usize, now: Duration) -> bool {
        let passed = now.saturating_sub(self.since);
        let earned = (passed.as_secs_f64() * RATE as f64) as u64;
        if earned > 0 {
            self.credit = self.credit.saturating_add(earned).min(BURST);
            self.since = now;
        }
        self.credit = self.credit.saturating_sub(bytes as u64);
        // Half of the burst has to be earned anew first, so that the answer does not flap.
        self.carries_little = self.credit >= if self.carries_little { 1 } else { BURST / 2 };
        self.carries_little
    }
}

/// The priority of a flow whose class has it only while the flow carries little.
#[derive(Debug, Clone)]
pub struct LightPriority {
    light: Light,
    priority: i32,
}

impl LightPriority {
    /// The priority of a flow treated like this; `None` if its priority never changes.
    pub fn of(treatment: &Treatment) -> Option<Self> {
        treatment.light.then(|| Self {
            light: Light::default(),
            priority: treatment.priority,
        })
    }

    /// Counts `bytes`, and returns the flow's new priority if that changes it. `now` is counted
    /// from any time.
    pub fn carry(&mut self, bytes: usize, now: Duration) -> Option<i32> {
        let was_light = self.light.carries_little;
        let is_light = self.light.carry(bytes, now);
        (is_light != was_light).then_some(if is_light { self.priority } else { 0 })
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

    #[test]
    fn a_priority_goes_with_the_first_copy_and_comes_back_with_a_rest() {
        let treatment = Treatment {
            priority: 2,
            ..Treatment::default()
        };
        assert!(LightPriority::of(&treatment).is_none());
        let light = Treatment {
            light: true,
            ..treatment
        };
        let mut priority = LightPriority::of(&light).expect("it is light");
        let at = Duration::from_millis;
        assert_eq!(priority.carry(100, at(0)), None);
        assert_eq!(priority.carry(1 << 20, at(1)), Some(0));
        assert_eq!(priority.carry(1 << 20, at(2)), None);
        assert_eq!(priority.carry(100, at(5000)), Some(2));
    }
}
