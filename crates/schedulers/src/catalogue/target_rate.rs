//! Target rate: cheap paths first; the others carry only what the cheap ones lack of a wanted rate.
//!
//! "Throughput and preference" of `ProgMP`. Every unit on a preferred path earns a credit; while
//! the preferred paths are full, a unit elsewhere costs as many as keep the other paths' share at
//! what is missing. Preferred are the paths of the highest priority and, among them, the lowest
//! cost. The public script reads the window of the preferred path from an empty set at that point;
//! here it is that of the preferred paths, full or not.

use crate::toolkit::{Patience, assumed_window_rate, carried};
use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, rank,
};
use anabranch_proto::spec::{Params, SpecError};
use std::cmp::Reverse;

pub(crate) const ENTRY: Entry = Entry {
    name: "target-rate",
    summary: "preferred paths first; others only as far as a target rate needs them",
    params: &[ParamDoc {
        key: "target-mbps",
        default: "10",
        summary: "rate to reach, in Mbit/s",
    }],
    build: |params| Ok(Box::new(TargetRate::from_params(params)?)),
};

/// Credits are counted in thousandths of a unit.
const SCALE: u64 = 1000;
const CREDIT_MAX: u64 = 100 * SCALE;

/// Prefers cheap paths up to a rate.
#[derive(Debug)]
pub(crate) struct TargetRate {
    /// Bytes per second.
    target: u64,
    credit: u64,
    patience: Patience,
}

impl TargetRate {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let mbps: f64 = params.take_in("target-mbps", 10.0, 0.001..=1e6)?;
        Ok(Self {
            target: (mbps * 125_000.0) as u64,
            credit: 0,
            patience: Patience::default(),
        })
    }

    /// What a unit on another path costs; `None` if none may go there.
    fn price(&self, capacity: u64) -> Option<u64> {
        let missing = self.target.checked_sub(capacity).filter(|rate| *rate > 0)?;
        Some(capacity.saturating_mul(SCALE) / missing)
    }
}

impl Scheduler for TargetRate {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let class = |path: &PathView| (Reverse(path.priority), path.cost);
        let Some(first) = view.candidates().map(class).min() else {
            return view.no_room();
        };
        let is_preferred = |path: &&PathView| class(path) == first;
        let open = view.ready().filter(is_preferred);
        // Lost data changes the path, but not the class.
        if let Some(path) = open.min_by_key(|path| (carried(view, path), rank(path))) {
            self.credit = (self.credit + SCALE).min(CREDIT_MAX);
            self.patience.end();
            return Choice::send(path.id, Reason::Priority);
        }
        let others = view.ready().filter(|path| !is_preferred(path));
        let Some(other) = others.min_by_key(|path| (carried(view, path), rank(path))) else {
            return view.no_room();
        };
        let preferred = || view.candidates().filter(is_preferred);
        let best = preferred().min_by_key(|path| rank(path)).unwrap_or(other);
        // What a path that was never measured can carry is unknown, and not nothing.
        let capacity = preferred()
            .filter(|path| path.congestion_window > 0)
            .try_fold(0, |sum: u64, path| {
                let known = !path.smoothed_rtt.is_zero();
                known.then(|| sum.saturating_add(assumed_window_rate(path)))
            });
        if let Some(price) = capacity.and_then(|capacity| self.price(capacity))
            && (price == 0 || self.credit > price)
        {
            self.credit = self.credit.saturating_sub(price);
            self.patience.end();
            return Choice::send(other.id, Reason::Spill);
        }
        self.patience.wait_for(view, best, Reason::WaitForBetter)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, fresh, lost, send};
    use anabranch_proto::sched::Decision;
    use anabranch_proto::time::Duration;
    use anabranch_proto::wire::PathId;

    /// A preferred path of 75 kB per 100 ms and a free other one.
    fn paths(preferred_full: bool) -> [PathView; 2] {
        let path = |id, cost| PathView {
            smoothed_rtt: Duration::from_millis(100),
            congestion_window: 75_000,
            bytes_in_flight: 10_000,
            cost,
            ..PathView::new(id)
        };
        let mut preferred = path(0, 0);
        if preferred_full {
            preferred.bytes_in_flight = 75_000;
        }
        [preferred, path(1, 5)]
    }

    #[test]
    fn the_other_path_carries_what_the_target_lacks() {
        // 1000 kB/s wanted, 750 there.
        let mut scheduler = built("target-rate:target-mbps=8");
        let mut sent = [0_u32; 2];
        for turn in 0..4000 {
            let choice = scheduler.select(&fresh(&paths(turn % 2 == 1)));
            if let Decision::Send(id) = choice.decision {
                sent[id.0 as usize] += 1;
            }
        }
        assert_eq!(sent[0], 2000);
        assert!((660..=670).contains(&sent[1]), "3:1, {sent:?}");
    }

    #[test]
    fn a_target_that_is_met_spills_nothing() {
        let mut scheduler = built("target-rate:target-mbps=6");
        for _ in 0..50 {
            let open = scheduler.select(&fresh(&paths(false)));
            assert_eq!(open, send(0, Reason::Priority));
        }
        let full = scheduler.select(&fresh(&paths(true)));
        assert_eq!(full.reason, Reason::WaitForBetter);
    }

    #[test]
    fn a_preferred_path_that_carries_nothing_spills_all() {
        let mut scheduler = built("target-rate:target-mbps=8");
        let mut shut = paths(true);
        shut[0].congestion_window = 0;
        for _ in 0..50 {
            assert_eq!(scheduler.select(&fresh(&shut)), send(1, Reason::Spill));
        }
    }

    #[test]
    fn a_preferred_path_that_was_never_measured_is_waited_for() {
        let mut unmeasured = paths(true);
        unmeasured[0].smoothed_rtt = Duration::ZERO;
        let choice = built("target-rate").select(&fresh(&unmeasured));
        assert_eq!(choice.reason, Reason::WaitForBetter);
    }

    #[test]
    fn lost_data_changes_the_path_but_not_the_class() {
        let [preferred, other] = paths(false);
        let second = PathView {
            id: PathId(2),
            ..preferred
        };
        let three = [preferred, other, second];
        let choice = built("target-rate").select(&lost(&three, &[0]));
        assert_eq!(choice, send(2, Reason::Priority));
        let choice = built("target-rate").select(&lost(&three[..2], &[0]));
        assert_eq!(choice, send(0, Reason::Priority));
    }

    #[test]
    fn priority_goes_before_cost() {
        let mut both = paths(false);
        both[1].priority = 1;
        let choice = built("target-rate").select(&fresh(&both));
        assert_eq!(choice.decision, Decision::Send(PathId(1)));
    }
}
