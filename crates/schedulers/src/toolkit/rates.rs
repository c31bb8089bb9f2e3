//! How fast a path is believed to be, in bytes per second.

use crate::toolkit::units::{NANOS, micros, nanos, scale, size};
use anabranch_proto::sched::PathView;
use anabranch_proto::time::Duration;

/// What a path without any sample is taken to need for a round trip: RFC 9002, section 6.2.2.
pub(super) const INITIAL_RTT: Duration = Duration::from_millis(333);

/// The rate that a full congestion window gives; 0 without an RTT sample.
pub fn window_rate(path: &PathView) -> u64 {
    match nanos(path.smoothed_rtt) {
        0 => 0,
        rtt => scale(path.congestion_window, NANOS, rtt),
    }
}

/// What `path` can carry: the lower of the pacer's rate and the measured one, as either may be too
/// high alone; the window's rate where neither is known; 0 if nothing is.
///
/// What a path delivered while it had little to carry says nothing about what it can: believed, it
/// would keep the path from ever carrying more. There the window's rate counts if it is higher.
pub fn bandwidth(path: &PathView) -> u64 {
    let measured = if path.app_limited && path.delivery_rate > 0 {
        path.delivery_rate.max(window_rate(path))
    } else {
        path.delivery_rate
    };
    match (path.pacing_rate, measured) {
        (0, 0) => window_rate(path),
        (0, rate) | (rate, 0) => rate,
        (paced, measured) => paced.min(measured),
    }
}

/// Bytes per second that a window lets through at this RTT; an unsampled path is taken for slow.
pub fn assumed_window_rate(path: &PathView) -> u64 {
    let rtt = if path.smoothed_rtt.is_zero() {
        INITIAL_RTT
    } else {
        path.smoothed_rtt
    };
    scale(
        size(path.congestion_window) as u64,
        1_000_000,
        micros(rtt) as u64,
    )
}

/// Bytes per second that a path is believed to carry: what it delivered lately, or else what its
/// window lets through.
pub fn delivered_rate(path: &PathView) -> u64 {
    if path.delivery_rate > 0 {
        path.delivery_rate
    } else {
        assumed_window_rate(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(id: u32, rtt_ms: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            ..PathView::new(id)
        }
    }

    #[test]
    fn the_lower_rate_is_believed() {
        let of = |pacing_rate, delivery_rate| {
            bandwidth(&PathView {
                delivery_rate,
                pacing_rate,
                ..path(0, 100)
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
                ..path(0, 100)
            })
        };
        assert_eq!(of(false, 7), 7);
        assert_eq!(of(true, 7), 120_000, "the window per RTT");
        assert_eq!(of(true, 500_000), 500_000);
    }

    #[test]
    fn a_rate_is_what_was_delivered_or_what_the_window_allows() {
        let mut path = path(0, 100);
        assert_eq!(delivered_rate(&path), 120_000);
        path.delivery_rate = 7;
        assert_eq!(delivered_rate(&path), 7);
    }

    #[test]
    fn an_endless_window_has_a_rate() {
        let endless = PathView {
            congestion_window: u64::MAX,
            smoothed_rtt: Duration::MAX,
            ..PathView::new(0)
        };
        assert!(assumed_window_rate(&endless) > 0);
    }
}
