//! Numbers that several policies derive from a view, safe for any value a view can hold.
//!
//! Sizes and times are bounded before they are multiplied, far beyond what a link can have, so that
//! no product overflows 128 bits.

use super::min_rtt::rank;
use super::{Choice, PathView, Reason, SendView, UnitKind};
use crate::time::Duration;
use anabranch_wire::frame::PathStatus;

/// What a path without any sample is taken to need for a round trip: RFC 9002, section 6.2.2.
const INITIAL_RTT: Duration = Duration::from_millis(333);

/// A retransmission goes to a path that has not carried it, unless that path is slower than one
/// that has by more than this factor. The factor is the one by which MPTCP's opportunistic
/// retransmission judges a path too slow to wait for.
const TOO_SLOW: u32 = 4;

/// Whole microseconds, at least 1 and below 2^40.
pub(super) fn micros(time: Duration) -> u128 {
    time.as_micros().clamp(1, (1 << 40) - 1)
}

/// Bytes, below 2^48.
pub(super) fn size(bytes: u64) -> u128 {
    u128::from(bytes.min((1 << 48) - 1))
}

/// Bytes of one full packet, at least 1.
pub(super) fn packet(path: &PathView) -> u64 {
    u64::from(path.max_datagram_size).max(1)
}

/// Bytes per second that a window lets through at this RTT; an unsampled path is taken for slow.
pub(super) fn window_rate(path: &PathView) -> u64 {
    let rtt = if path.smoothed_rtt.is_zero() {
        INITIAL_RTT
    } else {
        path.smoothed_rtt
    };
    let rate = size(path.congestion_window) * 1_000_000 / micros(rtt);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Bytes per second that a path is believed to carry: what it delivered lately, or else what its
/// window lets through.
pub(super) fn rate(path: &PathView) -> u64 {
    if path.delivery_rate > 0 {
        path.delivery_rate
    } else {
        window_rate(path)
    }
}

/// The path that policies of waiting would rather use, and the one that could send now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contest<'a> {
    /// The lowest RTT of all candidates, full or not.
    pub(super) fastest: &'a PathView,
    /// The lowest RTT of those that can send.
    pub(super) open: &'a PathView,
    only: bool,
}

impl<'a> Contest<'a> {
    /// `None` if no candidate can send.
    ///
    /// What was lost goes to a path that has not carried it, if one is free, and does not wait for
    /// another.
    pub(super) fn of(view: &SendView<'a>) -> Option<Self> {
        let mut fastest: Option<&PathView> = None;
        let mut open: Option<&PathView> = None;
        let mut unused: Option<&PathView> = None;
        let mut count = 0;
        let again = view.unit.kind == UnitKind::Retransmission;
        let better = |than: Option<&PathView>, path: &PathView| {
            than.is_none_or(|than| rank(path) < rank(than))
        };
        for path in view.candidates() {
            count += 1;
            if better(fastest, path) {
                fastest = Some(path);
            }
            if !path.can_send(view.now) {
                continue;
            }
            if better(open, path) {
                open = Some(path);
            }
            if again && !view.unit.carried_by.contains(path.id) && better(unused, path) {
                unused = Some(path);
            }
        }
        let (mut fastest, mut open) = (fastest?, open?);
        if let Some(unused) = unused
            && (open.smoothed_rtt.is_zero()
                || unused.smoothed_rtt <= open.smoothed_rtt.saturating_mul(TOO_SLOW))
        {
            (fastest, open) = (unused, unused);
        }
        let only = count == 1;
        Some(Self {
            fastest,
            open,
            only,
        })
    }

    /// Whether there is nothing to weigh: the fastest path can send, or no path that was measured.
    pub(super) fn is_decided(&self) -> bool {
        self.open.id == self.fastest.id || self.open.smoothed_rtt.is_zero()
    }

    /// Sends on the path that can.
    pub(super) fn send(&self) -> Choice {
        let is_first = self.open.id == self.fastest.id;
        let reason = match (self.open.status, self.only, is_first) {
            (PathStatus::Backup, ..) => Reason::Backup,
            (_, true, _) => Reason::OnlyPath,
            (.., true) => Reason::LowestRtt,
            (.., false) => Reason::Spill,
        };
        Choice::send(self.open.id, reason)
    }
}

/// The lowest RTT that can send, lost data by a path that has not carried it.
pub(super) fn lowest_rtt_unused(view: &SendView<'_>) -> Choice {
    Contest::of(view).map_or_else(|| view.no_room(), |contest| contest.send())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fresh, full, send};
    use super::super::{PathSet, PathView};
    use super::*;
    use anabranch_wire::PathId;

    fn path(id: u32, rtt_ms: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            ..PathView::new(id)
        }
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let largest = size(u64::MAX) * micros(Duration::MAX);
        assert!(largest.checked_mul(1 << 16).is_some());
        assert_eq!(micros(Duration::ZERO), 1);
        let endless = PathView {
            congestion_window: u64::MAX,
            smoothed_rtt: Duration::MAX,
            ..PathView::new(0)
        };
        assert!(window_rate(&endless) > 0);
    }

    #[test]
    fn lost_data_takes_a_path_that_has_not_carried_it() {
        let lost = |paths: &[PathView]| {
            let mut view = fresh(paths);
            view.unit.kind = UnitKind::Retransmission;
            view.unit.carried_by = PathSet::from_iter([PathId(0)]);
            lowest_rtt_unused(&view)
        };
        assert_eq!(
            lost(&[path(0, 20), path(1, 80)]),
            send(1, Reason::LowestRtt)
        );
        let full = PathView {
            smoothed_rtt: Duration::from_millis(80),
            ..full(1)
        };
        assert_eq!(lost(&[path(0, 20), full]), send(0, Reason::LowestRtt));
        let slow = path(1, 81);
        assert_eq!(
            lost(&[path(0, 20), slow]),
            send(0, Reason::LowestRtt),
            "too slow"
        );
    }

    #[test]
    fn a_rate_is_what_was_delivered_or_what_the_window_allows() {
        let mut path = path(0, 100);
        assert_eq!(rate(&path), 120_000);
        path.delivery_rate = 7;
        assert_eq!(rate(&path), 7);
    }
}
