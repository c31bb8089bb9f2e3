//! Redundant while the RTTs of the paths differ much, lowest RTT first while they do not.
//!
//! The rule of `mptcp_rtt_delta.c`, also in draft-zuo-mptcp-scheduler: where delays differ, sharing
//! would make the receiver wait for the slow path, and copies cost little beside that. Full
//! redundancy on one side of the threshold, none on the other, an eighth of hysteresis between.
//! With more than two paths the extremes count.

use crate::catalogue::redundant::Redundant;
use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, PathEvent, PathView, Scheduler, SendView, UnitKind, Wants, lowest_rtt,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::Duration;

pub(crate) const ENTRY: Entry = Entry {
    name: "adaptive-redundant",
    summary: "redundant while RTTs differ by more than a threshold, lowest RTT otherwise",
    params: &[ParamDoc {
        key: "threshold-ms",
        default: "50",
        summary: "difference of RTTs, with an eighth of hysteresis around it",
    }],
    build: |params| Ok(Box::new(AdaptiveRedundant::from_params(params)?)),
};

/// Switches between two policies.
#[derive(Debug)]
pub(crate) struct AdaptiveRedundant {
    threshold: Duration,
    is_redundant: bool,
    redundant: Redundant,
}

impl AdaptiveRedundant {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let threshold = params.take_in("threshold-ms", 50, 1..=60_000)?;
        Ok(Self {
            threshold: Duration::from_millis(threshold),
            is_redundant: true,
            redundant: Redundant::default(),
        })
    }

    fn update(&mut self, view: &SendView<'_>) {
        let rtts = || {
            let usable = view.paths.iter().filter(|path| path.is_usable());
            let measured = usable.filter(|path| !path.smoothed_rtt.is_zero());
            measured.map(|path: &PathView| path.smoothed_rtt)
        };
        let (Some(least), Some(most)) = (rtts().min(), rtts().max()) else {
            return;
        };
        if rtts().nth(1).is_none() {
            return;
        }
        let difference = most.saturating_sub(least);
        if difference > self.threshold * 9 / 8 {
            self.is_redundant = true;
        } else if difference < self.threshold * 7 / 8 {
            self.is_redundant = false;
        }
    }
}

impl Scheduler for AdaptiveRedundant {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.update(view);
        if self.is_redundant {
            self.redundant.select(view)
        } else if view.unit.kind == UnitKind::Idle {
            view.no_room()
        } else {
            lowest_rtt(view)
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.redundant.on_event(event);
    }

    fn wants(&self) -> Wants {
        Wants {
            copies: true,
            copies_while_busy: self.is_redundant,
            copies_while_blocked: self.is_redundant,
            ..Wants::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, fresh};
    use anabranch_proto::sched::Decision;

    /// Whether the free path repeats what the other one carries.
    fn copies(scheduler: &mut dyn Scheduler, rtts_ms: [u64; 2]) -> bool {
        let path = |id: u32| PathView {
            smoothed_rtt: Duration::from_millis(rtts_ms[id as usize]),
            copyable: id == 1,
            ..PathView::new(id)
        };
        let first = PathView {
            bytes_in_flight: 12_000,
            ..path(0)
        };
        let choice = scheduler.select(&fresh(&[first, path(1)]));
        matches!(choice.decision, Decision::Copy(_))
    }

    #[test]
    fn it_starts_redundant_and_switches_with_hysteresis() {
        let mut scheduler = built("adaptive-redundant:threshold-ms=40");
        assert!(copies(&mut *scheduler, [0, 20]), "nothing is known yet");
        assert!(copies(&mut *scheduler, [20, 60]), "40 is inside the band");
        assert!(!copies(&mut *scheduler, [20, 54]), "below 35");
        assert!(!copies(&mut *scheduler, [20, 65]), "45 is not more than 45");
        assert!(copies(&mut *scheduler, [20, 66]));
        assert!(scheduler.wants().copies_while_busy);
        assert!(!copies(&mut *scheduler, [54, 20]));
        assert!(!scheduler.wants().copies_while_busy);
    }
}
