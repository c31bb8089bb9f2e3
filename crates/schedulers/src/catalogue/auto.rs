//! What to use without knowing the links: the policy that loses least often to the better of them.
//!
//! Today that is the lowest RTT first, with the end of a transfer and what holds up the peer's
//! credit repeated where they come sooner (`reinject+tail+min-rtt`). Datagrams whose flow has an
//! order go where they are predicted to arrive first (`skew+edpf-like`), so that they hardly
//! overtake each other. What is measured to be better takes its place under the same name, so there
//! is nothing to set: `docs/auto.md` has the measure and how the engine helps.

use super::edpf::EarliestDelivery;
use crate::wrappers::skew::{Skew, is_ordered};
use crate::wrappers::{reinject, tail};
use anabranch_proto::sched::{Choice, Entry, MinRtt, PathEvent, Scheduler, SendView, Wants};

pub(crate) const ENTRY: Entry = Entry {
    name: crate::RECOMMENDED,
    summary: "needs no choice: the lowest RTT first, repairs where they come sooner",
    params: &[],
    build: |_| {
        Ok(Box::new(Auto {
            rest: reinject::around(tail::around(Box::new(MinRtt))),
            ordered: Skew::new(Box::<EarliestDelivery>::default()),
        }))
    },
};

/// A policy for datagrams that have an order, and one for the rest.
#[derive(Debug)]
struct Auto {
    rest: Box<dyn Scheduler>,
    /// For datagrams that have an order.
    ordered: Skew,
}

impl Scheduler for Auto {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if is_ordered(view) {
            self.ordered.select(view)
        } else {
            self.rest.select(view)
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.rest.on_event(event);
        self.ordered.on_event(event);
    }

    fn wants(&self) -> Wants {
        self.rest.wants()
    }

    fn is_steady(&self) -> bool {
        self.rest.is_steady()
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{built, fresh, idle, path};
    use anabranch_proto::sched::{PathView, SendView, UnitKind};
    use anabranch_proto::time::Duration;

    const PARTS: &str = "reinject+tail+min-rtt";
    const ORDERED: &str = "skew+edpf-like";

    fn answers(spec: &str, view: &SendView<'_>) -> String {
        format!("{:?}", built(spec).select(view))
    }

    #[test]
    fn auto_is_what_it_is_said_to_be_made_of() {
        let copyable = |path: PathView| PathView {
            copyable: true,
            ..path
        };
        let free = [copyable(path(0, 10, 9)), path(1, 90, 1)];
        let same = [copyable(path(0, 10, 9)), path(1, 10, 1)];
        for paths in [&free, &same] {
            for blocked in [false, true] {
                let mut view = idle(paths);
                view.backlog.blocked = blocked;
                assert_eq!(answers("auto", &view), answers(PARTS, &view));
            }
        }
        assert!(answers("auto", &idle(&free)).contains("Copy"));
        let auto = built("auto");
        assert!(auto.wants().copies && auto.wants().copies_while_blocked);
    }

    #[test]
    fn datagrams_that_have_an_order_go_where_they_arrive_first() {
        let queued = PathView {
            queued: 100_000,
            ..path(0, 10, 9)
        };
        let paths = [queued, path(1, 90, 9)];
        let mut view = fresh(&paths);
        view.unit.kind = UnitKind::Datagram;
        assert_eq!(answers("auto", &view), answers(PARTS, &view));
        view.unit.max_skew = Some(Duration::from_millis(50));
        assert_eq!(answers("auto", &view), answers(ORDERED, &view));
        assert_ne!(answers("auto", &view), answers(PARTS, &view));
    }
}
