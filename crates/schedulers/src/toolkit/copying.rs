//! Copies while nothing new waits.

use super::forecast::acknowledged;
use super::units::packet;
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

/// Whether another path has data under way that is acknowledged only after what `longer` makes of
/// the time that a packet sent by `path` now takes. False for a path that nothing is known of,
/// whose own time is a guess.
pub fn is_outlasted(view: &SendView<'_>, path: &PathView, longer: impl Fn(u64) -> u64) -> bool {
    let limit = longer(acknowledged(path, packet(path)));
    let slow = |other: &PathView| other.bytes_in_flight > 0 && acknowledged(other, 0) > limit;
    let mut others = view.paths.iter().filter(|other| other.id != path.id);
    !path.smoothed_rtt.is_zero() && others.any(slow)
}
