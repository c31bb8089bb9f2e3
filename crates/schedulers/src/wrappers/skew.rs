//! Order: datagrams whose flow has one go by no path on which they would come too late for it.
//!
//! A receiver that puts datagrams in order waits for a missing one only so long. What comes later
//! has been overtaken, and a congestion control inside the flow takes it for lost. So each such
//! datagram says how much later than by the fastest path it may arrive (`Unit::max_skew`), and
//! paths that are later by more are shown as backups. When it arrives is predicted from what is in
//! flight: measured delays are a round trip old, and while a queue grows that is too old. So a far
//! path is used once the queue of the near one is as long.

use crate::toolkit::units::nanos;
use crate::toolkit::{Demoted, forecast, hold_for, lacks_room};
use anabranch_proto::sched::{
    Choice, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind, Wants, Wrapper, lowest_rtt,
    rank,
};

pub(crate) const ENTRY: Wrapper = Wrapper {
    name: "skew",
    summary: "datagrams that have an order go by no path that is too late for it",
    params: &[],
    build: |_, inner| Ok(Box::new(Skew::new(inner))),
};

/// Shows paths that are too late for a datagram as backups.
#[derive(Debug)]
pub(crate) struct Skew {
    inner: Box<dyn Scheduler>,
    demoted: Demoted,
}

impl Skew {
    pub(crate) fn new(inner: Box<dyn Scheduler>) -> Self {
        Self {
            inner,
            demoted: Demoted::default(),
        }
    }
}

/// Whether the unit is a datagram that has an order.
pub(crate) fn is_ordered(view: &SendView<'_>) -> bool {
    view.unit.kind == UnitKind::Datagram && view.unit.max_skew.is_some()
}

impl Scheduler for Skew {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let max_skew = view.unit.max_skew.filter(|_| is_ordered(view));
        let arrived = |path: &PathView| forecast::arrived(path, view.unit.bytes);
        let shown = max_skew.and_then(|max_skew| {
            let latest = view.candidates().map(arrived).min()? + nanos(max_skew);
            self.demoted.show(view, |path| arrived(path) > latest)
        });
        let Some(shown) = shown else {
            return self.inner.select(view);
        };
        let choice = self.inner.select(&shown);
        if !lacks_room(view, &choice) {
            return choice;
        }
        // A path in time will have room, or becomes doubtful.
        let hold = |path| Some((rank(path), hold_for(view, path, Reason::WaitForBetter)?));
        let holds = shown.candidates().filter_map(hold);
        let soonest = holds.min_by_key(|(rank, _)| *rank);
        soonest.map_or_else(|| lowest_rtt(view), |(_, choice)| choice)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.inner.on_event(event);
    }

    fn wants(&self) -> Wants {
        self.inner.wants()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, fresh, path};
    use anabranch_proto::sched::{Decision, MinRtt};
    use anabranch_proto::time::Duration;
    use anabranch_proto::wire::PathId;

    const FAR: Decision = Decision::Send(PathId(1));

    /// Asks for the path of a datagram that may be so many milliseconds late.
    fn ask(skew: &mut Skew, paths: &[PathView], max_ms: Option<u64>) -> Choice {
        let mut view = fresh(paths);
        view.unit.kind = UnitKind::Datagram;
        view.unit.max_skew = max_ms.map(Duration::from_millis);
        skew.select(&view)
    }

    fn skew() -> Skew {
        Skew::new(Box::new(MinRtt))
    }

    /// A full path of 10 ms each way with so many milliseconds of queue, and a free one of 70 ms.
    fn near_and_far(queue: u64) -> [PathView; 2] {
        const BYTES_IN_MS: u64 = 1200;
        // With the datagram that is asked about.
        let bytes = (20 + queue - 1) * BYTES_IN_MS;
        let near = PathView {
            smoothed_rtt: Duration::from_millis(20),
            min_rtt: Duration::from_millis(20),
            delivery_rate: BYTES_IN_MS * 1000,
            bytes_in_flight: bytes,
            congestion_window: bytes,
            ..PathView::new(0)
        };
        [near, path(1, 140, 9)]
    }

    #[test]
    fn a_datagram_waits_for_the_near_path_where_the_far_one_is_too_late() {
        let held = ask(&mut skew(), &near_and_far(0), Some(59));
        assert_eq!(held, Choice::hold_until(at(20), Reason::WaitForBetter));
        for allowed in [Some(60), None] {
            let choice = ask(&mut skew(), &near_and_far(0), allowed);
            assert_eq!(choice.decision, FAR, "{allowed:?}");
        }
    }

    #[test]
    fn the_queue_of_the_near_path_brings_the_far_one_back() {
        let mut skew = skew();
        for (queue, is_used) in [(0, false), (9, false), (10, true), (30, true)] {
            let choice = ask(&mut skew, &near_and_far(queue), Some(50));
            assert_eq!(choice.decision == FAR, is_used, "a queue of {queue} ms");
        }
    }

    #[test]
    fn what_would_never_end_is_not_waited_for() {
        let [near, far] = near_and_far(0);
        let shut = PathView {
            bytes_in_flight: 0,
            congestion_window: 0,
            ..near
        };
        assert_eq!(ask(&mut skew(), &[shut, far], Some(50)).decision, FAR);
    }

    #[test]
    fn streams_go_by_every_path() {
        let choice = skew().select(&fresh(&near_and_far(0)));
        assert_eq!(choice.decision, FAR);
    }
}
