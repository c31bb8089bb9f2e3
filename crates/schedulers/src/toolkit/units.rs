//! Times, sizes and rates as whole numbers, safe for any value a view can hold.
//!
//! Times are nanoseconds or microseconds, rates bytes per second. Every function saturates and none
//! divides by zero.

use anabranch_proto::sched::PathView;
use anabranch_proto::time::{Duration, Instant};

/// Longer than any transfer; small enough that a few of them add up.
pub const FOREVER: u64 = u64::MAX / 16;

/// Nanoseconds of a second.
pub const NANOS: u64 = 1_000_000_000;

/// A duration in nanoseconds, at most [`FOREVER`].
pub fn nanos(duration: Duration) -> u64 {
    // Multiplying 64 bits is much cheaper than the 128 of `as_nanos`.
    let whole = duration.as_secs().saturating_mul(NANOS);
    whole
        .saturating_add(u64::from(duration.subsec_nanos()))
        .min(FOREVER)
}

/// `value * factor / divisor`, saturating.
pub fn scale(value: u64, factor: u64, divisor: u64) -> u64 {
    let divisor = divisor.max(1);
    // Dividing 128 bits costs several times as much.
    if let Some(product) = value.checked_mul(factor) {
        return product / divisor;
    }
    let product = u128::from(value) * u128::from(factor);
    u64::try_from(product / u128::from(divisor)).unwrap_or(u64::MAX)
}

/// How long `bytes` take at `rate`; [`FOREVER`] if the rate is 0.
pub fn time_for(bytes: u64, rate: u64) -> u64 {
    if rate == 0 {
        return if bytes == 0 { 0 } else { FOREVER };
    }
    match bytes.checked_mul(NANOS) {
        Some(product) => (product / rate).min(FOREVER),
        None => scale(bytes, NANOS, rate).min(FOREVER),
    }
}

/// How many bytes go in `nanos` at `rate`.
pub fn bytes_in(nanos: u64, rate: u64) -> u64 {
    scale(nanos, rate, NANOS)
}

/// Whole microseconds, at least 1 and below 2^40.
pub fn micros(time: Duration) -> u128 {
    let whole = time.as_secs().saturating_mul(1_000_000);
    let micros = whole.saturating_add(u64::from(time.subsec_micros()));
    u128::from(micros.clamp(1, (1 << 40) - 1))
}

/// Bytes, below 2^48.
pub fn size(bytes: u64) -> u128 {
    u128::from(bytes.min((1 << 48) - 1))
}

/// Bytes of a full packet on `path`, never 0.
pub fn packet(path: &PathView) -> u64 {
    u64::from(path.max_datagram_size).max(1)
}

/// Nanoseconds since `earlier`; 0 if that is yet to come.
pub fn passed(earlier: Instant, now: Instant) -> u64 {
    now.as_nanos().saturating_sub(earlier.as_nanos())
}

/// Nanoseconds until the pacer of `path` lets a packet go.
pub fn paced(path: &PathView, now: Instant) -> u64 {
    passed(now, path.pacer_ready).min(FOREVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_values_do_not_overflow() {
        let largest = size(u64::MAX) * micros(Duration::MAX);
        assert!(largest.checked_mul(1 << 16).is_some());
        assert_eq!(micros(Duration::ZERO), 1);
    }

    proptest! {
        #[test]
        fn times_and_bytes_saturate_and_agree(bytes: u64, rate: u64, time in 0..FOREVER) {
            let took = time_for(bytes, rate);
            prop_assert!(took <= FOREVER);
            if rate > 0 && took < FOREVER {
                let exact = u128::from(bytes) * u128::from(NANOS) / u128::from(rate);
                prop_assert_eq!(u128::from(took), exact);
                prop_assert!(bytes_in(took, rate) <= bytes);
            }
            let exact = u128::from(time) * u128::from(rate) / u128::from(NANOS);
            prop_assert_eq!(bytes_in(time, rate), u64::try_from(exact).unwrap_or(u64::MAX));
        }
    }
}
