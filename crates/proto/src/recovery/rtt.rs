//! RTT estimation (RFC 9002, section 5).

use super::loss::GRANULARITY;
use crate::congestion::RttView;
use crate::time::{Duration, Instant};

/// The RTT assumed before anything is measured (RFC 9002, section 6.2.2).
#[cfg(test)]
const INITIAL_RTT: Duration = Duration::from_millis(333);

/// Samples below this count as this much: an RTT of zero would read as unknown, and rates divide by
/// it.
const SMALLEST_SAMPLE: Duration = Duration::from_micros(1);

/// The RTT estimates of one route.
#[derive(Debug, Clone)]
pub struct RttEstimator {
    latest: Duration,
    min: Duration,
    smoothed: Duration,
    rttvar: Duration,
    /// What follows from `smoothed` and `rttvar`: asked for much more often than they change.
    pto_base: Duration,
    first_sample: Option<Instant>,
    /// The next sample replaces `min` whatever its size.
    min_restarts: bool,
}

impl RttEstimator {
    /// An estimator that assumes `initial` until the first sample.
    pub fn new(initial: Duration) -> Self {
        let initial = initial.max(SMALLEST_SAMPLE);
        Self {
            latest: Duration::ZERO,
            min: Duration::ZERO,
            smoothed: initial,
            rttvar: initial / 2,
            pto_base: pto_base(initial, initial / 2),
            first_sample: None,
            min_restarts: false,
        }
    }

    /// Takes a sample: `latest` from sending a packet until its acknowledgement arrived at `now`.
    ///
    /// `ack_delay` is what the peer reported. The caller passes zero for Initial packets and caps
    /// it by the peer's `max_ack_delay` once the handshake is confirmed (RFC 9002, section 5.3).
    pub fn on_sample(&mut self, latest: Duration, ack_delay: Duration, now: Instant) {
        let latest = latest.max(SMALLEST_SAMPLE);
        self.latest = latest;
        if self.first_sample.is_none() {
            self.first_sample = Some(now);
            self.min = latest;
            self.smoothed = latest;
            self.rttvar = latest / 2;
            self.min_restarts = false;
            self.pto_base = pto_base(self.smoothed, self.rttvar);
            return;
        }
        self.min = if self.min_restarts {
            latest
        } else {
            self.min.min(latest)
        };
        self.min_restarts = false;
        // A delay that would push the sample below the minimum is not believed.
        let undelayed = latest.saturating_sub(ack_delay);
        let adjusted = if undelayed >= self.min {
            undelayed
        } else {
            latest
        };
        self.rttvar = (self.rttvar * 3 + self.smoothed.abs_diff(adjusted)) / 4;
        self.smoothed = (self.smoothed * 7 + adjusted) / 8;
        self.pto_base = pto_base(self.smoothed, self.rttvar);
    }

    /// Starts from `rtt` instead of the initial assumption, for instance because path validation
    /// took that long. Not a sample; ignored once there is one.
    pub fn seed(&mut self, rtt: Duration) {
        if self.first_sample.is_none() {
            self.smoothed = rtt.max(SMALLEST_SAMPLE);
            self.rttvar = self.smoothed / 2;
            self.pto_base = pto_base(self.smoothed, self.rttvar);
        }
    }

    /// Forgets the minimum: after persistent congestion (RFC 9002, section 5.2), or when the peer's
    /// acknowledgements take another way back. The newest sample stands in until the next one.
    pub fn restart_min(&mut self) {
        self.min = self.latest;
        self.min_restarts = true;
    }

    /// The moving average, or the assumption it starts from.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// The mean deviation.
    pub fn rttvar(&self) -> Duration {
        self.rttvar
    }

    /// The smallest sample; zero before the first.
    pub fn min(&self) -> Duration {
        self.min
    }

    /// The latest sample, acknowledgement delay included; zero before the first.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// Whether anything was measured.
    pub fn has_sample(&self) -> bool {
        self.first_sample.is_some()
    }

    /// When the first sample was taken; packets sent before it prove no persistent congestion.
    pub fn first_sample(&self) -> Option<Instant> {
        self.first_sample
    }

    /// The probe time-out without the peer's `max_ack_delay` and without back-off
    /// (RFC 9002, section 6.2.1).
    pub fn pto_base(&self) -> Duration {
        self.pto_base
    }

    /// What a congestion controller sees.
    pub fn view(&self) -> RttView {
        RttView {
            latest: self.latest,
            min: self.min,
            smoothed: self.smoothed,
        }
    }
}

fn pto_base(smoothed: Duration, rttvar: Duration) -> Duration {
    smoothed + (rttvar * 4).max(GRANULARITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn sampled(samples: &[(u64, u64)]) -> RttEstimator {
        let mut rtt = RttEstimator::new(INITIAL_RTT);
        for (at, (latest, delay)) in samples.iter().enumerate() {
            rtt.on_sample(ms(*latest), ms(*delay), Instant::from_nanos(at as u64));
        }
        rtt
    }

    #[test]
    fn before_a_sample_the_pto_comes_from_the_initial_rtt() {
        let rtt = RttEstimator::new(INITIAL_RTT);
        assert_eq!(rtt.pto_base(), Duration::from_millis(333 + 4 * 333 / 2));
        assert!(!rtt.has_sample());
    }

    #[test]
    fn the_first_sample_sets_everything_and_ignores_the_delay() {
        let rtt = sampled(&[(100, 20)]);
        assert_eq!(
            (rtt.smoothed(), rtt.rttvar(), rtt.min()),
            (ms(100), ms(50), ms(100))
        );
        assert_eq!(rtt.pto_base(), ms(300));
        assert_eq!(rtt.first_sample(), Some(Instant::ZERO));
    }

    #[test]
    fn later_samples_move_the_average_by_an_eighth_and_the_deviation_by_a_quarter() {
        // adjusted 180 - 20 = 160; rttvar = (3 * 50 + 60) / 4; smoothed = (7 * 100 + 160) / 8
        let rtt = sampled(&[(100, 0), (180, 20)]);
        assert_eq!(rtt.rttvar(), Duration::from_micros(52_500));
        assert_eq!(rtt.smoothed(), Duration::from_micros(107_500));
        assert_eq!((rtt.latest(), rtt.min()), (ms(180), ms(100)));
    }

    #[test]
    fn a_delay_that_would_undercut_the_minimum_is_not_subtracted() {
        // 110 - 20 is below 100, so the sample counts in full: smoothed = (700 + 110) / 8
        let rtt = sampled(&[(100, 0), (110, 20)]);
        assert_eq!(rtt.smoothed(), Duration::from_micros(101_250));
        // exactly the minimum is still believed: smoothed stays 100
        assert_eq!(sampled(&[(100, 0), (120, 20)]).smoothed(), ms(100));
    }

    #[test]
    fn a_restarted_minimum_is_the_newest_sample_until_the_next_one_replaces_it() {
        let mut rtt = sampled(&[(50, 0), (200, 0)]);
        rtt.restart_min();
        assert_eq!(rtt.min(), ms(200));
        rtt.on_sample(ms(300), ms(0), Instant::ZERO);
        assert_eq!(rtt.min(), ms(300));
        rtt.on_sample(ms(310), ms(0), Instant::ZERO);
        assert_eq!(rtt.min(), ms(300));
    }

    #[test]
    fn a_seed_counts_only_before_the_first_sample() {
        let mut rtt = RttEstimator::new(INITIAL_RTT);
        rtt.seed(ms(40));
        assert_eq!(
            (rtt.smoothed(), rtt.pto_base(), rtt.has_sample()),
            (ms(40), ms(120), false)
        );
        rtt.on_sample(ms(60), ms(0), Instant::ZERO);
        rtt.seed(ms(10));
        assert_eq!(rtt.smoothed(), ms(60));
    }

    #[test]
    fn the_pto_adds_at_least_the_granularity() {
        let mut rtt = sampled(&[(10, 0)]);
        for _ in 0..200 {
            rtt.on_sample(ms(10), ms(0), Instant::ZERO);
        }
        assert_eq!(rtt.pto_base(), ms(11));
    }

    #[test]
    fn an_rtt_of_zero_never_reads_as_unknown() {
        let rtt = sampled(&[(0, 0), (0, 0)]);
        assert!(rtt.smoothed() > Duration::ZERO && rtt.min() > Duration::ZERO);
    }
}
