//! How long packets take to be transmitted.

use crate::config::Rate;
use crate::trace::{OPPORTUNITY_BYTES, Trace, TraceCursor};
use std::num::NonZeroU64;

/// Bits per byte, times nanoseconds per second.
const BIT_NANOS_PER_BYTE: u64 = 8_000_000_000;

/// Larger packets and bursts count as this many bytes, so that their duration fits 64 bits.
pub(crate) const MAX_BYTES: u32 = 1 << 30;

/// Computes when packets leave, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Serialiser {
    rate: Rate,
    /// When all packets so far would have been transmitted at the bare rate, without burst.
    horizon: u64,
    /// The remainder of the last division, carried over so that durations are exact in the long
    /// run.
    carry: u64,
    cursor: TraceCursor,
}

impl Serialiser {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            horizon: 0,
            carry: 0,
            cursor: TraceCursor::new(0),
        }
    }

    /// When a packet of `size` bytes has left, if its transmission can start at `start`.
    #[inline]
    pub(crate) fn finish(&mut self, start: u64, size: u32) -> u64 {
        match &self.rate {
            Rate::Unlimited => start,
            Rate::Fixed {
                bits_per_second,
                burst,
            } => {
                let (rate, burst) = (*bits_per_second, *burst);
                if start > self.horizon {
                    self.horizon = start;
                    self.carry = 0;
                }
                let work = u64::from(size.min(MAX_BYTES)) * BIT_NANOS_PER_BYTE;
                let work = u128::from(work) + u128::from(self.carry);
                // One 64-bit division per packet: only absurd rates need more than 64 bits.
                let (quotient, rest) = match u64::try_from(work) {
                    Ok(work) => (work / rate, work % rate),
                    Err(_) => ((work / u128::from(rate.get())) as u64, 0),
                };
                self.horizon = self.horizon.saturating_add(quotient);
                self.carry = rest;
                start.max(self.horizon.saturating_sub(duration(burst, rate)))
            }
            Rate::Trace(trace) => self.cursor.finish(trace, start, size),
        }
    }

    /// Changes the rate while a packet of `size` bytes may be being transmitted, and returns when
    /// that packet now leaves. The rest of it continues at the new rate; if the old or the new rate
    /// is not a fixed one, its transmission starts over.
    pub(crate) fn change(&mut self, now: u64, rate: Rate, departs: u64, size: Option<u32>) -> u64 {
        if self.rate == rate {
            return departs;
        }
        let old = std::mem::replace(&mut self.rate, rate);
        self.carry = 0;
        self.cursor = TraceCursor::new(now);
        if let (
            Rate::Fixed {
                bits_per_second: old,
                ..
            },
            Rate::Fixed {
                bits_per_second: new,
                burst,
            },
        ) = (&old, &self.rate)
        {
            let left = u128::from(self.horizon.saturating_sub(now));
            let left = left * u128::from(old.get()) / u128::from(new.get());
            self.horizon = now.saturating_add(u64::try_from(left).unwrap_or(u64::MAX));
            return now.max(self.horizon.saturating_sub(duration(*burst, *new)));
        }
        self.horizon = now;
        size.map_or(departs, |size| self.finish(now, size))
    }

    /// Transmission time of a packet of 1500 bytes, in nanoseconds.
    pub(crate) fn packet_time(&self) -> u64 {
        match &self.rate {
            Rate::Unlimited => 0,
            Rate::Fixed {
                bits_per_second, ..
            } => duration(OPPORTUNITY_BYTES, *bits_per_second),
            Rate::Trace(trace) => trace_packet_time(trace),
        }
    }
}

fn trace_packet_time(trace: &Trace) -> u64 {
    NonZeroU64::new(trace.mean_rate()).map_or(u64::MAX, |rate| duration(OPPORTUNITY_BYTES, rate))
}

fn duration(bytes: u32, rate: NonZeroU64) -> u64 {
    u64::from(bytes.min(MAX_BYTES)) * BIT_NANOS_PER_BYTE / rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(rate: u64, burst: u32) -> Rate {
        Rate::Fixed {
            bits_per_second: NonZeroU64::new(rate).unwrap(),
            burst,
        }
    }

    #[test]
    fn packets_take_their_bits_over_the_rate() {
        let mut serialiser = Serialiser::new(fixed(10_000_000, 0));
        assert_eq!(serialiser.finish(0, 1500), 1_200_000);
        assert_eq!(serialiser.finish(1_200_000, 100), 1_280_000);
        assert_eq!(serialiser.finish(5_000_000, 1500), 6_200_000);
    }

    #[test]
    fn fractions_of_nanoseconds_do_not_add_up() {
        let mut serialiser = Serialiser::new(fixed(7_000_000, 0));
        let last = (0..7000).fold(0, |at, _| serialiser.finish(at, 1500));
        assert_eq!(last, 12_000_000_000);
    }

    #[test]
    fn a_bucket_passes_its_burst_at_once_and_then_the_rate() {
        let mut serialiser = Serialiser::new(fixed(8_000_000, 3000));
        let times: Vec<_> = (0..5).map(|_| serialiser.finish(0, 1000)).collect();
        assert_eq!(times, [0, 0, 0, 1_000_000, 2_000_000]);
        assert_eq!(
            serialiser.finish(4_000_000, 1000),
            4_000_000,
            "refilled by two packets"
        );
        assert_eq!(serialiser.finish(4_000_000, 1000), 4_000_000);
        assert_eq!(serialiser.finish(4_000_000, 1000), 5_000_000);
    }

    #[test]
    fn the_rest_of_a_packet_goes_on_at_the_new_rate() {
        let mut serialiser = Serialiser::new(fixed(1_000_000, 0));
        let departs = serialiser.finish(0, 1000);
        assert_eq!(departs, 8_000_000);
        let departs = serialiser.change(2_000_000, fixed(6_000_000, 0), departs, Some(1000));
        assert_eq!(departs, 3_000_000);
    }

    #[test]
    fn absurd_sizes_and_rates_do_not_overflow() {
        let mut slow = Serialiser::new(fixed(1, u32::MAX));
        assert!(slow.finish(u64::MAX, u32::MAX) == u64::MAX);
        let mut fast = Serialiser::new(fixed(u64::MAX, 0));
        for _ in 0..100 {
            assert!(fast.finish(0, u32::MAX) <= 100);
        }
    }
}
