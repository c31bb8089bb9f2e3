//! What is known about the unit to place, and where it may go.

use crate::toolkit::units::packet;
use anabranch_proto::sched::{PathView, SendView, UnitKind};

/// Bytes of the unit to place on `path`, never 0.
pub fn unit(view: &SendView<'_>, path: &PathView) -> u64 {
    match view.unit.bytes {
        0 => packet(path),
        bytes => bytes,
    }
}

/// Whether `path` carried the data before that now waits to be sent again.
pub fn carried(view: &SendView<'_>, path: &PathView) -> bool {
    view.unit.kind == UnitKind::Retransmission && view.unit.carried_by.contains(path.id)
}

/// Which paths leave lost data to others: those that carried it before, while a candidate that did
/// not could send it now. No path waits for another one because of that: else all that a path loses
/// when it overshoots would be sent on the slowest one.
pub fn leaves<'a>(view: &SendView<'a>) -> impl Fn(&PathView) -> bool + use<'a> {
    let view = *view;
    let is_spared = view.unit.kind == UnitKind::Retransmission
        && view.ready().any(|path| !carried(&view, path));
    move |path| is_spared && carried(&view, path)
}

/// How much unsent data may be left for other paths when a packet of new data goes on `path`: what
/// follows must fill that packet, and there must be credit for what comes before.
pub fn skip_limit(view: &SendView<'_>, path: &PathView) -> u64 {
    let behind = view.backlog.unsent.saturating_sub(packet(path));
    behind.min(skip_credit(view))
}

/// How much unsent data may be skipped for the sake of flow control: data far ahead must not use up
/// the credit that earlier data needs.
pub fn skip_credit(view: &SendView<'_>) -> u64 {
    view.backlog.credit / 2
}
