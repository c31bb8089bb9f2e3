//! The tail: with nothing new to send, free paths repeat what slower ones still carry.
//!
//! So the end of a transfer does not take as long as the slowest path. Only faster paths repeat,
//! and only those that cost nothing: the data of an application that leaves room is on the fastest
//! path already and stays there alone.

use super::or_repeat;
use anabranch_proto::sched::{Choice, PathEvent, Scheduler, SendView, Wants, Wrapper};

pub(crate) const ENTRY: Wrapper = Wrapper {
    name: "tail",
    summary: "with nothing new to send, free faster paths repeat what slower ones carry",
    params: &[],
    build: |_, inner| Ok(around(inner)),
};

/// `inner`, with its tail repeated.
pub(crate) fn around(inner: Box<dyn Scheduler>) -> Box<dyn Scheduler> {
    Box::new(Tail { inner })
}

/// Times of paths that differ by less than this part count as equal.
const MARGIN: u64 = 4;

#[derive(Debug)]
struct Tail {
    inner: Box<dyn Scheduler>,
}

impl Scheduler for Tail {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        or_repeat(&mut *self.inner, view, false, |own| {
            own.saturating_add(own / MARGIN)
        })
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.inner.on_event(event);
    }

    fn wants(&self) -> Wants {
        Wants {
            copies: true,
            ..self.inner.wants()
        }
    }

    fn is_steady(&self) -> bool {
        self.inner.is_steady()
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{built, copy, fresh, hold, idle, path, send};
    use anabranch_proto::sched::{PathView, Reason};
    use anabranch_proto::time::Duration;

    fn with_copy(rtt: u64) -> PathView {
        PathView {
            copyable: true,
            ..path(0, rtt, 1)
        }
    }

    #[test]
    fn an_idle_path_repeats_what_slower_ones_carry() {
        let ask = |a, b| built("tail+min-rtt").select(&idle(&[a, b]));
        assert_eq!(ask(with_copy(20), path(1, 50, 1)), copy(0));
        assert_eq!(ask(with_copy(20), path(1, 24, 1)), hold(Reason::NoRoom));
        let empty = path(1, 50, 10);
        assert_eq!(empty.bytes_in_flight, 0);
        assert_eq!(ask(with_copy(20), empty), hold(Reason::NoRoom));
        let costly = PathView {
            cost: 1,
            ..with_copy(20)
        };
        assert_eq!(ask(costly, path(1, 50, 1)), hold(Reason::NoRoom));
    }

    #[test]
    fn a_path_whose_queue_has_drained_repeats_although_it_was_slow_of_late() {
        let fast = PathView {
            min_rtt: Duration::from_millis(4),
            delivery_rate: 25_000_000,
            bytes_in_flight: 0,
            ..with_copy(40)
        };
        let slow = PathView {
            min_rtt: Duration::from_millis(6),
            delivery_rate: 500_000,
            bytes_in_flight: 39_000,
            ..path(1, 36, 1)
        };
        assert_eq!(built("tail+min-rtt").select(&idle(&[fast, slow])), copy(0));
        let drained = PathView {
            bytes_in_flight: 1200,
            ..slow
        };
        let queue = PathView {
            congestion_window: 1_000_000,
            bytes_in_flight: 900_000,
            ..fast
        };
        let choice = built("tail+min-rtt").select(&idle(&[queue, drained]));
        assert_eq!(choice, hold(Reason::NoRoom), "it has a queue itself");
    }

    #[test]
    fn while_something_waits_the_scheduler_inside_decides() {
        let paths = [with_copy(20), path(1, 50, 1)];
        let mut around = built("tail+min-rtt");
        assert!(around.wants().copies && !around.wants().copies_while_busy);
        assert_eq!(around.select(&fresh(&paths)), send(0, Reason::LowestRtt));
    }

    #[test]
    fn a_scheduler_that_copies_itself_comes_first() {
        let mut paths = [with_copy(20), path(1, 50, 1)];
        paths[1].copyable = true;
        assert_eq!(built("tail+redundant").select(&idle(&paths)), copy(0));
        paths[0].copyable = false;
        let choice = built("tail+redundant").select(&idle(&paths));
        assert_eq!(
            choice,
            copy(1),
            "the slower path, which tail alone leaves out"
        );
    }

    #[test]
    fn a_backup_repeats_nothing() {
        let out = PathView {
            status: anabranch_proto::wire::frame::PathStatus::Backup,
            ..with_copy(20)
        };
        let choice = built("tail+min-rtt").select(&idle(&[out, path(1, 50, 1)]));
        assert_eq!(choice, hold(Reason::NoRoom));
    }
}
