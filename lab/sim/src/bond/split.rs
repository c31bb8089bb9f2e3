//! Which link a packet takes, whole or in parts.

use anabranch_proto::time::Instant;
use std::time::Duration;

const NANOS_PER_BYTE_BIT: u128 = 8_000_000_000;

/// Parts smaller than this are not worth their headers.
const SMALLEST_PART: u64 = 200;

/// What the sending end assumes about a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Belief {
    /// Bits per second; at least 1.
    pub(super) rate: u64,
    pub(super) latency: Duration,
    /// When everything sent so far will have been transmitted.
    pub(super) busy_until: Instant,
}

impl Belief {
    /// Nanoseconds until a packet of size zero, sent now, would arrive.
    fn lead(&self, now: Instant) -> u128 {
        (self.busy_until.since(now) + self.latency).as_nanos()
    }

    /// When a packet of this size, sent now, would arrive.
    pub(super) fn arrival(&self, now: Instant, bytes: u64) -> u128 {
        self.lead(now) + u128::from(bytes) * NANOS_PER_BYTE_BIT / u128::from(self.rate)
    }

    /// Accounts for what is sent.
    pub(super) fn occupy(&mut self, now: Instant, bytes: u64) {
        let nanos = u128::from(bytes) * NANOS_PER_BYTE_BIT / u128::from(self.rate);
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.busy_until = self.busy_until.max(now) + time;
    }
}

/// How many bytes of `length` go over each link so that all parts arrive at the same time. Links
/// that would deliver too late get nothing.
pub(super) fn proportional(beliefs: &[Option<Belief>], now: Instant, length: u64) -> Vec<u64> {
    let mut leads: Vec<(u128, u128, usize)> = Vec::with_capacity(beliefs.len());
    for (link, belief) in beliefs.iter().enumerate() {
        if let Some(belief) = belief {
            leads.push((belief.lead(now), u128::from(belief.rate), link));
        }
    }
    leads.sort_unstable();
    let mut parts = vec![0; beliefs.len()];
    let fastest = leads
        .iter()
        .max_by_key(|(lead, rate, _)| (*rate, u128::MAX - lead));
    let Some(&(_, _, fastest)) = fastest else {
        return parts;
    };
    // Find the common arrival time T for which the sum of rate * (T - lead) is `length`, over the
    // links whose lead is below T.
    let (mut rates, mut weighted, mut arrival) = (0, u128::from(length) * NANOS_PER_BYTE_BIT, 0);
    for (index, (lead, rate, _)) in leads.iter().enumerate() {
        rates += rate;
        weighted += rate * lead;
        arrival = weighted / rates;
        if leads
            .get(index + 1)
            .is_none_or(|(next, _, _)| *next >= arrival)
        {
            break;
        }
    }
    let mut left = length;
    for (lead, rate, link) in &leads {
        let part = rate * arrival.saturating_sub(*lead) / NANOS_PER_BYTE_BIT;
        let part = (part as u64).min(left);
        if part >= SMALLEST_PART {
            parts[*link] = part;
            left -= part;
        }
    }
    let best = if parts[fastest] > 0 {
        fastest
    } else {
        largest(&parts).unwrap_or(fastest)
    };
    parts[best] += left;
    parts
}

fn largest(parts: &[u64]) -> Option<usize> {
    let (link, part) = parts.iter().enumerate().max_by_key(|(_, part)| **part)?;
    (*part > 0).then_some(link)
}

/// The link on which a packet of this size arrives first.
pub(super) fn earliest(beliefs: &[Option<Belief>], now: Instant, bytes: u64) -> Option<usize> {
    let arrival = |(link, belief): (usize, &Option<Belief>)| {
        belief.map(|belief| (belief.arrival(now, bytes), link))
    };
    let best = beliefs.iter().enumerate().filter_map(arrival).min();
    best.map(|(_, link)| link)
}

/// Turns in proportion to weights, spread evenly: in each turn every link gains its weight as
/// credit, and the link with the most credit is chosen and pays the total.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    weights: Vec<u32>,
    credit: Vec<i64>,
}

impl Turns {
    pub(super) fn new(weights: Vec<u32>) -> Self {
        Self {
            credit: vec![0; weights.len()],
            weights,
        }
    }

    /// The next link among those that are up.
    pub(super) fn next(&mut self, up: impl Fn(usize) -> bool) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<usize> = None;
        for link in (0..self.weights.len()).filter(|link| up(*link)) {
            let weight = i64::from(self.weights[link]);
            total += weight;
            self.credit[link] += weight;
            if best.is_none_or(|best| self.credit[link] > self.credit[best]) {
                best = Some(link);
            }
        }
        if let Some(best) = best {
            self.credit[best] -= total;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn belief(kilobytes_per_ms: u64, lead_ms: u64) -> Belief {
        Belief {
            rate: kilobytes_per_ms * 8_000_000,
            latency: Duration::from_millis(lead_ms),
            busy_until: Instant::ZERO,
        }
    }

    #[test]
    fn parts_arrive_together_as_in_the_example_of_s4() {
        let parts =
            |d: u64| proportional(&[belief(3, 0), belief(1, d)].map(Some), Instant::ZERO, 4000);
        assert_eq!(parts(0), [3000, 1000]);
        assert_eq!(parts(1), [3750, 250]);
        assert_eq!(parts(5), [4000, 0]);
    }

    #[test]
    fn small_parts_are_joined_with_others() {
        let links = [belief(19, 0), belief(1, 0)].map(Some);
        assert_eq!(proportional(&links, Instant::ZERO, 1500), [1500, 0]);
        assert_eq!(proportional(&links, Instant::ZERO, 4000), [3800, 200]);
    }

    #[test]
    fn turns_follow_weights_and_skip_links_that_are_down() {
        let mut turns = Turns::new(vec![1, 1, 2]);
        let order: Vec<_> = (0..8).map(|_| turns.next(|_| true).unwrap()).collect();
        assert_eq!(order, [2, 0, 1, 2, 2, 0, 1, 2]);
        let mut turns = Turns::new(vec![1, 1]);
        assert_eq!(turns.next(|link| link == 1), Some(1));
        assert_eq!(turns.next(|_| false), None);
    }

    proptest! {
        #[test]
        fn parts_add_up_and_none_is_tiny(
            links in prop::collection::vec((1u64..100, 0u64..50), 1..6),
            length in 1u64..100_000
        ) {
            let beliefs = links.iter();
            let beliefs: Vec<_> = beliefs.map(|(rate, lead)| Some(belief(*rate, *lead))).collect();
            let parts = proportional(&beliefs, Instant::ZERO, length);
            prop_assert_eq!(parts.iter().sum::<u64>(), length);
            let small = parts.iter().filter(|part| (1..SMALLEST_PART).contains(*part)).count();
            prop_assert!(small == 0 || length < SMALLEST_PART);
            // No part arrives later than the whole packet would on the best single link.
            let alone = earliest(&beliefs, Instant::ZERO, length).unwrap();
            let alone = beliefs[alone].unwrap().arrival(Instant::ZERO, length);
            for (part, belief) in parts.iter().zip(&beliefs) {
                if *part > 0 && length >= 2000 {
                    let slack = belief.unwrap().arrival(Instant::ZERO, 1000);
                    prop_assert!(belief.unwrap().arrival(Instant::ZERO, *part) <= alone + slack);
                }
            }
        }
    }
}
