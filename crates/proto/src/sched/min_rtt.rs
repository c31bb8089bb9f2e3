//! Lowest RTT first: fill the path with the lowest smoothed RTT, then the next.
//!
//! The plain policy, and the one others fall back to. It never leaves a path idle while data
//! waits, so a slow path can hold up in-order delivery; that is the price of its simplicity.

use super::{Choice, Entry, Scheduler, SendView, lowest_rtt};

pub(super) const ENTRY: Entry = Entry {
    name: "min-rtt",
    summary: "the lowest smoothed RTT that has room; spills to the next when full",
    params: &[],
    build: |_| Ok(Box::new(MinRtt)),
};

/// Chooses the path with the lowest smoothed RTT that has room.
#[derive(Debug, Clone, Copy, Default)]
pub struct MinRtt;

impl Scheduler for MinRtt {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        lowest_rtt(view)
    }

    fn is_steady(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fresh, hold, lost, send};
    use super::super::{PathView, Reason};
    use super::*;
    use crate::time::Duration;
    use anabranch_wire::frame::PathStatus;

    fn path(id: u32, rtt_ms: u64, packets: u64) -> PathView {
        let mut path = PathView::new(id);
        path.smoothed_rtt = Duration::from_millis(rtt_ms);
        path.bytes_in_flight = path.congestion_window - packets * 1200;
        path
    }

    #[test]
    fn the_lowest_rtt_is_filled_first() {
        let ask = |a, b| MinRtt.select(&fresh(&[a, b]));
        let first = send(0, Reason::LowestRtt);
        assert_eq!(ask(path(0, 20, 1), path(1, 50, 1)), first);
        assert_eq!(ask(path(0, 20, 0), path(1, 50, 1)), send(1, Reason::Spill));
        assert_eq!(ask(path(0, 20, 0), path(1, 50, 0)), hold(Reason::NoRoom));
        assert_eq!(ask(path(0, 50, 1), path(1, 50, 1)), first);
    }

    #[test]
    fn an_unsampled_path_is_unknown_and_not_fast() {
        let ask = |a, b| MinRtt.select(&fresh(&[a, b]));
        let second = send(1, Reason::LowestRtt);
        assert_eq!(ask(path(0, 0, 1), path(1, 50, 1)), second);
        assert_eq!(ask(path(0, 0, 1), path(1, 50, 0)), send(0, Reason::Spill));
    }

    #[test]
    fn lost_data_goes_to_a_path_that_has_not_carried_it() {
        let ask = |a, b| MinRtt.select(&lost(&[a, b], &[0]));
        let first = |id| send(id, Reason::LowestRtt);
        assert_eq!(ask(path(0, 20, 1), path(1, 50, 1)), first(1));
        assert_eq!(ask(path(0, 20, 1), path(1, 50, 0)), first(0));
        let choice = ask(path(0, 20, 1), path(1, 90, 1));
        assert_eq!(choice, first(0), "too slow to help");
    }

    #[test]
    fn the_reason_tells_when_there_was_no_choice() {
        let only = MinRtt.select(&fresh(&[path(3, 20, 1)]));
        assert_eq!(only, send(3, Reason::OnlyPath));
        let backup = PathView {
            status: PathStatus::Backup,
            ..path(1, 20, 1)
        };
        let choice = MinRtt.select(&fresh(&[backup]));
        assert_eq!(choice, send(1, Reason::Backup));
    }
}
