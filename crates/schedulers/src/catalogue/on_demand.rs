//! On-demand scheduling: decides only when a path really has room, and then which data it takes.
//!
//! A reconstruction after Wallace and Shami (2012). The naive rule of concurrent multipath transfer
//! gives the next data to whichever path has room; that is `round-robin` with `mode=skip`, and it
//! is also how the path is chosen here. The data is what the faster paths do not deliver in the
//! difference of forward delays, as in [`fdps`](super::fdps). At equal delays nothing is skipped
//! and only the naive rule is left. Under loss every skip may become a hole.

use crate::catalogue::delivery_delay::least_delay;
use crate::catalogue::fdps::closed_form;
use crate::toolkit::{Delays, send_behind, skip_limit};
use anabranch_proto::sched::{Choice, Entry, Reason, Scheduler, SendView, UnitKind};
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "ods-like",
    summary: "on demand: whichever path has room sends what faster ones do not deliver first",
    params: &[],
    build: |_| Ok(Box::new(OnDemand::default())),
};

/// Chooses data, not paths.
#[derive(Debug, Default)]
pub(crate) struct OnDemand {
    last: Option<PathId>,
}

impl Scheduler for OnDemand {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let delays = Delays::of(view);
        if view.unit.kind == UnitKind::Retransmission {
            return least_delay(view, &delays);
        }
        let mut ring = view.ring(self.last);
        let Some(path) = ring.find(|path| path.can_send(view.now)) else {
            return view.no_room();
        };
        self.last = Some(path.id);
        if view.unit.kind != UnitKind::Fresh {
            return Choice::send(path.id, Reason::Turn);
        }
        let ahead = closed_form(view, &delays, path, false).min(skip_limit(view, path));
        send_behind(path.id, ahead, Reason::Turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Room, built, fresh, packets, send};
    use anabranch_proto::path::PathState;
    use anabranch_proto::sched::{Decision, PathView};
    use anabranch_proto::time::Duration;

    fn path(id: u32, forward_ms: i64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(100),
            forward_delay_us: Some(forward_ms * 1000),
            delivery_rate: 1_000_000,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    #[test]
    fn the_path_with_room_sends_what_the_faster_one_does_not_deliver_first() {
        let busy = PathView {
            bytes_in_flight: 12_000,
            ..path(0, 10)
        };
        let choice = OnDemand::default().select(&fresh(&[busy, path(1, 50)]));
        let skip = 40_000;
        let path = PathId(1);
        assert_eq!(choice.decision, Decision::SendAt { path, skip });
        let silent = PathView {
            state: PathState::Doubtful,
            ..busy
        };
        let choice = OnDemand::default().select(&fresh(&[silent, self::path(1, 50)]));
        assert_eq!(choice, send(1, Reason::Turn));
    }

    #[test]
    fn at_equal_delays_it_is_naive() {
        let mut ods = built("ods-like");
        assert_eq!(packets(&mut *ods, Room::of(&[9, 0, 9]), 4), "0 2 0 2");
        let choice = ods.select(&fresh(&[path(0, 10), path(1, 10)]));
        assert_eq!(choice, send(0, Reason::Turn));
        let choice = ods.select(&fresh(&[path(0, 10), path(1, 10)]));
        assert_eq!(choice, send(1, Reason::Turn));
    }
}
