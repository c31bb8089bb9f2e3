//! Copies while nothing new waits.

use anabranch_proto::sched::{Choice, Decision, PathView, Reason, SendView, rank};

/// Repeats on a free path the oldest data that only other paths carry. Of the paths that have room,
/// something to [copy](PathView::copyable) and are `worthwhile`, the one with the lowest smoothed
/// RTT does; `None` if there is none.
pub fn repeat(view: &SendView<'_>, worthwhile: impl Fn(&PathView) -> bool) -> Option<Choice> {
    let free = |path: &&PathView| path.is_usable() && path.copyable && path.can_send(view.now);
    let open = view.candidates().filter(free);
    let best = open
        .filter(|path| worthwhile(path))
        .min_by_key(|path| rank(path))?;
    Some(Choice {
        decision: Decision::Copy(best.id),
        reason: Reason::Redundancy,
    })
}
