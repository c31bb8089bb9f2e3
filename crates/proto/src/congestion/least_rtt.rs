//! The least RTT of a path, by which controllers tell that packets queue.

use super::RttView;
use crate::time::Duration;

/// The least RTT measured, since acknowledgements took another way back if they did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeastRtt {
    least: Option<Duration>,
    has_restarted: bool,
}

impl LeastRtt {
    /// Takes the RTT of an acknowledgement. True if the path forgot its least one, so that what was
    /// measured before is no measure any more: acknowledgements return by another way, as they do
    /// once the path is proven to the peer, or all was lost for long (RFC 9002, section 5.2). Once:
    /// a way that changes again and again would hide every queue.
    pub(super) fn observe(&mut self, rtt: &RttView) -> bool {
        let is_forgotten = self.least.is_some_and(|least| least < rtt.min);
        let restarts = is_forgotten && !self.has_restarted;
        if restarts {
            *self = Self {
                least: None,
                has_restarted: true,
            };
        }
        let least = self.least.unwrap_or(rtt.latest);
        self.least = Some(least.min(rtt.latest));
        restarts
    }

    /// The least RTT; before the first sample zero, by which any RTT is long.
    pub(super) fn get(&self) -> Duration {
        self.least.unwrap_or(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(way_ms: u64, latest_ms: u64) -> RttView {
        RttView {
            latest: Duration::from_millis(latest_ms),
            min: Duration::from_millis(way_ms),
            smoothed: Duration::from_millis(latest_ms),
        }
    }

    #[test]
    fn the_least_sample_counts_and_a_longer_way_back_once() {
        let mut least = LeastRtt::default();
        assert_eq!(least.get(), Duration::ZERO);
        for (way_ms, latest_ms, restarts, expected_ms) in [
            (264, 270, false, 270),
            (264, 264, false, 264),
            (264, 300, false, 264),
            (461, 470, true, 470),
            (461, 461, false, 461),
            (600, 600, false, 461),
            (100, 100, false, 100),
        ] {
            assert_eq!(
                least.observe(&by(way_ms, latest_ms)),
                restarts,
                "{latest_ms}"
            );
            assert_eq!(least.get(), Duration::from_millis(expected_ms));
        }
    }
}
