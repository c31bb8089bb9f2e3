//! How late packets leave, as a histogram of bounded size.

use std::time::Duration;

/// Width of the fine steps, which end at [`COARSE`].
const FINE_STEP_NS: u64 = 5_000;
/// Steps of each width; the last coarse one holds everything later.
const STEPS: usize = 1000;
/// Width of the coarse steps, which begin where the fine ones end.
const COARSE_STEP_NS: u64 = 1_000_000;
/// Where the coarse steps begin.
const COARSE: u64 = FINE_STEP_NS * STEPS as u64;

/// Counts of packets by lateness: to 5 µs below 5 ms, to 1 ms below 1 s.
#[derive(Debug, Clone)]
pub(crate) struct Lateness {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            counts: vec![0; 2 * STEPS],
            total: 0,
            max_ns: 0,
        }
    }
}

impl Lateness {
    pub(crate) fn record(&mut self, late_ns: u64) {
        let step = if late_ns < COARSE {
            (late_ns / FINE_STEP_NS) as usize
        } else {
            let coarse = ((late_ns - COARSE) / COARSE_STEP_NS) as usize;
            STEPS + coarse.min(STEPS - 1)
        };
        self.counts[step] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(late_ns);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The lateness that this share of packets does not exceed, rounded up to a step; zero without
    /// packets.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Duration::from_nanos(end_of(step).min(self.max_ns));
            }
        }
        Duration::ZERO
    }

    pub(crate) fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }
}

fn end_of(step: usize) -> u64 {
    let step = step as u64 + 1;
    let coarse = step.saturating_sub(STEPS as u64);
    (step - coarse) * FINE_STEP_NS + coarse * COARSE_STEP_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.99), Duration::ZERO);
        for packet in 0..100 {
            lateness.record(packet * 10_000);
        }
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(495));
        assert_eq!(lateness.quantile(1.0), Duration::from_micros(990));
        assert_eq!(lateness.max(), Duration::from_micros(990));
    }

    #[test]
    fn the_latest_are_counted_together_and_remembered() {
        let mut lateness = Lateness::default();
        lateness.record(7_200_000);
        lateness.record(3_600_000_000_000);
        assert_eq!(lateness.quantile(0.5), Duration::from_millis(8));
        assert_eq!(lateness.max(), Duration::from_secs(3600));
        let mut sum = Lateness::default();
        sum.add(&lateness);
        assert_eq!(sum.quantile(0.5), Duration::from_millis(8));
    }
}
