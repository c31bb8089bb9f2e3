//! Priority: the paths of the highest class first; within a class the lowest RTT.
//!
//! `backup` leaves lower classes alone while a path of the highest one answers, full or not:
//! nothing is spent on a metered link that a free one could carry a moment later. `strict`
//! overflows. A path that goes silent leaves its class at its first probe time-out while another
//! answers (the engine's failover), so no class is held up by a dead path.

use crate::toolkit::{carried, hold_for, lowest_by};
use anabranch_proto::sched::{
    Choice, Decision, Entry, ParamDoc, Reason, Scheduler, SendView, rank,
};
use anabranch_proto::spec::{Params, SpecError};
use std::cmp::Reverse;

pub(crate) const ENTRY: Entry = Entry {
    name: "priority",
    summary: "the highest priority first; lower ones stand by or take the overflow",
    params: &[ParamDoc {
        key: "mode",
        default: "backup",
        summary: "backup: lower classes only if no higher path answers; strict: if it is full",
    }],
    build: |params| Ok(Box::new(Priority::from_params(params)?)),
};

/// Orders paths by the user's priority.
#[derive(Debug, Default)]
pub(crate) struct Priority {
    overflow: bool,
}

impl Priority {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let modes = [("backup", false), ("strict", true)];
        Ok(Self::new(params.choice("mode", false, &modes)?))
    }

    /// Lower classes take the overflow or not.
    pub(super) fn new(overflow: bool) -> Self {
        Self { overflow }
    }
}

impl Scheduler for Priority {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        // Lost data changes the path, but not the class.
        let choice = lowest_by(
            view,
            |path| (Reverse(path.priority), carried(view, path), rank(path)),
            Reason::Priority,
        );
        let (Decision::Send(id), false) = (choice.decision, self.overflow) else {
            return choice;
        };
        let Some(top) = view.candidates().map(|path| path.priority).max() else {
            return choice;
        };
        if view.path(id).is_some_and(|path| path.priority == top) {
            return choice;
        }
        // No time-out ends this wait: a path that stays silent becomes doubtful and leaves its
        // class.
        let class = view.candidates().filter(|path| path.priority == top);
        let best = class.min_by_key(|path| rank(path));
        best.and_then(|best| hold_for(view, best, Reason::WaitForBetter))
            .unwrap_or(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh, full, lost, send};
    use anabranch_proto::path::PathState;
    use anabranch_proto::sched::PathView;
    use anabranch_proto::time::Duration;

    fn path(id: u32, priority: i32) -> PathView {
        PathView {
            priority,
            ..PathView::new(id)
        }
    }

    #[test]
    fn the_highest_priority_goes_first() {
        for mode in ["backup", "strict"] {
            let mut priority = built(&format!("priority:mode={mode}"));
            let choice = priority.select(&fresh(&[path(0, 1), path(1, 2)]));
            assert_eq!(choice, send(1, Reason::Priority));
        }
    }

    #[test]
    fn lost_data_changes_the_path_but_not_the_class() {
        for mode in ["backup", "strict"] {
            let mut priority = built(&format!("priority:mode={mode}"));
            let paths = [path(0, 2), path(1, 2), path(2, 1)];
            let choice = priority.select(&lost(&paths, &[0]));
            assert_eq!(choice, send(1, Reason::Priority));
            let choice = priority.select(&lost(&paths, &[0, 1]));
            assert_eq!(choice, send(0, Reason::Priority));
        }
    }

    #[test]
    fn lower_classes_stand_by_or_take_the_overflow() {
        let busy = PathView {
            priority: 2,
            smoothed_rtt: Duration::from_millis(40),
            ..full(0)
        };
        let paths = [busy, path(1, 1)];
        let waiting = Choice::hold_until(at(40), Reason::WaitForBetter);
        assert_eq!(built("priority").select(&fresh(&paths)), waiting);
        assert_eq!(
            built("priority:mode=strict").select(&fresh(&paths)),
            send(1, Reason::Spill)
        );
    }

    #[test]
    fn a_doubtful_path_gives_way_and_returns() {
        let mut priority = built("priority");
        let silent = PathView {
            state: PathState::Doubtful,
            ..path(0, 2)
        };
        assert_eq!(
            priority.select(&fresh(&[silent, path(1, 1)])),
            send(1, Reason::OnlyPath)
        );
        let choice = priority.select(&fresh(&[path(0, 2), path(1, 1)]));
        assert_eq!(choice, send(0, Reason::Priority));
    }

    #[test]
    fn within_a_class_the_lowest_rtt_goes_first() {
        let slow = PathView {
            smoothed_rtt: Duration::from_millis(50),
            ..path(0, 1)
        };
        let fast = PathView {
            smoothed_rtt: Duration::from_millis(20),
            ..path(1, 1)
        };
        assert_eq!(
            built("priority").select(&fresh(&[slow, fast])),
            send(1, Reason::Priority)
        );
    }
}
