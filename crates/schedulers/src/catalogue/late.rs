//! LATE: what a path will carry in the time the slowest path needs for half a round trip, with the
//! growth of its window and the losses it is used to.
//!
//! Yang et al., IEEE Transactions on Wireless Communications 2021, in the form of the `wlb`
//! scheduler of mp0rta's xquic.

use crate::toolkit::units::{micros, packet};
use anabranch_proto::sched::PathView;
use anabranch_proto::time::Duration;

/// Round trips that are simulated; what comes after them is taken to be as the last one.
const ROUNDS_MAX: u32 = 32;

/// Losses below this share are noise.
const LOSS_MIN: f64 = 0.02;

/// Windows, in packets, are not looked at beyond this.
const WINDOW_MAX: f64 = 1e6;

/// Packets that `path` is expected to deliver, beside paths of up to `longest` RTT.
pub(super) fn packets(path: &PathView, longest: Duration) -> f64 {
    let rtt = micros(path.smoothed_rtt) as f64;
    let mut left = (micros(longest) as f64 / 2.0).max(rtt);
    let loss = f64::from(path.loss.clamp(0.0, 1.0));
    let loss = if loss < LOSS_MIN { 0.0 } else { loss };
    let size = packet(path) as f64;
    let mut window = (path.congestion_window as f64 / size).clamp(1.0, WINDOW_MAX);
    let mut threshold = 2.0 * window;
    let mut sum = 0.0;
    for round in 0..ROUNDS_MAX {
        if left < rtt / 2.0 {
            return sum;
        }
        sum += window * (1.0 - loss);
        let unharmed = power(1.0 - loss, window.round() as u32);
        let grown = if window < threshold {
            (2.0 * window).min(threshold)
        } else {
            window + 1.0
        };
        let reduced = if round < 7 { 0.7 * window } else { window };
        let reduced = reduced.max(1.0);
        window = (unharmed * grown + (1.0 - unharmed) * reduced).min(WINDOW_MAX);
        threshold = unharmed * threshold + (1.0 - unharmed) * reduced;
        left -= rtt;
    }
    sum + window * (1.0 - loss) * (left / rtt).max(0.0)
}

/// By squaring: the platform's own function may differ in the last digit.
fn power(base: f64, mut exponent: u32) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rtt_ms: u64, window: u64, loss: f32) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            congestion_window: window * 1200,
            loss,
            ..PathView::new(0)
        }
    }

    #[test]
    fn the_window_counts_once_for_each_round_trip_that_fits() {
        let slow = Duration::from_millis(60);
        assert!((packets(&path(20, 40, 0.0), slow) - 120.0).abs() < 1e-6);
        assert!((packets(&path(60, 20, 0.0), slow) - 20.0).abs() < 1e-6);
    }

    #[test]
    fn losses_take_their_share_unless_they_are_noise() {
        let slow = Duration::from_millis(60);
        assert!((packets(&path(60, 20, 0.05), slow) - 19.0).abs() < 1e-6);
        assert!((packets(&path(60, 20, 0.019), slow) - 20.0).abs() < 1e-6);
    }

    #[test]
    fn extreme_paths_yield_numbers() {
        for path in [
            path(0, 0, 1.0),
            path(0, u64::MAX / 1200, 0.0),
            path(1, 1, 0.5),
        ] {
            let found = packets(&path, Duration::MAX);
            assert!(found.is_finite() && found >= 0.0, "{found}");
        }
    }
}
