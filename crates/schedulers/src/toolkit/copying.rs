//! Copies while nothing new waits.

use super::forecast::{acknowledged, emptied};
use super::units::packet;
use anabranch_proto::sched::{Choice, Decision, PathView, Reason, SendView, rank};

/// Copies the oldest data that only other paths carry. Uses the path with the lowest smoothed RTT
/// among those that have room, something to [copy](PathView::copyable) and are `worthwhile`; `None`
/// if there is none.
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

/// Whether data on another path will be acknowledged later than `longer(time)`, `time` being what a
/// packet sent here now takes. False for a path without an RTT sample, whose time is a guess.
pub fn is_outlasted(view: &SendView<'_>, path: &PathView, longer: impl Fn(u64) -> u64) -> bool {
    let limit = longer(acknowledged(path, packet(path)));
    let slow = |other: &PathView| other.bytes_in_flight > 0 && emptied(other) > limit;
    let mut others = view.paths.iter().filter(|other| other.id != path.id);
    !path.smoothed_rtt.is_zero() && others.any(slow)
}
