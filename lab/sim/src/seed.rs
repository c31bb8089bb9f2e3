//! The source of every random choice in a world: one number, and a name for each purpose.

/// A seed. Each purpose derives its own seed, so that drawing more numbers for one purpose does not
/// change those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed for a purpose, such as `("link", 3)`.
    pub fn derive(self, purpose: &str, index: u64) -> Self {
        let named = purpose
            .bytes()
            .fold(mix(self.0), |hash, byte| mix(hash ^ u64::from(byte)));
        Self(mix(named ^ mix(index)))
    }

    /// The seed bytes for an [endpoint](anabranch_proto::Endpoint).
    pub fn bytes(self) -> [u8; 32] {
        let mut dice = Dice::new(self);
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&dice.next().to_le_bytes());
        }
        bytes
    }
}

/// A small seeded random number generator (`SplitMix64`: Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The generator for this seed.
    pub fn new(seed: Seed) -> Self {
        Self(seed.0)
    }

    /// 64 random bits.
    #[allow(
        clippy::should_implement_trait,
        reason = "dice never run out, so an iterator would only add an Option"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        finish(self.0)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True in this many of a thousand cases.
    pub fn per_mille(&mut self, share: u64) -> bool {
        self.below(1000) < share
    }

    /// Picks one of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(value: u64) -> u64 {
    finish(value.wrapping_add(GOLDEN))
}

fn finish(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_and_indices_have_seeds_of_their_own() {
        let seed = Seed(7);
        let all = [
            seed.derive("link", 0),
            seed.derive("link", 1),
            seed.derive("start", 0),
            Seed(8).derive("link", 0),
        ];
        for (at, one) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == one), Some(at));
        }
        assert_eq!(seed.derive("link", 1), all[1]);
    }

    #[test]
    fn dice_stay_below_their_bound_and_reach_all_of_it() {
        let mut dice = Dice::new(Seed(1));
        let mut seen = [0; 6];
        for _ in 0..6000 {
            seen[dice.below(6) as usize] += 1;
        }
        assert!(
            seen.iter().all(|count| (850..1150).contains(count)),
            "{seen:?}"
        );
    }
}
