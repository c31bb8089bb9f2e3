//! Schedulers around schedulers, each a prefix of a name: `guard+ecf`.

pub(crate) mod copies;
pub(crate) mod guard;
pub(crate) mod probe;
pub(crate) mod reinject;
pub(crate) mod skew;
pub(crate) mod tail;

use crate::toolkit::{is_outlasted, repeat};
use anabranch_proto::sched::{Choice, Decision, PathView, Scheduler, SendView, UnitKind, Wrapper};

/// All of them.
pub(crate) const ENTRIES: [Wrapper; 6] = [
    guard::ENTRY,
    tail::ENTRY,
    reinject::ENTRY,
    copies::ENTRY,
    probe::ENTRY,
    skew::ENTRY,
];

/// What `inner` answers while something waits. Else the copy that it makes, or else one on a path
/// that costs nothing if another takes [longer](is_outlasted) than `longer` makes of its time: only
/// while flow control stops new data if `blocked`, else only while it does not.
fn or_repeat(
    inner: &mut dyn Scheduler,
    view: &SendView<'_>,
    blocked: bool,
    longer: impl Fn(u64) -> u64,
) -> Choice {
    if view.unit.kind != UnitKind::Idle {
        return inner.select(view);
    }
    when_idle(inner, view, |path| {
        view.backlog.blocked == blocked && path.cost == 0 && is_outlasted(view, path, &longer)
    })
}

/// The answer while nothing waits: the copy that `inner` makes, or else one on a path that is
/// `worthwhile`.
fn when_idle(
    inner: &mut dyn Scheduler,
    view: &SendView<'_>,
    worthwhile: impl Fn(&PathView) -> bool,
) -> Choice {
    // Those that make no copies now are not asked.
    let makes_copies = inner.wants().idle_copies(view.backlog.blocked);
    let own = makes_copies.then(|| inner.select(view));
    match own {
        Some(choice) if !matches!(choice.decision, Decision::Hold { .. }) => choice,
        hold => repeat(view, worthwhile)
            .or(hold)
            .unwrap_or_else(|| view.no_room()),
    }
}
