//! Reinjection: while flow control stops new data, free paths repeat what much slower ones carry.
//!
//! The peer's credit grows with what is read in order. If the oldest bytes sit in the queue of a
//! slow path, the fast ones have nothing to send until that queue has emptied. What they repeat
//! then takes no credit, and nothing else could have used them; a path half as fast is waited for,
//! since new data would find the copies before it. While one path is slower than that, the oldest
//! packets under way elsewhere are repeated, whichever path carries them.

use super::or_repeat;
use anabranch_proto::sched::{Choice, PathEvent, Scheduler, SendView, Wants, Wrapper};

pub(crate) const ENTRY: Wrapper = Wrapper {
    name: "reinject",
    summary: "while flow control stops new data, free paths repeat what much slower ones carry",
    params: &[],
    build: |_, inner| Ok(around(inner)),
};

/// How many times longer a path must take for its data to be repeated.
const SLOWER: u64 = 2;

/// `inner`, with what holds up the peer's credit repeated.
pub(crate) fn around(inner: Box<dyn Scheduler>) -> Box<dyn Scheduler> {
    Box::new(Reinject { inner })
}

#[derive(Debug)]
struct Reinject {
    inner: Box<dyn Scheduler>,
}

impl Scheduler for Reinject {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        or_repeat(&mut *self.inner, view, true, |own| {
            own.saturating_mul(SLOWER)
        })
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.inner.on_event(event);
    }

    fn wants(&self) -> Wants {
        Wants {
            copies_while_blocked: true,
            ..self.inner.wants()
        }
    }

    fn is_steady(&self) -> bool {
        self.inner.is_steady()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, copy, fresh, hold, idle, path, send};
    use anabranch_proto::sched::{PathView, Reason};

    fn copyable(path: PathView) -> PathView {
        PathView {
            copyable: true,
            ..path
        }
    }

    fn blocked(paths: &[PathView]) -> SendView<'_> {
        let mut view = idle(paths);
        view.backlog.blocked = true;
        view
    }

    #[test]
    fn what_a_much_slower_path_carries_is_repeated_while_credit_is_used_up() {
        let paths = [copyable(path(0, 20, 5)), path(1, 500, 1)];
        let mut reinject = built("reinject+min-rtt");
        assert_eq!(reinject.select(&blocked(&paths)), copy(0));
        assert_eq!(reinject.select(&idle(&paths)), hold(Reason::NoRoom));
        assert_eq!(
            reinject.select(&fresh(&paths)),
            send(0, Reason::LowestRtt),
            "new data goes first"
        );
        assert!(reinject.wants().copies_while_blocked && !reinject.wants().copies);
    }

    #[test]
    fn a_path_half_as_fast_is_waited_for() {
        let paths = [copyable(path(0, 20, 5)), path(1, 38, 1)];
        let mut reinject = built("reinject+min-rtt");
        assert_eq!(reinject.select(&blocked(&paths)), hold(Reason::NoRoom));
        let mut costly = copyable(path(0, 20, 5));
        costly.cost = 1;
        let paths = [costly, path(1, 500, 1)];
        assert_eq!(reinject.select(&blocked(&paths)), hold(Reason::NoRoom));
    }

    #[test]
    fn what_waits_for_the_end_does_not_take_credit_for_it() {
        let paths = [copyable(path(0, 20, 5)), path(1, 38, 1)];
        for spec in ["reinject+tail+min-rtt", "tail+reinject+min-rtt"] {
            let mut both = built(spec);
            assert_eq!(both.select(&idle(&paths)), copy(0), "{spec}");
            let held = both.select(&blocked(&paths));
            assert_eq!(held, hold(Reason::NoRoom), "{spec}");
        }
    }

    #[test]
    fn what_is_around_it_asks_on() {
        for spec in [
            "guard+reinject+min-rtt",
            "tail+reinject+min-rtt",
            "probe+copies+reinject+min-rtt",
        ] {
            assert!(built(spec).wants().copies_while_blocked, "{spec}");
        }
        assert!(!built("tail+min-rtt").wants().copies_while_blocked);
    }
}
