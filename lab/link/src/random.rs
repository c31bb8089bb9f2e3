//! Random numbers that are the same on every machine, computed with integers only.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng};

/// What a stream of random numbers is for. Each purpose has a stream of its own, so that drawing
/// more numbers for one purpose does not change those of another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Loss = 1,
    Jitter = 2,
    Red = 3,
}

/// A seeded stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose as u64);
        Self(rng)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniformly distributed number from `-spread` to `spread`.
    pub(crate) fn uniform(&mut self, spread: u64) -> i64 {
        let spread = spread.min(i64::MAX as u64 / 2);
        let scaled = (u128::from(self.bits()) * u128::from(2 * spread + 1)) >> 64;
        scaled as i64 - spread as i64
    }

    /// A normally distributed number with mean 0 and standard deviation `deviation`: the sum of
    /// twelve uniform draws. This needs no logarithm, whose last bit differs between machines.
    pub(crate) fn normal(&mut self, deviation: u64) -> i64 {
        let halves = |bits: u64| i128::from(bits >> 32) + i128::from(bits as u32);
        let sum: i128 = (0..6).map(|_| halves(self.bits())).sum();
        let centred = sum - (6 << 32);
        let deviation = i128::from(deviation.min(i64::MAX as u64 / 8));
        ((centred * deviation) >> 32) as i64
    }
}

/// Random bits as a function of a seed and two numbers.
pub(crate) fn hash(seed: u64, a: u64, b: u64) -> u64 {
    mix(mix(mix(seed) ^ a) ^ b)
}

/// The finaliser of `SplitMix64` (Steele, Lea and Flood 2014), a bijection that spreads every bit.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_of_one_seed_have_streams_of_their_own() {
        let first = |purpose| Random::new(1, purpose).bits();
        assert_ne!(first(Purpose::Loss), first(Purpose::Jitter));
        assert_eq!(first(Purpose::Loss), first(Purpose::Loss));
        assert_ne!(first(Purpose::Loss), Random::new(2, Purpose::Loss).bits());
    }

    #[test]
    fn even_draws_stay_within_their_spread_and_reach_both_ends() {
        let mut random = Random::new(3, Purpose::Jitter);
        let draws: Vec<_> = (0..1000).map(|_| random.uniform(5)).collect();
        assert_eq!(draws.iter().min(), Some(&-5));
        assert_eq!(draws.iter().max(), Some(&5));
        assert_eq!(random.uniform(0), 0);
    }

    #[test]
    fn the_bell_curve_has_the_asked_mean_and_deviation() {
        let mut random = Random::new(4, Purpose::Jitter);
        let draws: Vec<_> = (0..20_000)
            .map(|_| random.normal(1_000_000) as f64)
            .collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 30_000.0, "{mean}");
        assert!(
            (variance.sqrt() - 1_000_000.0).abs() < 20_000.0,
            "{}",
            variance.sqrt()
        );
        assert!(draws.iter().all(|x| x.abs() <= 6_000_000.0));
    }
}
