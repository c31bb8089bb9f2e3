//! Estimates that schedulers share: how fast a path is and when it would deliver.
//!
//! Times are whole nanoseconds, rates bytes per second. Views may hold anything, so every function
//! saturates and none divides by zero.

use super::{PathView, SendView, UnitKind};
use crate::time::{Duration, Instant};

/// Longer than any transfer; small enough that a few of them add up.
pub(super) const FOREVER: u64 = u64::MAX / 16;

const NANOS: u128 = 1_000_000_000;

/// A duration in nanoseconds, at most [`FOREVER`].
pub(super) fn nanos(duration: Duration) -> u64 {
    // Multiplying 64 bits is much cheaper than the 128 of `as_nanos`.
    let whole = duration.as_secs().saturating_mul(1_000_000_000);
    whole
        .saturating_add(u64::from(duration.subsec_nanos()))
        .min(FOREVER)
}

/// Bytes of a full packet on `path`, never 0.
pub(super) fn packet(path: &PathView) -> u64 {
    u64::from(path.max_datagram_size).max(1)
}

/// Bytes of the unit to place on `path`, never 0.
pub(super) fn unit(view: &SendView<'_>, path: &PathView) -> u64 {
    match view.unit.bytes {
        0 => packet(path),
        bytes => bytes,
    }
}

/// `value * factor / divisor`, saturating.
pub(super) fn scale(value: u64, factor: u64, divisor: u64) -> u64 {
    let divisor = u128::from(divisor.max(1));
    u64::try_from(u128::from(value) * u128::from(factor) / divisor).unwrap_or(u64::MAX)
}

/// How long `bytes` take at `rate`; [`FOREVER`] if the rate is 0.
pub(super) fn time_for(bytes: u64, rate: u64) -> u64 {
    if rate == 0 {
        return if bytes == 0 { 0 } else { FOREVER };
    }
    match bytes.checked_mul(1_000_000_000) {
        Some(product) => (product / rate).min(FOREVER),
        None => scale(bytes, NANOS as u64, rate).min(FOREVER),
    }
}

/// How many bytes go in `nanos` at `rate`.
pub(super) fn bytes_in(nanos: u64, rate: u64) -> u64 {
    scale(nanos, rate, NANOS as u64)
}

/// The rate that a full congestion window gives; 0 without an RTT sample.
pub(super) fn window_rate(path: &PathView) -> u64 {
    match nanos(path.smoothed_rtt) {
        0 => 0,
        rtt => scale(path.congestion_window, NANOS as u64, rtt),
    }
}

/// What `path` can carry: the lower of the pacer's rate and the measured one, as either may be too
/// high alone; the window's rate where neither is known; 0 if nothing is.
///
/// What a path delivered while it had little to carry says nothing about what it can: believed, it
/// would keep the path from ever carrying more. There the window's rate counts if it is higher.
pub(super) fn bandwidth(path: &PathView) -> u64 {
    let measured = match path.app_limited {
        true if path.delivery_rate > 0 => path.delivery_rate.max(window_rate(path)),
        _ => path.delivery_rate,
    };
    match (path.pacing_rate, measured) {
        (0, 0) => window_rate(path),
        (0, rate) | (rate, 0) => rate,
        (paced, measured) => paced.min(measured),
    }
}

/// Whether `path` carried the data before that now waits to be sent again.
pub(super) fn carried(view: &SendView<'_>, path: &PathView) -> bool {
    view.unit.kind == UnitKind::Retransmission && view.unit.carried_by.contains(path.id)
}

/// How much unsent data may be left for other paths when a packet of new data goes on `path`: what
/// follows must fill that packet, and data far ahead must not use up the flow-control credit that
/// the data before it needs.
pub(super) fn skip_limit(view: &SendView<'_>, path: &PathView) -> u64 {
    let behind = view.backlog.unsent.saturating_sub(packet(path));
    behind.min(view.backlog.credit / 2)
}

/// How forward delays are told: as measured, or as half the RTT.
///
/// Measured ones have an offset that is unknown but common to all paths, so they count only if
/// every candidate with an RTT sample has one. They are anchored at half the RTT of the path with
/// the least delay, so that both ways yield times of the same magnitude.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delays {
    /// The least measured delay, in microseconds, and what it stands for, in nanoseconds.
    anchor: Option<(i64, u64)>,
}

impl Delays {
    /// The best that the candidates of `view` allow.
    pub(super) fn of(view: &SendView<'_>) -> Self {
        let mut anchor: Option<(i64, u64)> = None;
        for path in view.candidates() {
            match path.forward_delay_us {
                None if path.smoothed_rtt.is_zero() => {}
                None => return Self::HALVES,
                Some(us) if anchor.is_none_or(|(least, _)| us < least) => {
                    anchor = Some((us, nanos(path.smoothed_rtt) / 2));
                }
                Some(_) => {}
            }
        }
        Self { anchor }
    }

    /// Half the RTT of every path, whatever is measured.
    pub(super) const HALVES: Self = Self { anchor: None };

    /// How long a packet takes to the peer; `None` if nothing is known about the path.
    pub(super) fn forward(&self, path: &PathView) -> Option<u64> {
        let Some((least, stands_for)) = self.anchor else {
            return match nanos(path.smoothed_rtt) {
                0 => None,
                rtt => Some(rtt / 2),
            };
        };
        let us = path.forward_delay_us?;
        let more = if us > least { us.abs_diff(least) } else { 0 };
        Some(more.saturating_mul(1000).min(FOREVER) + stands_for)
    }

    /// The order of preference by forward delay: unknown ones come last.
    pub(super) fn rank(&self, path: &PathView) -> (bool, u64) {
        let forward = self.forward(path);
        (forward.is_none(), forward.unwrap_or(FOREVER))
    }

    /// Mean deviation of [`forward`](Self::forward).
    pub(super) fn deviation(&self, path: &PathView) -> u64 {
        match self.anchor {
            Some(_) => path.forward_jitter_us.saturating_mul(1000).min(FOREVER),
            None => nanos(path.rttvar) / 2,
        }
    }
}

/// Nanoseconds until the pacer of `path` lets a packet go.
pub(super) fn paced(path: &PathView, now: Instant) -> u64 {
    path.pacer_ready
        .as_nanos()
        .saturating_sub(now.as_nanos())
        .min(FOREVER)
}

#[cfg(test)]
mod tests {
    use super::super::tests::fresh;
    use super::*;
    use proptest::prelude::*;

    fn path(id: u32, rtt_ms: u64, forward_us: Option<i64>) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            forward_delay_us: forward_us,
            ..PathView::new(id)
        }
    }

    #[test]
    fn only_differences_of_measured_delays_count() {
        for offset in [0, 1_000_000, -5_000_000, i64::MIN + 1_000_000] {
            let paths = [
                path(0, 210, Some(10_000 + offset)),
                path(1, 60, Some(50_000 + offset)),
            ];
            let delays = Delays::of(&fresh(&paths));
            let forward = paths.map(|path| delays.forward(&path).unwrap());
            assert_eq!(forward, [105_000_000, 145_000_000]);
        }
    }

    #[test]
    fn one_path_without_a_measurement_makes_all_use_half_their_rtt() {
        let paths = [path(0, 210, Some(10_000)), path(1, 60, None)];
        let delays = Delays::of(&fresh(&paths));
        let forward = paths.map(|path| delays.forward(&path).unwrap());
        assert_eq!(forward, [105_000_000, 30_000_000]);
    }

    #[test]
    fn a_path_that_nothing_is_known_about_comes_last_and_spoils_nothing() {
        let paths = [path(0, 0, None), path(1, 60, Some(7))];
        let delays = Delays::of(&fresh(&paths));
        assert_eq!(delays.forward(&paths[0]), None);
        assert!(delays.rank(&paths[1]) < delays.rank(&paths[0]));
    }

    #[test]
    fn the_lower_rate_is_believed() {
        let of = |pacing_rate, delivery_rate| {
            bandwidth(&PathView {
                delivery_rate,
                pacing_rate,
                ..path(0, 100, None)
            })
        };
        assert_eq!(of(5, 9), 5);
        assert_eq!(of(0, 9), 9);
        assert_eq!(of(5, 0), 5);
        assert_eq!(of(0, 0), 120_000, "the window per RTT");
        assert_eq!(bandwidth(&PathView::new(0)), 0);
    }

    #[test]
    fn what_a_path_delivered_while_it_had_little_to_carry_does_not_count_against_it() {
        let of = |app_limited, delivery_rate| {
            bandwidth(&PathView {
                delivery_rate,
                app_limited,
                ..path(0, 100, None)
            })
        };
        assert_eq!(of(false, 7), 7);
        assert_eq!(of(true, 7), 120_000, "the window per RTT");
        assert_eq!(of(true, 500_000), 500_000);
    }

    proptest! {
        #[test]
        fn times_and_bytes_saturate_and_agree(bytes: u64, rate: u64, time in 0..FOREVER) {
            let took = time_for(bytes, rate);
            prop_assert!(took <= FOREVER);
            if rate > 0 && took < FOREVER {
                let exact = u128::from(bytes) * NANOS / u128::from(rate);
                prop_assert_eq!(u128::from(took), exact);
                prop_assert!(bytes_in(took, rate) <= bytes);
            }
            let exact = u128::from(time) * u128::from(rate) / NANOS;
            prop_assert_eq!(bytes_in(time, rate), u64::try_from(exact).unwrap_or(u64::MAX));
        }
    }
}
