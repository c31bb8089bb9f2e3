//! Probes: one packet is copied to a path that was not heard of for long.
//!
//! What is known about a path that carries nothing grows old, and a policy that avoids the path
//! because of old figures would avoid it for ever.

use crate::toolkit::Prober;
use anabranch_proto::sched::{
    Choice, ParamDoc, PathEvent, PathView, Scheduler, SendView, Wants, Wrapper,
};
use anabranch_proto::time::Duration;

pub(crate) const ENTRY: Wrapper = Wrapper {
    name: "probe",
    summary: "copies one packet to a path that was not heard of for long",
    params: &[
        ParamDoc {
            key: "rtts",
            default: "5",
            summary: "how many RTTs of the path are long",
        },
        ParamDoc {
            key: "min-ms",
            default: "200",
            summary: "and no less than this",
        },
    ],
    build: |params, inner| {
        let rtts = params.take_in("rtts", Prober::RTTS, 1..=1000)?;
        let least = Prober::SHORTEST.as_millis() as u64;
        let shortest = params.take_in("min-ms", least, least..=3_600_000)?;
        let prober = Prober::new(rtts, Duration::from_millis(shortest));
        Ok(Box::new(Probe { inner, prober }))
    },
};

#[derive(Debug)]
struct Probe {
    inner: Box<dyn Scheduler>,
    prober: Prober,
}

impl Scheduler for Probe {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let choice = self.inner.select(view);
        self.prober.add(view, choice, PathView::is_usable)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.inner.on_event(event);
        self.prober.on_event(event);
    }

    fn wants(&self) -> Wants {
        self.inner.wants()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh, path, send};
    use anabranch_proto::path::PathSet;
    use anabranch_proto::sched::{Decision, Reason};
    use anabranch_proto::wire::PathId;

    fn with_priority(id: u32, priority: i32) -> PathView {
        PathView {
            priority,
            ..PathView::new(id)
        }
    }

    #[test]
    fn a_stale_path_gets_one_copy_per_interval() {
        let mut probing = built("probe+min-rtt");
        let ask = |probing: &mut Box<dyn Scheduler>, now_ms| {
            let (mut fast, mut slow) = (path(0, 20, 1), path(1, 100, 1));
            fast.last_ack = Some(at(now_ms));
            slow.last_ack = Some(at(1000));
            let paths = [fast, slow];
            let mut view = fresh(&paths);
            view.now = at(now_ms);
            probing.select(&view)
        };
        assert_eq!(ask(&mut probing, 1499), send(0, Reason::LowestRtt));
        let both = PathSet::from_iter([PathId(0), PathId(1)]);
        let probe = Choice {
            decision: Decision::Duplicate(both),
            reason: Reason::Probe,
        };
        assert_eq!(ask(&mut probing, 1500), probe);
        assert_eq!(ask(&mut probing, 1501), send(0, Reason::LowestRtt));
        assert_eq!(ask(&mut probing, 2000), probe);
    }

    #[test]
    fn a_path_that_stands_by_is_probed_unless_it_costs_something() {
        let mut priority = built("probe+priority:probe.min-ms=1000");
        let standby = with_priority(1, 1);
        let mut ask = |ms, standby: PathView| {
            let paths = [with_priority(0, 2), standby];
            let mut view = fresh(&paths);
            view.now = at(ms);
            priority.select(&view)
        };
        assert_eq!(ask(999, standby), send(0, Reason::Priority));
        let probe = Choice {
            decision: Decision::Duplicate(PathSet::from_iter([PathId(0), PathId(1)])),
            reason: Reason::Probe,
        };
        assert_eq!(ask(1000, standby), probe);
        assert_eq!(ask(1001, standby), send(0, Reason::Priority));
        let metered = PathView { cost: 1, ..standby };
        assert_eq!(ask(9000, metered), send(0, Reason::Priority));
        assert_eq!(ask(9000, standby), probe);
    }
}
