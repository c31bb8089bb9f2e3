//! Full redundancy: everything goes on every path, and the first copy to arrive counts.
//!
//! Each path has its own cursor into what was sent, kept by the engine: a slow path never blocks a
//! fast one and skips what was acknowledged meanwhile. The price is the throughput of one path.

use crate::toolkit::leaves;
use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{
    Choice, Decision, Entry, ParamDoc, Reason, Scheduler, SendView, UnitKind, Wants,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "redundant",
    summary: "everything on every path; the first copy to arrive counts",
    params: &[ParamDoc {
        key: "datagrams",
        default: "once",
        summary: "once, or copy: on every open path; the receiving application sees each copy",
    }],
    build: |params| Ok(Box::new(Redundant::from_params(params)?)),
};

/// Repeats on each path what the others carry.
#[derive(Debug, Default)]
pub(crate) struct Redundant {
    copy_datagrams: bool,
    last: Option<PathId>,
}

impl Redundant {
    pub(super) fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let copy_datagrams =
            params.choice("datagrams", false, &[("once", false), ("copy", true)])?;
        Ok(Self {
            copy_datagrams,
            last: None,
        })
    }

    fn datagram(view: &SendView<'_>) -> Choice {
        let mut paths: PathSet = view.ready().map(|path| path.id).collect();
        if view.unit.critical && !paths.is_empty() {
            // A copy waits where its path is full.
            paths = view.candidates().map(|path| path.id).collect();
        }
        match (paths.len(), paths.iter().next()) {
            (0, _) | (_, None) => view.no_room(),
            (1, Some(path)) => Choice::send(path, Reason::OnlyPath),
            _ => Choice {
                decision: Decision::Duplicate(paths),
                reason: Reason::Redundancy,
            },
        }
    }
}

impl Scheduler for Redundant {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if view.unit.kind == UnitKind::Datagram && self.copy_datagrams {
            return Self::datagram(view);
        }
        let leaves = leaves(view);
        for path in view.ring(self.last).filter(|path| path.can_send(view.now)) {
            let choice = if path.is_usable() && path.copyable {
                Choice {
                    decision: Decision::Copy(path.id),
                    reason: Reason::Redundancy,
                }
            } else if view.unit.kind != UnitKind::Idle && !leaves(path) {
                Choice::send(path.id, Reason::Turn)
            } else {
                continue;
            };
            self.last = Some(path.id);
            return choice;
        }
        view.no_room()
    }

    fn wants(&self) -> Wants {
        Wants::COPIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, copy, fresh, full, hold, idle, lost, send};
    use anabranch_proto::sched::PathView;

    fn copyable(id: u32) -> PathView {
        PathView {
            copyable: true,
            ..PathView::new(id)
        }
    }

    #[test]
    fn lost_data_goes_to_a_path_that_has_not_carried_it() {
        let paths = [PathView::new(0), PathView::new(1)];
        let choice = Redundant::default().select(&lost(&paths, &[0]));
        assert_eq!(choice, send(1, Reason::Turn));
        let choice = Redundant::default().select(&lost(&paths, &[0, 1]));
        assert_eq!(choice, send(0, Reason::Turn));
    }

    #[test]
    fn every_path_repeats_what_the_others_carry() {
        let mut redundant = Redundant::default();
        assert_eq!(
            redundant.select(&fresh(&[PathView::new(0), full(1)])),
            send(0, Reason::Turn)
        );
        assert_eq!(redundant.select(&fresh(&[full(0), copyable(1)])), copy(1));
    }

    #[test]
    fn a_path_that_comes_late_takes_new_data_if_the_old_arrived() {
        let mut redundant = Redundant::default();
        assert_eq!(
            redundant.select(&fresh(&[PathView::new(0), full(1)])),
            send(0, Reason::Turn)
        );
        let acknowledged = [full(0), PathView::new(1)];
        assert_eq!(
            redundant.select(&fresh(&acknowledged)),
            send(1, Reason::Turn)
        );
    }

    #[test]
    fn a_slow_path_does_not_block_a_fast_one() {
        let mut redundant = Redundant::default();
        for _ in 0..3 {
            let paths = [
                PathView::new(0),
                PathView {
                    copyable: true,
                    ..full(1)
                },
            ];
            assert_eq!(redundant.select(&fresh(&paths)), send(0, Reason::Turn));
        }
    }

    #[test]
    fn the_paths_take_turns_and_idle_ones_only_copy() {
        let mut redundant = Redundant::default();
        let paths = [copyable(0), copyable(1)];
        assert_eq!(redundant.select(&idle(&paths)), copy(0));
        assert_eq!(redundant.select(&idle(&paths)), copy(1));
        assert_eq!(redundant.select(&idle(&paths)), copy(0));
        assert_eq!(
            redundant.select(&idle(&[PathView::new(0)])),
            hold(Reason::NoRoom)
        );
    }

    #[test]
    fn a_backup_never_carries_a_copy() {
        let mut redundant = Redundant::default();
        let mut backup = copyable(0);
        backup.status = anabranch_proto::wire::frame::PathStatus::Backup;
        assert_eq!(redundant.select(&fresh(&[backup])), send(0, Reason::Turn));
        assert_eq!(redundant.select(&idle(&[backup])), hold(Reason::NoRoom));
    }

    #[test]
    fn datagrams_go_on_all_open_paths_if_asked_to() {
        let paths = [PathView::new(0), PathView::new(1), full(2)];
        let mut view = fresh(&paths);
        view.unit.kind = UnitKind::Datagram;
        assert_eq!(built("redundant").select(&view), send(0, Reason::Turn));
        let both = PathSet::from_iter([PathId(0), PathId(1)]);
        let expected = Choice {
            decision: Decision::Duplicate(both),
            reason: Reason::Redundancy,
        };
        assert_eq!(built("redundant:datagrams=copy").select(&view), expected);
    }
}
