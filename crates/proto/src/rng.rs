//! The engine's only source of randomness.

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng as _, SeedableRng};

/// A seeded generator: the same seed yields the same connection, byte for byte.
///
/// A driver seeds it from the operating system, so that connection IDs and challenges cannot be
/// guessed (`ChaCha` is a cryptographic generator); a simulator seeds it from the scenario.
#[derive(Debug, Clone)]
pub struct Rng(ChaCha12Rng);

impl Rng {
    /// A generator that yields the sequence of `seed`.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    /// A generator of its own for a part of the engine, so that the parts do not disturb each
    /// other.
    pub fn fork(&mut self) -> Self {
        Self::from_seed(self.array())
    }

    /// Random bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias is below 2^-32 for bounds that fit 32
    /// bits.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.0.next_u64() % bound
        }
    }
}
