//! The fastest path against the one that could send now, for policies that may wait.

use super::{Choice, PathView, Reason, SendView, UnitKind};
use crate::time::Duration;
use anabranch_wire::PathId;
use anabranch_wire::frame::PathStatus;

/// A retransmission goes to a path that has not carried it, unless that path is slower than one
/// that has by more than this factor. The factor is the one by which MPTCP's opportunistic
/// retransmission judges a path too slow to wait for.
const TOO_SLOW: u32 = 4;

/// The fastest path, and the fastest of those that can send now: what a policy that may wait
/// compares.
#[derive(Debug, Clone, Copy)]
pub struct Contest<'a> {
    /// The candidate with the lowest RTT, full or not.
    pub fastest: &'a PathView,
    /// The candidate with the lowest RTT that can send.
    pub open: &'a PathView,
    only: bool,
}

impl<'a> Contest<'a> {
    /// `None` if no candidate can send.
    ///
    /// What was lost goes to a path that has not carried it, if one is free, and does not wait for
    /// another.
    pub fn of(view: &SendView<'a>) -> Option<Self> {
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

    /// Whether a comparison is pointless: the fastest path can send, or none that can send was
    /// measured.
    pub fn is_decided(&self) -> bool {
        self.open.id == self.fastest.id || self.open.smoothed_rtt.is_zero()
    }

    /// Sends on the path that can.
    pub fn send(&self) -> Choice {
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

/// The order of preference by smoothed RTT: paths without a sample come last, ties go to the lowest
/// ID.
pub fn rank(path: &PathView) -> (bool, Duration, PathId) {
    (path.smoothed_rtt.is_zero(), path.smoothed_rtt, path.id)
}

/// Sends on the candidate with the lowest smoothed RTT that can send, or holds if none can. A path
/// without an RTT sample is unknown, not fast: it comes after all others. Lost data goes to a path
/// that has not carried it, if one can send that is not much slower.
pub fn lowest_rtt(view: &SendView<'_>) -> Choice {
    Contest::of(view).map_or_else(|| view.no_room(), |contest| contest.send())
}

#[cfg(test)]
mod tests {
    use super::super::PathView;
    use super::super::tests::{fresh, full, send};
    use super::*;
    use crate::path::PathSet;

    fn path(id: u32, rtt_ms: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            ..PathView::new(id)
        }
    }

    #[test]
    fn lost_data_takes_a_path_that_has_not_carried_it() {
        let lost = |paths: &[PathView]| {
            let mut view = fresh(paths);
            view.unit.kind = UnitKind::Retransmission;
            view.unit.carried_by = PathSet::from_iter([PathId(0)]);
            lowest_rtt(&view)
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
}
