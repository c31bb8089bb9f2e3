//! The engine's only source of randomness.

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng as _, SeedableRng};
use std::fmt;

/// A seeded generator: the same seed yields the same connection, byte for byte.
///
/// A driver seeds it from the operating system, so that connection IDs and challenges cannot be
/// guessed (`ChaCha` is a cryptographic generator); a simulator seeds it from the scenario.
///
/// Parts of a connection have generators of their own and most draw from them rarely, so it keeps
/// no block of drawn bytes but the place of the next one.
#[derive(Clone)]
pub struct Rng {
    seed: [u8; 32],
    /// Words of four bytes drawn so far.
    drawn: u64,
}

impl fmt::Debug for Rng {
    /// Without the seed: who knows that knows connection IDs and tokens to come.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rng").finish_non_exhaustive()
    }
}

impl Rng {
    /// A generator that yields the sequence of `seed`.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self { seed, drawn: 0 }
    }

    /// A generator of its own for a part of the engine, so that the parts do not disturb each
    /// other.
    pub fn fork(&mut self) -> Self {
        Self::from_seed(self.array())
    }

    /// Random bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.at(bytes.len().div_ceil(4)).fill_bytes(bytes);
    }

    /// The generator at the next word, of which `words` are about to be drawn.
    fn at(&mut self, words: usize) -> ChaCha12Rng {
        let mut generator = ChaCha12Rng::from_seed(self.seed);
        generator.set_word_pos(u128::from(self.drawn));
        self.drawn += words as u64;
        generator
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias is below 2^-32 for bounds that fit 32
    /// bits.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.at(2).next_u64() % bound
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_seed_is_not_shown() {
        assert_eq!(format!("{:?}", Rng::from_seed([7; 32])), "Rng { .. }");
    }

    #[test]
    fn draws_of_any_size_follow_each_other_as_in_one_generator() {
        let (mut rng, mut whole) = (Rng::from_seed([7; 32]), ChaCha12Rng::from_seed([7; 32]));
        for size in (0..700).chain([4, 256, 255, 1, 64]) {
            let (mut ours, mut theirs) = (vec![0; size], vec![0; size]);
            rng.fill(&mut ours);
            whole.fill_bytes(&mut theirs);
            assert_eq!(ours, theirs, "{size} bytes");
            assert_eq!(rng.below(u64::MAX), whole.next_u64() % u64::MAX);
        }
    }
}
