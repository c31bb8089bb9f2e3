//! Random early detection (Floyd and Jacobson, IEEE/ACM Transactions on Networking 1(4), 1993) in
//! bytes, with the gentle slope above the maximum. It drops packets rather than marking them. Small
//! packets are dropped more rarely, in proportion to their size (section 4 of the paper, "byte
//! mode").

use crate::config::{Probability, Red};
use crate::random::{Purpose, Random};

/// Size in bytes at which a packet's drop probability is not scaled down: an Ethernet packet.
const LARGEST_PACKET: u32 = 1500;

/// The state of the algorithm.
#[derive(Debug, Clone)]
pub(crate) struct RedState {
    random: Random,
    /// Average queue length in bytes.
    average: f64,
    /// Packets accepted since the last drop, or since the average passed the minimum: this makes
    /// the distance between two drops uniformly distributed (section 7 of the paper).
    since_drop: u64,
}

impl RedState {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed, Purpose::Red),
            average: 0.0,
            since_drop: 0,
        }
    }

    /// Whether to drop a packet of `size` bytes that arrives at a queue of `bytes`, which before
    /// that was idle for the transmission time of `idle_packets` packets.
    pub(crate) fn drops(&mut self, config: &Red, size: u32, bytes: u64, idle_packets: u64) -> bool {
        let weight = config.weight.as_f64();
        self.average *= power(1.0 - weight, idle_packets);
        self.average += weight * (bytes as f64 - self.average);
        let base = self.base_probability(config);
        if base <= 0.0 {
            self.since_drop = 0;
            return false;
        }
        // A queue far beyond the maximum accepts no packet, however small.
        let share = f64::from(size.min(LARGEST_PACKET)) / f64::from(LARGEST_PACKET);
        let base = if base < 1.0 { base * share } else { base };
        // Spreads drops uniformly rather than geometrically.
        let spread = 1.0 - self.since_drop as f64 * base;
        let probability = if spread > base { base / spread } else { 1.0 };
        let probability = Probability::new(probability).unwrap_or(Probability::ALWAYS);
        let drops = probability.happens(self.random.bits());
        self.since_drop = if drops { 0 } else { self.since_drop + 1 };
        drops
    }

    fn base_probability(&self, config: &Red) -> f64 {
        let (min, max) = (config.min_bytes as f64, config.max_bytes as f64);
        let most = config.max_probability.as_f64();
        if self.average < min {
            0.0
        } else if self.average < max {
            most * (self.average - min) / (max - min)
        } else {
            (most + (1.0 - most) * (self.average - max) / max.max(1.0)).min(1.0)
        }
    }
}

/// `base` to the power of `exponent`, by squaring: the standard library's result may differ between
/// machines.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Red {
        Red {
            min_bytes: 10_000,
            max_bytes: 30_000,
            max_probability: Probability::new(0.1).unwrap(),
            weight: Probability::new(0.002).unwrap(),
            limit_bytes: 100_000,
        }
    }

    /// The long-run share of packets of `size` that is dropped at a queue of constant length.
    fn share_of(size: u32, bytes: u64) -> f64 {
        let mut state = RedState::new(1);
        for _ in 0..10_000 {
            state.drops(&config(), size, bytes, 0);
        }
        (0..20_000)
            .filter(|_| state.drops(&config(), size, bytes, 0))
            .count() as f64
            / 20_000.0
    }

    fn share(bytes: u64) -> f64 {
        share_of(1500, bytes)
    }

    #[test]
    fn a_small_packet_is_dropped_in_proportion_to_its_size() {
        // Halfway between the thresholds, a full packet has a probability of 0.05, one of 150 bytes
        // 0.005.
        for (size, base) in [(1500, 0.05), (750, 0.025), (150, 0.005)] {
            let expected = 2.0 / (1.0 / base + 1.0);
            let found = share_of(size, 20_000);
            assert!((found / expected - 1.0).abs() < 0.2, "{size}: {found}");
        }
        assert!(
            share_of(40, 70_000) > 0.999,
            "beyond twice the maximum all go"
        );
    }

    #[test]
    fn a_short_average_queue_loses_nothing_and_a_long_one_everything() {
        assert!(share(9_000) < f64::EPSILON);
        assert!(share(70_000) > 0.999);
    }

    #[test]
    fn the_share_dropped_grows_with_the_average_queue() {
        // With uniform spacing, base probability p drops one packet in (1 / p + 1) / 2 on average.
        for (bytes, base) in [(15_000, 0.025), (20_000, 0.05), (29_000, 0.095)] {
            let expected = 2.0 / (1.0 / base + 1.0);
            assert!(
                (share(bytes) / expected - 1.0).abs() < 0.15,
                "{bytes}: {}",
                share(bytes)
            );
        }
    }

    #[test]
    fn a_burst_into_an_empty_queue_is_let_through() {
        let mut state = RedState::new(2);
        assert!((0..50).all(|packets| !state.drops(&config(), 1000, packets * 1000, 0)));
    }

    #[test]
    fn an_idle_queue_is_forgotten() {
        let mut state = RedState::new(3);
        for _ in 0..10_000 {
            state.drops(&config(), 1500, 29_000, 0);
        }
        assert!((0..200).any(|_| state.drops(&config(), 1500, 29_000, 0)));
        assert!(!state.drops(&config(), 1500, 0, 10_000));
        assert!(state.average < 1.0);
    }
}
