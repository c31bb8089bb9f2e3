//! One scheduler for each class of traffic.

use anabranch_proto::sched::{
    Choice, MAX_CLASSES, PathEvent, PathView, Scheduler, SchedulerFactory, SendView, UnitKind,
    Wants,
};
use std::fmt;

/// A scheduler made of one for each class of traffic.
///
/// An application gives its streams and datagrams classes (`set_class`, `DatagramOptions::class`).
/// What has a class with a scheduler of its own is placed by that one, and everything else by the
/// first. The engine asks about each class by itself, so that one whose scheduler holds keeps no
/// other waiting, and asks about copies for each class that has something under way.
///
/// All of them see the same paths: windows are shared, as are flow control and buffers.
///
/// ```
/// use anabranch_proto::sched::SchedulerFactory;
/// use anabranch_schedulers::{Classes, Names};
///
/// const VOICE: u8 = 1;
/// let names = Names::default();
/// let voice = names.scheduler("redundant:datagrams=copy")?;
/// let factory = Classes::factory(names.scheduler("auto")?, vec![(VOICE, voice)]);
/// assert_eq!(factory.name(), "auto, class 1: redundant:datagrams=copy");
/// # Ok::<(), anabranch_proto::spec::SpecError>(())
/// ```
pub struct Classes {
    /// The first, then those of further classes.
    inner: Vec<Box<dyn Scheduler>>,
    /// Which of them a class has.
    of: [usize; MAX_CLASSES],
    /// The classes that there was data of. The wishes of schedulers for others cost nothing.
    seen: [bool; MAX_CLASSES],
    /// The paths without what could be copied, for those who want no copies.
    plain: Vec<PathView>,
}

impl Classes {
    /// `first`, and `others` for these classes; of two for the same class the later one counts.
    ///
    /// # Panics
    /// If a class is [`MAX_CLASSES`] or higher.
    pub fn new(first: Box<dyn Scheduler>, others: Vec<(u8, Box<dyn Scheduler>)>) -> Self {
        let mut classes = Self {
            inner: vec![first],
            of: [0; MAX_CLASSES],
            seen: [false; MAX_CLASSES],
            plain: Vec::new(),
        };
        for (class, scheduler) in others {
            classes.of[usize::from(class)] = classes.inner.len();
            classes.inner.push(scheduler);
        }
        classes
    }

    /// Builds them for each connection.
    ///
    /// # Panics
    /// If a class is [`MAX_CLASSES`] or higher.
    pub fn factory(
        first: SchedulerFactory,
        others: Vec<(u8, SchedulerFactory)>,
    ) -> SchedulerFactory {
        let mut names = vec![first.name().to_owned()];
        for (class, scheduler) in &others {
            assert!(
                usize::from(*class) < MAX_CLASSES,
                "class {class} is above the highest, {}",
                MAX_CLASSES - 1
            );
            names.push(format!("class {class}: {}", scheduler.name()));
        }
        SchedulerFactory::from_fn(names.join(", "), move || {
            let others = others.iter();
            let others = others.map(|(class, scheduler)| (*class, scheduler.build()));
            Box::new(Self::new(first.build(), others.collect()))
        })
    }
}

/// Whether a scheduler is one for copies, as things are now.
fn makes_copies(inner: &dyn Scheduler, view: &SendView<'_>) -> bool {
    if view.unit.kind != UnitKind::Idle || view.backlog.total() > 0 {
        inner.wants().copies_while_busy
    } else {
        inner.wants().idle_copies(view.backlog.blocked)
    }
}

impl Scheduler for Classes {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let class = usize::from(view.unit.class).min(MAX_CLASSES - 1);
        self.seen[class] = true;
        let inner = &mut self.inner[self.of[class]];
        if makes_copies(&**inner, view) {
            return inner.select(view);
        }
        if view.unit.kind == UnitKind::Idle {
            return view.no_room();
        }
        // What another class may copy now is not for this one to see.
        if !view.paths.iter().any(|path| path.copyable) {
            return inner.select(view);
        }
        self.plain.clear();
        self.plain.extend(view.paths.iter().map(|path| PathView {
            copyable: false,
            copyable_since: None,
            ..*path
        }));
        inner.select(&SendView {
            paths: &self.plain,
            ..*view
        })
    }

    fn on_event(&mut self, event: &PathEvent) {
        for inner in &mut self.inner {
            inner.on_event(event);
        }
    }

    fn wants(&self) -> Wants {
        // Copies are for the first scheduler and for those whose class there was data of.
        let used = (0..MAX_CLASSES).filter(|class| *class == 0 || self.seen[*class]);
        let used = used.map(|class| self.inner[self.of[class]].wants());
        Wants {
            streams: self.inner.iter().any(|inner| inner.wants().streams),
            ..used.fold(Wants::default(), Wants::or)
        }
    }
}

impl fmt::Debug for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = (0..MAX_CLASSES).map(|class| (class, &self.inner[self.of[class]]));
        f.debug_map().entries(inner).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{copy, fresh, full, idle, send};
    use crate::{Names, ORDERED, SteeringMode, steered};
    use anabranch_proto::path::PathSet;
    use anabranch_proto::sched::{Decision, Reason};
    use anabranch_proto::time::Duration;
    use anabranch_proto::wire::PathId;

    fn factory(text: &str) -> SchedulerFactory {
        Names::default().scheduler(text).unwrap()
    }

    fn path(id: u32, rtt: u64, priority: i32) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt),
            priority,
            ..PathView::new(id)
        }
    }

    fn ask(scheduler: &mut dyn Scheduler, paths: &[PathView], class: u8) -> Choice {
        let mut view = fresh(paths);
        view.unit.class = class;
        scheduler.select(&view)
    }

    #[test]
    fn each_class_is_placed_by_its_own_scheduler_and_the_rest_by_the_first() {
        let others = vec![(1, factory("priority")), (7, factory("round-robin"))];
        let mut classes = Classes::factory(factory("min-rtt"), others).build();
        let paths = [path(0, 10, 0), path(1, 50, 3)];
        for class in [0, 2, 6] {
            let chosen = send(0, Reason::LowestRtt);
            assert_eq!(ask(&mut *classes, &paths, class), chosen, "{class}");
        }
        assert_eq!(ask(&mut *classes, &paths, 1), send(1, Reason::Priority));
        let turns = [0, 1, 0].map(|_| ask(&mut *classes, &paths, 7));
        assert_eq!(turns[1], send(1, Reason::Turn));
        assert_eq!(turns[0], turns[2]);
    }

    #[test]
    fn copies_are_for_the_classes_that_want_them() {
        let others = vec![(5, factory("redundant"))];
        let mut classes = Classes::factory(factory("min-rtt"), others).build();
        assert!(!classes.wants().copies, "there is nothing of that class");
        ask(&mut *classes, &[full(0), path(1, 50, 3)], 5);
        assert!(classes.wants().copies && classes.wants().copies_while_busy);
        let copyable = PathView {
            copyable: true,
            ..path(1, 50, 0)
        };
        let paths = [full(0), copyable];
        for busy in [false, true] {
            let mut view = idle(&paths);
            view.backlog.unsent = u64::from(busy) * 5000;
            assert_eq!(classes.select(&view), view.no_room());
            view.unit.class = 5;
            assert_eq!(classes.select(&view), copy(1));
        }
        assert!(matches!(
            ask(&mut *classes, &paths, 0).decision,
            Decision::Send(PathId(1))
        ));
    }

    #[test]
    fn the_five_modes_have_fixed_numbers_and_steer_their_class() {
        let numbers = SteeringMode::ALL.map(|mode| (mode.class(), mode.name()));
        let expected = [
            (1, "active-standby"),
            (2, "smallest-delay"),
            (3, "load-balancing"),
            (4, "priority-based"),
            (5, "redundant"),
        ];
        assert_eq!(numbers, expected);
        for mode in SteeringMode::ALL {
            assert_eq!(SteeringMode::of_class(mode.class()), Some(mode));
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert_eq!(SteeringMode::of_class(0), None);
        assert_eq!(SteeringMode::of_class(6), None);
        assert!("active".parse::<SteeringMode>().is_err());

        let mut steered = steered(factory("round-robin")).build();
        let busy = PathView {
            bytes_in_flight: 12_000,
            ..path(0, 40, 3)
        };
        let paths = [busy, path(1, 50, 0)];
        let standby = ask(&mut *steered, &paths, SteeringMode::ActiveStandby.class());
        assert_eq!(standby.reason, Reason::WaitForBetter);
        let spilled = ask(&mut *steered, &paths, SteeringMode::PriorityBased.class());
        assert_eq!(spilled, send(1, Reason::Spill));
        assert_eq!(ask(&mut *steered, &paths, 0).decision, spilled.decision);
    }

    #[test]
    fn datagrams_that_have_an_order_keep_nothing_else_waiting_for_their_path() {
        let near = PathView {
            bytes_in_flight: 12_000,
            ..path(0, 10, 0)
        };
        let full_and_far = [near, path(1, 400, 0)];
        let ask = |scheduler: &mut dyn Scheduler, class, kind| {
            let mut view = fresh(&full_and_far);
            view.unit.class = class;
            view.unit.kind = kind;
            view.unit.max_skew = (kind == UnitKind::Datagram).then(|| Duration::from_millis(50));
            scheduler.select(&view).decision
        };
        let mut auto = steered(factory("auto")).build();
        let held = ask(&mut *auto, ORDERED, UnitKind::Datagram);
        assert!(matches!(held, Decision::Hold { .. }), "{held:?}");
        let far = Decision::Send(PathId(1));
        assert_eq!(ask(&mut *auto, 0, UnitKind::Fresh), far);
        // Who chose a scheduler has that one.
        let mut chosen = steered(factory("round-robin")).build();
        assert_eq!(ask(&mut *chosen, ORDERED, UnitKind::Datagram), far);
    }

    #[test]
    fn a_redundant_class_sends_critical_datagrams_on_every_path_full_or_not() {
        let mut steered = steered(factory("min-rtt")).build();
        let paths = [path(0, 10, 0), full(1)];
        let mut view = fresh(&paths);
        view.unit.kind = UnitKind::Datagram;
        view.unit.class = SteeringMode::Redundant.class();
        view.unit.critical = true;
        let both = PathSet::from_iter([PathId(0), PathId(1)]);
        let decision = steered.select(&view).decision;
        assert_eq!(decision, Decision::Duplicate(both));
    }
}
