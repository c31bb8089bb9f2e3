//! Delivery delay: the path with the least forward delay that has room, whatever its way back.
//!
//! After Alam (Bremen 2016): an RTT is the sum of two delays and only one of them is the data's.
//! The forward delay is measured with clocks that are not synchronised; the offset is common to
//! all paths and so changes no choice. Windows still open once per RTT. Where delays are not
//! measured on every path, half the RTT stands in, which makes this the lowest RTT.

use crate::toolkit::{Delays, carried, lowest_by};
use anabranch_proto::sched::{Choice, Entry, Reason, Scheduler, SendView};

pub(crate) const ENTRY: Entry = Entry {
    name: "delivery-delay",
    summary: "the least forward delay that has room, whatever the way back takes",
    params: &[],
    build: |_| Ok(Box::new(DeliveryDelay)),
};

/// Chooses the least forward delay; keeps no state.
#[derive(Debug, Default)]
pub(crate) struct DeliveryDelay;

impl Scheduler for DeliveryDelay {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        least_delay(view, &Delays::of(view))
    }
}

/// Sends on the candidate with the least forward delay that can send, or holds if none can. Data
/// that was lost goes first to paths that have not carried it.
pub(super) fn least_delay(view: &SendView<'_>, delays: &Delays) -> Choice {
    lowest_by(
        view,
        |path| (carried(view, path), delays.rank(path), path.id),
        Reason::EarliestArrival,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{fresh, full, hold, send};
    use anabranch_proto::path::PathSet;
    use anabranch_proto::sched::{PathView, UnitKind};
    use anabranch_proto::time::Duration;
    use anabranch_proto::wire::PathId;

    fn path(id: u32, rtt_ms: u64, forward_us: i64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            forward_delay_us: Some(forward_us),
            ..PathView::new(id)
        }
    }

    #[test]
    fn the_least_forward_delay_goes_first_under_any_clock() {
        for offset in [0, 1_000_000, -1_000_000_000, i64::MAX - 200, i64::MIN] {
            let paths = [path(0, 50, 126 + offset), path(1, 50, 128 + offset)];
            let choice = DeliveryDelay.select(&fresh(&paths));
            assert_eq!(choice, send(0, Reason::EarliestArrival), "{offset}");
        }
    }

    #[test]
    fn a_long_way_back_does_not_matter() {
        // 10 ms forth and 200 ms back against 50 ms and 10 ms.
        let paths = [path(0, 210, 10_000), path(1, 60, 50_000)];
        let choice = DeliveryDelay.select(&fresh(&paths));
        assert_eq!(choice, send(0, Reason::EarliestArrival));
        let choice = anabranch_proto::sched::lowest_rtt(&fresh(&paths));
        assert_eq!(choice, send(1, Reason::LowestRtt));
    }

    #[test]
    fn a_full_path_is_passed_over_and_then_comes_back() {
        // The published selector: 340,199 us and 340,200 us.
        let one = path(0, 340, 340_199);
        let two = path(1, 340, 340_200);
        let stuffed = |path: PathView| PathView {
            bytes_in_flight: path.congestion_window,
            ..path
        };
        let ask = |paths: &[PathView]| DeliveryDelay.select(&fresh(paths));
        assert_eq!(ask(&[stuffed(one), stuffed(two)]), hold(Reason::NoRoom));
        assert_eq!(ask(&[stuffed(one), two]), send(1, Reason::Spill));
        assert_eq!(ask(&[one, two]), send(0, Reason::EarliestArrival));
        assert_eq!(ask(&[one, two]), send(0, Reason::EarliestArrival));
    }

    #[test]
    fn lost_data_goes_to_a_path_that_has_not_carried_it() {
        let paths = [path(0, 20, 10_000), path(1, 80, 40_000)];
        let mut view = fresh(&paths);
        view.unit.kind = UnitKind::Retransmission;
        view.unit.carried_by = PathSet::from_iter([PathId(0)]);
        assert_eq!(
            DeliveryDelay.select(&view),
            send(1, Reason::EarliestArrival)
        );
        let alone = [path(0, 20, 10_000), full(1)];
        view.paths = &alone;
        assert_eq!(DeliveryDelay.select(&view), send(0, Reason::Spill));
    }
}
