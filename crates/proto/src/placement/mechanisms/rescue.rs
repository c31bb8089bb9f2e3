//! Opportunistic retransmission: the data that everything waits for is copied from a slow path onto
//! a faster one (docs/mechanisms.md).

use super::Mechanisms;
use crate::config::Rescue;
use crate::path::manager::Manager;
use crate::placement::{Job, Load, hole};
use crate::sched::PathEvent;
use crate::streams::{Blockade, Streams};
use crate::time::{Duration, Instant};

/// A path with this many packets in its window is too slow to be waited for, whatever its RTT.
const SMALL_WINDOW: u64 = 4;

/// How much slower a path must be for its data to be copied.
const SLOWER: u32 = 4;

/// More than any packet holds.
const LARGEST_COPY: u64 = 1 << 16;

/// Whether data that `slow` carries is to be copied onto `fast`: it would take too long, or `slow`
/// has next to no window.
fn is_worth_copying(fast: Duration, slow: Duration, slow_window: u64, packet: u64) -> bool {
    slow_window <= SMALL_WINDOW * packet || fast * SLOWER < slow
}

impl Mechanisms {
    /// Copies the data that everything waits for onto a faster path, if a blockade lasts and the
    /// configuration wants it. Returns what to tell the scheduler, too.
    pub(in crate::placement) fn rescue(
        &mut self,
        now: Instant,
        paths: &Manager,
        streams: &Streams,
    ) -> Option<(Job, PathEvent)> {
        let mode = self.settings.rescue;
        if mode == Rescue::Off {
            return None;
        }
        let blockade = streams.blockade()?;
        let hole = streams.hole()?;
        let from = hole::owner(paths, &hole)?;
        let ready = paths.open().filter_map(|slot| slot.ready(now));
        let free = ready.filter(|path| path.id() != from && !hole.ever.contains(path.id()));
        let fast = free.min_by_key(|path| path.route().rtt().smoothed())?;
        let (id, rtt) = (fast.id(), fast.route().rtt().smoothed());
        let slow = paths.path(from)?;
        if mode == Rescue::CopyAndPenalise && blockade == Blockade::ReceiveWindow {
            self.penalise(now, paths.open_path(from), rtt);
        }
        let route = slow.route();
        let packet = u64::from(route.max_datagram_size());
        let window = route.congestion_window();
        let live = hole.live.len().max(1);
        if live >= self.max_copies || !is_worth_copying(rtt, route.rtt().smoothed(), window, packet)
        {
            return None;
        }
        let length = hole::copyable_of(paths, &hole, from).min(LARGEST_COPY);
        let frame = streams.frame_of(&hole, length)?;
        let event = PathEvent::Overtaken { path: from, by: id };
        Some((Job::data(id, Load::Hole { from, frame }), event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn only_a_path_four_times_slower_or_nearly_without_window_is_overtaken() {
        assert!(is_worth_copying(ms(20), ms(100), 100_000, 1200));
        assert!(!is_worth_copying(ms(20), ms(80), 100_000, 1200));
        assert!(is_worth_copying(ms(20), ms(80), 4 * 1200, 1200));
    }
}
