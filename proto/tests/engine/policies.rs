//! Schedulers so simple that a test need not think about them.

use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{
    Choice, Decision, PathView, Reason, Scheduler, SchedulerFactory, SendView,
};
use anabranch_proto::wire::PathId;

/// The paths take turns, packet by packet; full ones are passed over.
pub(crate) fn turns() -> SchedulerFactory {
    SchedulerFactory::from_fn("turns", || Box::new(Turns::default()))
}

/// Everything goes on every path that has room.
pub(crate) fn everywhere() -> SchedulerFactory {
    SchedulerFactory::from_fn("everywhere", || Box::new(Everywhere))
}

#[derive(Debug, Default)]
struct Turns {
    last: Option<PathId>,
}

impl Scheduler for Turns {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let open = |path: &&PathView| path.can_send(view.now);
        let Some(next) = view.ring(self.last).find(open) else {
            return view.no_room();
        };
        self.last = Some(next.id);
        Choice::send(next.id, Reason::Turn)
    }
}

#[derive(Debug)]
struct Everywhere;

impl Scheduler for Everywhere {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let all: PathSet = view.ready().map(|path| path.id).collect();
        match view.ready().next() {
            None => view.no_room(),
            Some(only) if all.len() == 1 => Choice::send(only.id, Reason::OnlyPath),
            Some(_) => Choice {
                decision: Decision::Duplicate(all),
                reason: Reason::Redundancy,
            },
        }
    }
}
