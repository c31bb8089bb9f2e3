//! Schedulers around schedulers, each a prefix of a name: `guard+ecf`.

pub(crate) mod copies;
pub(crate) mod guard;
pub(crate) mod probe;
pub(crate) mod reinject;
pub(crate) mod tail;

use crate::toolkit::forecast::acknowledged;
use crate::toolkit::repeat;
use anabranch_proto::sched::{Choice, Decision, PathView, Scheduler, SendView, Wrapper};

/// All of them.
pub(crate) const ENTRIES: [Wrapper; 5] = [
    guard::ENTRY,
    tail::ENTRY,
    reinject::ENTRY,
    copies::ENTRY,
    probe::ENTRY,
];

/// Whether another path has data under way that takes longer than `longer` nanoseconds to be
/// acknowledged; false for a path that nothing is known of, whose own time is a guess.
fn is_outlasted(view: &SendView<'_>, path: &PathView, longer: u64) -> bool {
    let slow = |other: &PathView| other.bytes_in_flight > 0 && acknowledged(other, 0) > longer;
    let mut others = view.paths.iter().filter(|other| other.id != path.id);
    !path.smoothed_rtt.is_zero() && others.any(slow)
}

/// The answer while nothing waits: the copy that `inner` makes, or else one on a path that is
/// `worthwhile`.
fn when_idle(
    inner: &mut dyn Scheduler,
    view: &SendView<'_>,
    worthwhile: impl Fn(&PathView) -> bool,
) -> Choice {
    // Those that make no copies now are not asked.
    let wants = if view.backlog.blocked {
        inner.wants_copies_while_blocked()
    } else {
        inner.wants_copies()
    };
    let own = wants.then(|| inner.select(view));
    match own {
        Some(choice) if !matches!(choice.decision, Decision::Hold { .. }) => choice,
        hold => repeat(view, worthwhile)
            .or(hold)
            .unwrap_or_else(|| view.no_room()),
    }
}
