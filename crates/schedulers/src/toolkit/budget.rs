//! A limit on copies: a share of the bytes sent, with a small allowance to begin with.
//!
//! A token bucket filled by what is sent for the first time. It never holds more than the
//! allowance, so an hour without copies does not buy a minute full of them.

use anabranch_proto::spec::{Params, SpecError};

/// Copies of a burst: what the start of one stream needs.
const ALLOWANCE: u64 = 16 * 1500;

/// Tokens are thousandths of bytes, so that small shares of small packets are not lost.
const SCALE: u64 = 1000;

/// What may still be spent on copies.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Thousandths of the bytes sent.
    share: u64,
    tokens: u64,
}

impl Budget {
    /// Copies may cost this share of the bytes sent for the first time, 0.0 to 1.0.
    pub fn new(share: f64) -> Self {
        Self {
            share: (share.clamp(0.0, 1.0) * SCALE as f64).round() as u64,
            tokens: ALLOWANCE * SCALE,
        }
    }

    /// The parameter `budget`.
    pub fn from_params(params: &mut Params, default: f64) -> Result<Self, SpecError> {
        Ok(Self::new(params.take_in("budget", default, 0.0..=1.0)?))
    }

    /// Credits the budget for `bytes` of new data.
    pub fn earn(&mut self, bytes: u64) {
        let earned = bytes.min(1 << 40) * self.share;
        self.tokens = (self.tokens + earned).min(ALLOWANCE * SCALE);
    }

    /// Pays for a copy if the budget allows; a share of 0 never does, 1 always.
    pub fn pay(&mut self, bytes: u64) -> bool {
        let price = bytes.saturating_mul(SCALE);
        if self.share == SCALE {
            return true;
        }
        if self.share == 0 || price > self.tokens {
            return false;
        }
        self.tokens -= price;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_the_range_pay_for_nothing_and_for_all() {
        assert!(!Budget::new(0.0).pay(1));
        let mut all = Budget::new(1.0);
        assert!((0..1000).all(|_| all.pay(u64::MAX)));
    }

    proptest! {
        #[test]
        fn copies_never_cost_more_than_their_share_and_the_allowance(
            share in 0.0_f64..0.99,
            units in prop::collection::vec((0_u64..3000, any::<bool>()), 1..400),
        ) {
            let mut budget = Budget::new(share);
            let (mut sent, mut copied) = (0, 0);
            for (bytes, copy) in units {
                budget.earn(bytes);
                sent += bytes;
                if copy && budget.pay(bytes) {
                    copied += bytes;
                }
                let limit = (share + 0.001) * sent as f64 + ALLOWANCE as f64;
                prop_assert!(copied as f64 <= limit);
            }
        }
    }
}
