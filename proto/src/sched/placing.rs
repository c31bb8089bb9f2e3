//! What is known about the unit to place, and where it may go.

use super::units::packet;
use super::{PathView, SendView, UnitKind};

/// Bytes of the unit to place on `path`, never 0.
pub(super) fn unit(view: &SendView<'_>, path: &PathView) -> u64 {
    match view.unit.bytes {
        0 => packet(path),
        bytes => bytes,
    }
}

/// Whether `path` carried the data before that now waits to be sent again.
pub(super) fn carried(view: &SendView<'_>, path: &PathView) -> bool {
    view.unit.kind == UnitKind::Retransmission && view.unit.carried_by.contains(path.id)
}

/// How much unsent data may be left for other paths when a packet of new data goes on `path`: what
/// follows must fill that packet, and data far ahead must not use up the flow-control credit that
/// the data before it needs.
pub(super) fn skip_limit(view: &SendView<'_>, path: &PathView) -> u64 {
    let behind = view.backlog.unsent.saturating_sub(packet(path));
    behind.min(view.backlog.credit / 2)
}
