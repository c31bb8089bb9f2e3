//! Copies of what matters: critical units and lost data go on two paths, the rest on the fastest.
//!
//! What is critical is the application's and the engine's to say: marked datagrams, the start and
//! the end of streams. Copies are limited to a share of the bytes sent, so that an application that
//! marks everything gains a little and costs a little. Paths that share a bottleneck with the first
//! one, backups and paths that cost something carry no copies.

use crate::toolkit::Budget;
use crate::toolkit::units::packet;
use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{
    Choice, Contest, Decision, Entry, ParamDoc, PathView, Reason, Scheduler, SendView, UnitKind,
    rank,
};
use anabranch_proto::spec::{Params, SpecError};

pub(crate) const ENTRY: Entry = Entry {
    name: "critical-redundant",
    summary: "lowest RTT, and copies of critical and lost data within a budget",
    params: &[
        ParamDoc {
            key: "budget",
            default: "0.05",
            summary: "copies as a share of the bytes sent, 0 to 1 (unlimited)",
        },
        ParamDoc {
            key: "small",
            default: "200",
            summary: "datagrams of fewer bytes are critical as well",
        },
        ParamDoc {
            key: "copies",
            default: "1",
            summary: "further paths that carry a critical unit",
        },
    ],
    build: |params| Ok(Box::new(CriticalRedundant::from_params(params)?)),
};

/// Repeats critical units.
#[derive(Debug)]
pub(crate) struct CriticalRedundant {
    budget: Budget,
    small: u64,
    copies: u32,
}

impl CriticalRedundant {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        Ok(Self {
            budget: Budget::from_params(params, 0.05)?,
            small: params.take_in("small", 200, 0..=65_535)?,
            copies: params.take_in("copies", 1, 1..=15)?,
        })
    }

    fn is_critical(&self, view: &SendView<'_>) -> bool {
        let unit = view.unit;
        match unit.kind {
            UnitKind::Retransmission => true,
            UnitKind::Datagram => unit.critical || unit.bytes < self.small,
            UnitKind::Fresh | UnitKind::Idle => unit.critical,
        }
    }
}

/// `choice` with copies on the `count` next best paths, as far as the budget goes.
pub(super) fn with_copies(
    view: &SendView<'_>,
    choice: Choice,
    count: u32,
    budget: &mut Budget,
) -> Choice {
    let Decision::Send(first) = choice.decision else {
        return choice;
    };
    let Some(on) = view.path(first) else {
        return choice;
    };
    let bytes = view.unit.bytes.min(packet(on));
    let mut all = PathSet::from_iter([first]);
    for _ in 0..count {
        let apart = |path: &&PathView| on.bottleneck == 0 || path.bottleneck != on.bottleneck;
        let free = view
            .ready()
            .filter(|path| path.is_usable() && path.cost == 0 && !all.contains(path.id));
        let Some(next) = free.filter(apart).min_by_key(|path| rank(path)) else {
            break;
        };
        if !budget.pay(bytes) {
            break;
        }
        all.insert(next.id);
    }
    if all.len() == 1 {
        return choice;
    }
    Choice {
        decision: Decision::Duplicate(all),
        reason: Reason::Redundancy,
    }
}

impl Scheduler for CriticalRedundant {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let Some(contest) = Contest::of(view) else {
            return view.no_room();
        };
        let choice = contest.send();
        self.budget.earn(view.unit.bytes.min(packet(contest.open)));
        if self.is_critical(view) {
            return with_copies(view, choice, self.copies, &mut self.budget);
        }
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, fresh, full, send};
    use anabranch_proto::time::Duration;
    use anabranch_proto::wire::PathId;

    fn path(id: u32, rtt_ms: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            ..PathView::new(id)
        }
    }

    fn on(ids: &[u32]) -> Choice {
        Choice {
            decision: Decision::Duplicate(ids.iter().copied().map(PathId).collect()),
            reason: Reason::Redundancy,
        }
    }

    fn critical(text: &str, paths: &[PathView]) -> Choice {
        let mut view = fresh(paths);
        view.unit.critical = true;
        built(text).select(&view)
    }

    #[test]
    fn critical_units_go_twice_and_others_once() {
        let paths = [path(0, 20), path(1, 90), path(2, 50)];
        let text = "critical-redundant";
        assert_eq!(critical(text, &paths), on(&[0, 2]));
        assert_eq!(
            critical("critical-redundant:copies=3", &paths),
            on(&[0, 2, 1])
        );
        let plain = built(text).select(&fresh(&paths));
        assert_eq!(plain, send(0, Reason::LowestRtt));
        let mut view = fresh(&paths);
        view.unit.kind = UnitKind::Datagram;
        view.unit.bytes = 199;
        assert_eq!(built(text).select(&view), on(&[0, 2]), "small");
        view.unit.bytes = 200;
        assert_eq!(built(text).select(&view), send(0, Reason::LowestRtt));
    }

    #[test]
    fn copies_need_a_path_of_their_own() {
        let text = "critical-redundant";
        assert_eq!(
            critical(text, &[path(0, 20), full(1)]),
            send(0, Reason::LowestRtt)
        );
        let shared = |id, rtt| PathView {
            bottleneck: 7,
            ..path(id, rtt)
        };
        let choice = critical(text, &[shared(0, 20), shared(1, 30)]);
        assert_eq!(choice, send(0, Reason::LowestRtt));
        let costly = PathView {
            cost: 1,
            ..path(1, 30)
        };
        assert_eq!(
            critical(text, &[path(0, 20), costly]),
            send(0, Reason::LowestRtt)
        );
    }

    #[test]
    fn the_budget_is_never_exceeded() {
        let mut scheduler = built("critical-redundant:budget=0.1");
        let paths = [path(0, 20), path(1, 90)];
        let mut view = fresh(&paths);
        view.unit.critical = true;
        let copied = (0..10_000)
            .filter(|_| matches!(scheduler.select(&view).decision, Decision::Duplicate(_)))
            .count();
        assert!((1_000..=1_020).contains(&copied), "{copied}");
    }
}
