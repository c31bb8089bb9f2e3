//! When what is sent now arrives, with the queue of its path counted, in nanoseconds.
//!
//! The smoothed RTT tells how long a path's queue was, not how long it is: a path whose queue has
//! drained looks slow, one whose queue is being built looks fast. What counts here is what is in
//! flight now over the rate at which it leaves, and never less than the least RTT seen.

use crate::toolkit::rates::{INITIAL_RTT, assumed_window_rate, bandwidth};
use crate::toolkit::units::{nanos, time_for};
use anabranch_proto::sched::PathView;

/// Round trips longer than the least by more than this part of it tell of a queue.
const QUEUE: u64 = 4;

/// The least round trip.
pub fn least_rtt(path: &PathView) -> u64 {
    match (nanos(path.min_rtt), nanos(path.smoothed_rtt)) {
        (0, 0) => nanos(INITIAL_RTT),
        (0, rtt) => rtt,
        (least, _) => least,
    }
}

/// Bytes per second at which the path serves what is in flight; never 0.
pub fn service_rate(path: &PathView) -> u64 {
    match bandwidth(path) {
        0 => assumed_window_rate(path).max(1),
        rate => rate,
    }
}

/// How long until `bytes` beyond what is in flight are acknowledged.
pub fn acknowledged(path: &PathView, bytes: u64) -> u64 {
    served(path, bytes, service_rate(path))
}

/// How long that takes at this rate.
fn served(path: &PathView, bytes: u64, rate: u64) -> u64 {
    let ahead = path.bytes_in_flight.saturating_add(path.queued);
    let served = time_for(ahead.saturating_add(bytes), rate);
    least_rtt(path).max(served)
}

/// How long until what is in flight is acknowledged, if nothing more follows.
///
/// A link with a queue in front of it is busy: what it delivers then is what it can, although the
/// sender has no more for it. The window's rate, which counts for other such paths, would be too
/// high where it matters: the first window may stand in the queue of a narrow link.
pub fn emptied(path: &PathView) -> u64 {
    let rate = service_rate(path);
    let is_slower = path.app_limited && path.delivery_rate > 0 && is_queued(path);
    let rate = if is_slower {
        rate.min(path.delivery_rate)
    } else {
        rate
    };
    served(path, 0, rate)
}

/// Whether packets wait in front of the link. The latest RTT tells that they do now, the smoothed
/// one that it is not the peer that put an acknowledgement off: it leaves out what the peer says of
/// that.
fn is_queued(path: &PathView) -> bool {
    let least = least_rtt(path);
    let shortest = path.latest_rtt.min(path.smoothed_rtt);
    nanos(shortest) > least.saturating_add(least / QUEUE)
}

/// How long until a packet of `bytes` that is sent now has arrived, if both ways take as long.
pub fn arrived(path: &PathView, bytes: u64) -> u64 {
    acknowledged(path, bytes) - least_rtt(path) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::time::Duration;

    /// 1 MB/s, at least 20 ms, and 50 ms of late.
    fn path(bytes_in_flight: u64) -> PathView {
        PathView {
            min_rtt: Duration::from_millis(20),
            smoothed_rtt: Duration::from_millis(50),
            delivery_rate: 1_000_000,
            bytes_in_flight,
            ..PathView::new(0)
        }
    }

    #[test]
    fn what_is_in_flight_counts_and_not_how_long_it_took_of_late() {
        assert_eq!(acknowledged(&path(0), 1200), 20_000_000);
        assert_eq!(acknowledged(&path(18_800), 1200), 20_000_000);
        assert_eq!(acknowledged(&path(78_800), 1200), 80_000_000);
        assert_eq!(arrived(&path(0), 1200), 10_000_000);
        assert_eq!(arrived(&path(78_800), 1200), 70_000_000);
        let queued = PathView {
            queued: 10_000,
            ..path(68_800)
        };
        assert_eq!(acknowledged(&queued, 1200), 80_000_000);
    }

    #[test]
    fn a_path_that_nothing_is_known_about_is_assumed_to_be_slow() {
        let unknown = PathView::new(0);
        assert_eq!(least_rtt(&unknown), nanos(INITIAL_RTT));
        assert_eq!(service_rate(&unknown), 36_036, "its window in that time");
        let first = PathView {
            smoothed_rtt: Duration::from_millis(50),
            ..unknown
        };
        assert_eq!(least_rtt(&first), 50_000_000);
    }

    #[test]
    fn a_queue_tells_that_what_a_path_delivers_is_what_it_can_although_it_has_no_more_to_send() {
        let with = |smoothed_ms, latest_ms| PathView {
            smoothed_rtt: Duration::from_millis(smoothed_ms),
            latest_rtt: Duration::from_millis(latest_ms),
            delivery_rate: 200_000,
            app_limited: true,
            ..path(12_000)
        };
        let near = |smoothed_ms| with(smoothed_ms, 90);
        let ms = |nanos: u64| nanos / 1_000_000;
        assert_eq!(ms(emptied(&near(25))), 25, "the window's rate");
        assert_eq!(ms(emptied(&near(26))), 60);
        assert_eq!(ms(acknowledged(&near(26), 0)), 26, "if more follows");
        assert_eq!(ms(emptied(&with(26, 25))), 26, "it has drained");
        let unknown = PathView {
            delivery_rate: 0,
            ..near(30)
        };
        assert_eq!(ms(emptied(&unknown)), 30);
        let paced = PathView {
            pacing_rate: 100_000,
            ..near(30)
        };
        assert_eq!(ms(emptied(&paced)), 120, "the pacer lets no more go");
    }

    #[test]
    fn no_value_of_a_view_overflows_or_divides_by_nothing() {
        let endless = PathView {
            bytes_in_flight: u64::MAX,
            queued: u64::MAX,
            congestion_window: 0,
            ..PathView::new(0)
        };
        assert!(acknowledged(&endless, u64::MAX) >= least_rtt(&endless));
    }
}
