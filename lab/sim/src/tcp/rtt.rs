//! Round-trip times and the retransmission time-out (RFC 6298).

use std::time::Duration;

/// The time-out before the first sample (RFC 6298, section 2.1).
const INITIAL: Duration = Duration::from_secs(1);

/// The longest time-out (RFC 6298, section 2.5).
const LONGEST: Duration = Duration::from_secs(60);

/// The resolution of time-outs: G of RFC 6298.
const GRANULARITY: Duration = Duration::from_millis(1);

/// The estimates of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    pub(super) latest: Duration,
    pub(super) min: Duration,
    shortest_timeout: Duration,
    /// Consecutive time-outs.
    backoff: u32,
}

impl Rtt {
    pub(super) fn new(shortest_timeout: Duration) -> Self {
        Self {
            smoothed: None,
            variation: Duration::ZERO,
            latest: Duration::ZERO,
            min: Duration::MAX,
            shortest_timeout,
            backoff: 0,
        }
    }

    /// Takes a sample from an acknowledged segment that was sent only once.
    pub(super) fn sample(&mut self, sample: Duration) {
        self.latest = sample;
        self.min = self.min.min(sample);
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// The smoothed RTT, or 0 before the first sample.
    pub(super) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// How long to wait for an acknowledgement.
    pub(super) fn timeout(&self) -> Duration {
        let base = self.smoothed.map_or(INITIAL, |smoothed| {
            (smoothed + (self.variation * 4).max(GRANULARITY)).max(self.shortest_timeout)
        });
        (base * (1 << self.backoff.min(10))).min(LONGEST)
    }

    /// The time-out expired.
    pub(super) fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// New data was acknowledged.
    pub(super) fn forget_timeouts(&mut self) {
        self.backoff = 0;
    }

    /// Consecutive time-outs.
    pub(super) fn timeouts(&self) -> u32 {
        self.backoff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let ms = Duration::from_millis;
        let mut rtt = Rtt::new(ms(200));
        assert_eq!(rtt.timeout(), ms(1000));
        rtt.sample(ms(100));
        assert_eq!((rtt.smoothed(), rtt.timeout()), (ms(100), ms(300)));
        rtt.sample(ms(180));
        // variation (3 * 50 + 80) / 4 = 57.5, smoothed (7 * 100 + 180) / 8 = 110.
        assert_eq!((rtt.smoothed(), rtt.timeout()), (ms(110), ms(340)));
        rtt.back_off();
        assert_eq!(rtt.timeout(), ms(680));
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), ms(60_000));
        rtt.forget_timeouts();
        for _ in 0..100 {
            rtt.sample(ms(20));
        }
        assert_eq!(rtt.timeout(), ms(200), "never below the shortest");
    }
}
