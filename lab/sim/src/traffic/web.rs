//! A web user: fetches a page, reads it, fetches the next one.

use crate::seed::{Dice, Seed};
use crate::tcp::{Demand, Exchange};
use anabranch_proto::time::Instant;
use std::time::Duration;

/// What a web user does. The size and the pause are drawn anew for each page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebConfig {
    /// Bytes of a request; raised to at least 16.
    pub request: u64,
    /// The smallest response.
    pub smallest: u64,
    /// The largest response.
    pub largest: u64,
    /// The mean pause after a page.
    pub pause: Duration,
    /// The number of pages; `None` means no limit.
    pub pages: Option<u64>,
}

impl Default for WebConfig {
    /// Pages of 6 KB to 10 MB, 50 KB on average, with a second to read each.
    fn default() -> Self {
        Self {
            request: 300,
            smallest: 6_000,
            largest: 10_000_000,
            pause: Duration::from_secs(1),
            pages: None,
        }
    }
}

/// A web user. Response sizes have a heavy tail (Pareto with exponent 1, cut off), pauses are
/// exponential.
#[derive(Debug)]
pub struct Web {
    config: WebConfig,
    dice: Dice,
    pages: u64,
}

impl Web {
    /// A user whose choices follow from the seed.
    pub fn new(config: WebConfig, seed: Seed) -> Self {
        Self {
            config,
            dice: Dice::new(seed.derive("web", 0)),
            pages: 0,
        }
    }

    /// A size whose probability of exceeding x falls as 1 / x.
    fn size(&mut self) -> u64 {
        const UNIT: u64 = 1 << 32;
        let smallest = self.config.smallest.max(1);
        let size = u128::from(smallest) * u128::from(UNIT) / u128::from(self.dice.below(UNIT) + 1);
        u64::try_from(size)
            .unwrap_or(u64::MAX)
            .min(self.config.largest.max(smallest))
    }

    fn pause(&mut self) -> Duration {
        let nanos = (self.config.pause.as_nanos() * u128::from(self.exponential())) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// An exponential number with mean 1, in units of `2^-32`. It uses von Neumann's method of
    /// comparisons (1951), since the last bit of a logarithm differs between machines.
    fn exponential(&mut self) -> u64 {
        for whole in 0..64 {
            let first = self.dice.next() >> 32;
            let (mut last, mut falling) = (first, 1_u32);
            loop {
                let next = self.dice.next() >> 32;
                if next >= last {
                    break;
                }
                (last, falling) = (next, falling + 1);
            }
            if falling % 2 == 1 {
                return (whole << 32) + first;
            }
        }
        64 << 32
    }
}

impl Demand for Web {
    fn next(&mut self, now: Instant) -> Option<(Instant, Exchange)> {
        if self.config.pages.is_some_and(|pages| self.pages >= pages) {
            return None;
        }
        // Users do not all start at the same time: there is a pause before the first page, too.
        self.pages += 1;
        let exchange = Exchange {
            request: self.config.request,
            response: self.size(),
        };
        Some((now + self.pause(), exchange))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_exponential_and_sizes_have_a_heavy_tail() {
        let mut web = Web::new(WebConfig::default(), Seed(1));
        let pauses: Vec<_> = (0..20_000).map(|_| web.pause().as_secs_f64()).collect();
        let mean = pauses.iter().sum::<f64>() / 20_000.0;
        assert!((0.97..1.03).contains(&mean), "{mean}");
        let long = pauses.iter().filter(|pause| **pause > 2.0).count();
        // e^-2 = 0.135.
        assert!((2500..2900).contains(&long), "{long}");
        let sizes: Vec<_> = (0..20_000).map(|_| web.size()).collect();
        let above = |limit| sizes.iter().filter(|size| **size > limit).count();
        assert!((1800..2200).contains(&above(60_000)), "{}", above(60_000));
        assert!((150..260).contains(&above(600_000)), "{}", above(600_000));
        assert!(sizes.iter().all(|size| (6_000..=10_000_000).contains(size)));
    }
}
