//! What schedulers are shown of paths.

use super::{Placement, Sight};
use crate::handshake::Level;
use crate::path::manager::{Manager, Slot};
use crate::path::state::Path;
use crate::sched::PathView;
use crate::time::{Duration, Instant};

/// The open paths that may carry data.
pub(super) fn candidates(paths: &Manager) -> impl Iterator<Item = (&Slot, &Path)> {
    let slots = paths.in_use();
    slots.filter_map(|slot| Some((slot, slot.carrier()?)))
}

impl Placement {
    /// The snapshot of all open paths that may carry data. Returns whether one of them has little
    /// room in its packets.
    pub(super) fn fill_views(&self, sight: &Sight<'_>, views: &mut Vec<PathView>) -> bool {
        views.clear();
        let mut tight = sight.level != Level::OneRtt;
        for (slot, path) in candidates(sight.paths) {
            let mut view = snapshot(slot, path, sight.now);
            view.forward_delay_us = sight.one_way.forward(sight.now, path.id());
            if view.forward_delay_us.is_some() {
                view.forward_jitter_us = sight.one_way.forward_jitter(path.id()).unwrap_or(0);
            }
            view.bottleneck = sight.bottlenecks.group(path.id());
            if !self.chunks.is_empty() {
                view.queued = self.left(path.id());
            }
            tight |= !path.route().is_validated();
            views.push(view);
        }
        tight
    }

    /// Adds what could be copied of a class.
    pub(super) fn fill_copies(&mut self, sight: &Sight<'_>, class: u8, views: &mut [PathView]) {
        for view in views {
            let oldest = self.oldest_copy(view.id, class, sight.paths, sight.streams);
            view.copyable_since = oldest.map(|copy| copy.sent);
            view.copyable = oldest.is_some();
            let size = u64::from(view.max_datagram_size);
            if view.copyable && view.room() >= size && view.pacer_ready > sight.now {
                self.awaited.insert(view.id);
            }
        }
    }
}

fn snapshot(slot: &Slot, path: &Path, now: Instant) -> PathView {
    let route = path.route();
    let size = route.max_datagram_size();
    PathView {
        id: path.id(),
        status: slot.status(),
        state: path.state(),
        smoothed_rtt: if route.rtt().has_sample() {
            route.rtt().smoothed()
        } else {
            Duration::ZERO
        },
        rttvar: route.rtt().rttvar(),
        latest_rtt: route.rtt().latest(),
        min_rtt: route.rtt().min(),
        forward_delay_us: None,
        forward_jitter_us: 0,
        congestion_window: path.window(),
        ssthresh: route.ssthresh(),
        bytes_in_flight: route.bytes_in_flight(),
        queued: 0,
        delivery_rate: route.delivery_rate(),
        pacing_rate: route.pacing_rate().unwrap_or(0),
        pacer_ready: path.ready_at(now, u64::from(size)),
        loss: path.loss(),
        pto_count: path.liveness().pto_count(),
        last_ack: path.liveness().last_ack(),
        in_recovery: route.is_in_recovery(),
        app_limited: route.is_app_limited(),
        max_datagram_size: size,
        weight: path.weighing().weight,
        priority: path.weighing().priority,
        cost: path.weighing().cost,
        bottleneck: 0,
        copyable: false,
        copyable_since: None,
    }
}
