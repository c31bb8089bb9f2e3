//! Which paths a view offers, and helpers for the tests of this folder.

use super::*;
use crate::path::PathState;

/// `ms` milliseconds after the epoch.
pub(super) fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A view at the epoch in which a packet of new data waits, and more after it.
pub(super) fn fresh(paths: &[PathView]) -> SendView<'_> {
    SendView {
        now: Instant::ZERO,
        paths,
        backlog: Backlog {
            unsent: 1_000_000,
            credit: 1_000_000,
            ..Backlog::default()
        },
        unit: Unit {
            kind: UnitKind::Fresh,
            bytes: 1200,
            ..Unit::default()
        },
        ..SendView::default()
    }
}

/// A view in which a packet waits that was lost on these paths.
pub(super) fn lost<'a>(paths: &'a [PathView], carried_by: &[u32]) -> SendView<'a> {
    let mut view = fresh(paths);
    view.unit.kind = UnitKind::Retransmission;
    view.unit.carried_by = carried_by.iter().copied().map(PathId).collect();
    view
}

/// A path with its whole window in flight.
pub(super) fn full(id: u32) -> PathView {
    let path = PathView::new(id);
    PathView {
        bytes_in_flight: path.congestion_window,
        ..path
    }
}

pub(super) fn send(id: u32, reason: Reason) -> Choice {
    Choice::send(PathId(id), reason)
}

pub(super) fn hold(reason: Reason) -> Choice {
    Choice::hold(reason)
}

#[test]
fn backups_are_eligible_only_if_no_available_path_answers() {
    let backup = PathView {
        status: PathStatus::Backup,
        ..PathView::new(1)
    };
    let silent = |id, pto_count| PathView {
        state: PathState::Doubtful,
        pto_count,
        ..PathView::new(id)
    };
    let eligible = |paths: &[PathView]| -> Vec<u32> {
        fresh(paths).candidates().map(|path| path.id.0).collect()
    };
    assert_eq!(eligible(&[full(0), backup]), [0], "full is not gone");
    assert_eq!(eligible(&[silent(0, 1), backup]), [1]);
    assert_eq!(eligible(&[silent(0, 3), silent(1, 2)]), [1]);
    assert_eq!(eligible(&[]), [0_u32; 0]);
}

#[test]
fn what_a_path_lost_may_go_back_to_it() {
    let paths = [PathView::new(0), full(1)];
    let mut view = fresh(&paths);
    view.unit.kind = UnitKind::Retransmission;
    view.unit.carried_by = PathSet::from_iter([PathId(0)]);
    let ready: Vec<u32> = view.ready().map(|path| path.id.0).collect();
    assert_eq!(ready, [0], "rather than wait for a path that is full");
}

#[test]
fn a_full_house_holds_until_the_first_pacer_opens() {
    let paced = |id, ms| PathView {
        pacer_ready: at(ms),
        ..PathView::new(id)
    };
    let paths = [full(0), paced(1, 30), paced(2, 20)];
    assert_eq!(
        fresh(&paths).no_room(),
        Choice::hold_until(at(20), Reason::NoRoom)
    );
    assert_eq!(fresh(&paths[..1]).no_room(), hold(Reason::NoRoom));
}
