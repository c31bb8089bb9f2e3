//! Bandwidth-aware scheduling: the path whose data in flight, and the unit with it, is delivered
//! first.
//!
//! A reconstruction after Casetti and Gaiotto (2004, Westwood SCTP): the time is what is in flight
//! and bound to the path, over its bandwidth. Propagation does not count. If the path with the
//! least time is full the unit waits for it, for as long as an acknowledgement may take.

use crate::toolkit::units::{FOREVER, time_for};
use crate::toolkit::{Patience, bandwidth, carried, unit};
use anabranch_proto::sched::{Choice, Entry, PathEvent, PathView, Reason, Scheduler, SendView};

pub(crate) const ENTRY: Entry = Entry {
    name: "bas-like",
    summary: "bandwidth-aware: the least outstanding data for its bandwidth, or wait for it",
    params: &[],
    build: |_| Ok(Box::new(BandwidthAware::default())),
};

/// Chooses the least time to deliver what is in flight.
#[derive(Debug, Default)]
pub(crate) struct BandwidthAware {
    patience: Patience,
}

/// Nanoseconds until `path` has delivered what it carries and the unit; a path without a rate is
/// unknown and comes last.
fn time(view: &SendView<'_>, path: &PathView) -> u64 {
    let carries = path.bytes_in_flight.saturating_add(path.queued);
    match bandwidth(path) {
        0 => FOREVER,
        rate => time_for(carries.saturating_add(unit(view, path)), rate).min(FOREVER - 1),
    }
}

impl Scheduler for BandwidthAware {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if view.ready().next().is_none() {
            return view.no_room();
        }
        let key = |path: &&PathView| (carried(view, path), time(view, path), path.id);
        // What no rate is known of is not waited for.
        let worthwhile = |path: &&PathView| path.can_send(view.now) || bandwidth(path) > 0;
        match view.candidates().filter(worthwhile).min_by_key(key) {
            Some(best) if best.can_send(view.now) => {
                self.patience.end();
                Choice::send(best.id, Reason::EarliestArrival)
            }
            Some(best) => self.patience.wait_for(view, best, Reason::WaitForBetter),
            None => view.no_room(),
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, fresh, send};
    use anabranch_proto::path::PathSet;
    use anabranch_proto::sched::{Decision, UnitKind};
    use anabranch_proto::time::Duration;
    use anabranch_proto::wire::PathId;

    fn path(id: u32, rate: u64, in_flight: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(20),
            delivery_rate: rate,
            bytes_in_flight: in_flight,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    fn view(paths: &[PathView]) -> SendView<'_> {
        let mut view = fresh(paths);
        view.unit.bytes = 1000;
        view
    }

    #[test]
    fn the_least_time_to_deliver_what_is_outstanding_wins() {
        let paths = [path(0, 2_000_000, 10_000), path(1, 1_000_000, 3000)];
        let times = paths.map(|path| time(&view(&paths), &path));
        assert_eq!(times, [5_500_000, 4_000_000]);
        let choice = BandwidthAware::default().select(&view(&paths));
        assert_eq!(choice, send(1, Reason::EarliestArrival));
    }

    #[test]
    fn a_full_path_with_the_least_time_is_waited_for() {
        let paths = [path(0, 20_000_000, 12_000), path(1, 1_000_000, 3000)];
        let mut bas = BandwidthAware::default();
        let choice = bas.select(&view(&paths));
        assert_eq!(choice, Choice::hold_until(at(20), Reason::WaitForBetter));
        let mut later = view(&paths);
        later.now = at(20);
        assert!(matches!(bas.select(&later).decision, Decision::Send(_)));
    }

    #[test]
    fn a_path_without_a_rate_comes_last_and_is_not_waited_for() {
        let unknown = PathView {
            smoothed_rtt: Duration::ZERO,
            ..path(0, 0, 0)
        };
        let mut bas = BandwidthAware::default();
        let choice = bas.select(&view(&[unknown, path(1, 1000, 3000)]));
        assert_eq!(choice, send(1, Reason::EarliestArrival));
        let choice = bas.select(&view(&[unknown]));
        assert_eq!(choice, send(0, Reason::EarliestArrival));
    }

    #[test]
    fn lost_data_prefers_a_path_that_has_not_carried_it() {
        let paths = [path(0, 9_000_000, 0), path(1, 1_000_000, 0)];
        let mut view = view(&paths);
        view.unit.kind = UnitKind::Retransmission;
        view.unit.carried_by = PathSet::from_iter([PathId(0)]);
        let choice = BandwidthAware::default().select(&view);
        assert_eq!(choice, send(1, Reason::EarliestArrival));
    }
}
