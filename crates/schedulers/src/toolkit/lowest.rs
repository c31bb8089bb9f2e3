//! The lowest of any key, with a reason that says how it came about.

use anabranch_proto::sched::{Choice, PathView, Reason, SendView};
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;

/// Sends on the candidate with the lowest key among those that can send. `reason` is the reason if
/// no other candidate, full or not, has a lower key.
pub fn lowest_by<K: Ord>(
    view: &SendView<'_>,
    key: impl Fn(&PathView) -> K,
    reason: Reason,
) -> Choice {
    let mut preferred: Option<(K, PathId)> = None;
    let mut chosen: Option<(K, &PathView)> = None;
    let mut candidates = 0;
    for path in view.candidates() {
        candidates += 1;
        if preferred.as_ref().is_none_or(|(best, _)| key(path) < *best) {
            preferred = Some((key(path), path.id));
        }
        if path.can_send(view.now) && chosen.as_ref().is_none_or(|(best, _)| key(path) < *best) {
            chosen = Some((key(path), path));
        }
    }
    let Some((_, path)) = chosen else {
        return view.no_room();
    };
    let first = preferred.is_some_and(|(_, id)| id == path.id);
    let reason = match (path.status, candidates, first) {
        (PathStatus::Backup, ..) => Reason::Backup,
        (_, 1, _) => Reason::OnlyPath,
        (.., true) => reason,
        (.., false) => Reason::Spill,
    };
    Choice::send(path.id, reason)
}
