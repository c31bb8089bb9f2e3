//! Schedulers so simple that a test need not think about them.

use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{
    Choice, Decision, PathEvent, PathView, Reason, Scheduler, SchedulerFactory, SendView, Wants,
};
use anabranch_proto::wire::PathId;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Asks a function.
pub(crate) struct Ask<F> {
    answer: F,
    copies: bool,
    /// What it was told.
    pub(crate) events: Arc<Mutex<Vec<PathEvent>>>,
}

impl<F> Ask<F> {
    pub(crate) fn new(answer: F) -> Self {
        Self {
            answer,
            copies: false,
            events: Arc::default(),
        }
    }

    /// One that is asked for copies as well.
    pub(crate) fn copying(answer: F) -> Self {
        Self {
            copies: true,
            ..Self::new(answer)
        }
    }
}

impl<F> fmt::Debug for Ask<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ask")
    }
}

impl<F: FnMut(&SendView<'_>) -> Choice + Send> Scheduler for Ask<F> {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        (self.answer)(view)
    }

    fn on_event(&mut self, event: &PathEvent) {
        let mut events = self.events.lock().expect("no test thread panicked");
        events.push(*event);
    }

    fn wants(&self) -> Wants {
        let copies = if self.copies {
            Wants::COPIES
        } else {
            Wants::default()
        };
        Wants {
            streams: true,
            ..copies
        }
    }
}

/// All paths that a scheduler is shown.
pub(crate) fn all_of(view: &SendView<'_>) -> PathSet {
    view.paths.iter().map(|path| path.id).collect()
}

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
