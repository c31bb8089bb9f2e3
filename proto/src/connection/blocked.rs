//! What keeps a connection from sending although paths have room, for how long and because of which
//! path; and the way out, opportunistic retransmission (docs/mechanisms.md).

use super::Connection;
use super::schedule::{Carry, Payload, can_send};
use super::stats::{BlockedStats, BlockedTime};
use crate::config::Rescue;
use crate::path::PathSet;
use crate::path::manager::Slot;
use crate::path::state::Path;
use crate::sched::PathEvent;
use crate::streams::{Blockade, Hole, Streams};
use crate::time::{Duration, Instant};
use crate::wire::PathId;

/// Packets of a path searched for the oldest data: what was sent before it is acknowledged, so few
/// precede it.
const MAX_SEARCHED: usize = 64;

/// A path with this many packets in its window is too slow to be waited for, whatever its RTT.
const SMALL_WINDOW: u64 = 4;

/// How much slower a path must be for its data to be copied.
const SLOWER: u32 = 4;

/// Why nothing is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Stopped(Blockade),
    Held,
}

/// The clock that runs while something blocks.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    since: Instant,
    cause: Option<Cause>,
    /// The path whose unacknowledged data everything waits for.
    owner: Option<PathId>,
    stats: BlockedStats,
}

impl Blocked {
    /// Counts up to `now`, including what is blocked still.
    pub(super) fn stats(&self, now: Instant) -> BlockedStats {
        let mut stats = self.stats.clone();
        if let Some(cause) = self.cause {
            clock(&mut stats, cause).time += now.since(self.since);
        }
        stats
    }

    /// Something blocks from now on, or nothing; returns the path that blocked until now, and how
    /// long.
    fn turn(
        &mut self,
        now: Instant,
        cause: Option<Cause>,
        owner: Option<PathId>,
    ) -> Option<(PathId, Duration)> {
        let span = now.since(self.since);
        let blamed = self.owner.filter(|_| self.cause.is_some());
        if let Some(before) = self.cause {
            clock(&mut self.stats, before).time += span;
        }
        if let Some(new) = cause.filter(|new| self.cause != Some(*new)) {
            clock(&mut self.stats, new).times += 1;
        }
        (self.since, self.cause, self.owner) = (now, cause, owner);
        blamed.map(|path| (path, span))
    }
}

fn clock(stats: &mut BlockedStats, cause: Cause) -> &mut BlockedTime {
    match cause {
        Cause::Stopped(Blockade::ReceiveWindow) => &mut stats.receive_window,
        Cause::Stopped(Blockade::SendBuffer) => &mut stats.send_buffer,
        Cause::Held => &mut stats.scheduler,
    }
}

/// Whether data that `slow` carries is to be copied onto `fast`: it would take too long, or `slow`
/// has next to no window.
fn is_worth_copying(fast: Duration, slow: Duration, slow_window: u64, packet: u64) -> bool {
    slow_window <= SMALL_WINDOW * packet || fast * SLOWER < slow
}

/// How much of a hole, from its first byte on, a packet of the path carries.
fn carried_by(path: &Path, hole: &Hole) -> u64 {
    let packets = path.space().iter_unacked().take(MAX_SEARCHED);
    let frames = packets.flat_map(|(_, packet)| packet.frames.iter());
    let mut carried = frames.map(|frame| Streams::carried(frame, hole));
    carried.find(|bytes| *bytes > 0).unwrap_or(0)
}

impl Connection {
    /// Notes what blocks, once everything that can be sent was sent.
    pub(super) fn note_blocked(&mut self, now: Instant) {
        let cause = self.cause(now);
        let owner = match cause {
            Some(Cause::Stopped(_)) => self.streams.hole().and_then(|hole| self.owner(&hole)),
            _ => None,
        };
        if let Some((path, span)) = self.blocked.turn(now, cause, owner)
            && let Some(path) = self.paths.open_path_mut(path)
        {
            path.counters_mut().blocking += span;
        }
    }

    fn cause(&mut self, now: Instant) -> Option<Cause> {
        let cause = if self.streams.has_unsent() {
            self.sending.deadline().map(|_| Cause::Held)
        } else {
            self.streams.blockade().map(Cause::Stopped)
        }?;
        // The dear question last: most often nothing is in the way but the windows.
        let mut open = self.paths.open().filter_map(Slot::open);
        let is_free = self.data_level().is_some() && open.any(|path| can_send(path, now));
        is_free.then_some(cause)
    }

    /// The paths that carry a hole.
    fn carriers(&self, hole: &Hole) -> PathSet {
        if !hole.ever.is_empty() {
            return hole.live;
        }
        let paths = self.paths.in_use().filter_map(|slot| slot.path.as_ref());
        paths
            .filter(|path| carried_by(path, hole) > 0)
            .map(|path| path.id())
            .collect()
    }

    /// How much of a hole a copy may hold that is to stand for what `from` carries. Bytes that were
    /// sent once have no history but the packet they are in: the next ones may travel elsewhere,
    /// and would be taken for carried by `from` for good.
    pub(super) fn copyable_of(&self, hole: &Hole, from: PathId) -> u64 {
        if !hole.ever.is_empty() {
            return hole.length;
        }
        let path = self.paths.path(from);
        path.map_or(0, |path| carried_by(path, hole).min(hole.length))
    }

    /// The path that will fill the hole first.
    fn owner(&self, hole: &Hole) -> Option<PathId> {
        let carriers = self.carriers(hole);
        let carriers = carriers.iter().filter_map(|id| self.paths.path(id));
        carriers
            .min_by_key(|path| path.route().rtt.smoothed())
            .map(Path::id)
    }

    /// Copies the data that everything waits for onto a faster path, if a blockade lasts and the
    /// configuration wants it.
    pub(super) fn rescue(&mut self, now: Instant) -> Option<Carry> {
        let mode = self.config.mechanisms.rescue;
        if mode == Rescue::Off {
            return None;
        }
        let blockade = self.streams.blockade()?;
        let hole = self.streams.hole()?;
        let from = self.owner(&hole)?;
        let open = self
            .paths
            .open()
            .filter(|slot| slot.remote_cids.has_active());
        let paths = open.filter_map(Slot::open);
        let free = paths.filter(|path| {
            path.id() != from && !hole.ever.contains(path.id()) && can_send(path, now)
        });
        let fast = free.min_by_key(|path| path.route().rtt.smoothed())?;
        let (id, rtt) = (fast.id(), fast.route().rtt.smoothed());
        let penalise = mode == Rescue::CopyAndPenalise && blockade == Blockade::ReceiveWindow;
        if penalise {
            self.penalise(now, from, rtt);
        }
        let slow = &self.paths.path(from)?.route();
        let packet = u64::from(slow.mtu.current());
        let window = slow.controller.window();
        let live = hole.live.len().max(1);
        if live >= self.config.streams.max_copies
            || !is_worth_copying(rtt, slow.rtt.smoothed(), window, packet)
        {
            return None;
        }
        self.sending
            .tell(&PathEvent::Overtaken { path: from, by: id });
        Some(Carry {
            path: id,
            what: Payload::Hole { from },
            budget: u64::MAX,
            also: PathSet::EMPTY,
            beyond: false,
        })
    }

    /// Halves what a slow path may have in flight, at most once in an RTT of the faster one.
    #[cold]
    fn penalise(&mut self, now: Instant, slow: PathId, fast_rtt: Duration) {
        let Some(path) = self.paths.open_path_mut(slow) else {
            return;
        };
        path.penalise(now, fast_rtt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    #[test]
    fn only_a_path_four_times_slower_or_nearly_without_window_is_overtaken() {
        assert!(is_worth_copying(ms(20), ms(100), 100_000, 1200));
        assert!(!is_worth_copying(ms(20), ms(80), 100_000, 1200));
        assert!(is_worth_copying(ms(20), ms(80), 4 * 1200, 1200));
    }

    #[test]
    fn time_is_counted_for_what_blocks_and_for_whom() {
        let window = Some(Cause::Stopped(Blockade::ReceiveWindow));
        let buffer = Some(Cause::Stopped(Blockade::SendBuffer));
        let (a, b) = (PathId(0), PathId(1));
        let mut blocked = Blocked::default();
        assert_eq!(blocked.turn(at(5), None, None), None);
        assert_eq!(blocked.turn(at(10), window, Some(a)), None);
        assert_eq!(blocked.turn(at(15), window, Some(b)), Some((a, ms(5))));
        assert_eq!(blocked.turn(at(22), buffer, Some(b)), Some((b, ms(7))));
        assert_eq!(blocked.turn(at(23), None, None), Some((b, ms(1))));
        assert_eq!(blocked.turn(at(30), Some(Cause::Held), None), None);
        let stats = blocked.stats(at(34));
        let counted = |of: &BlockedTime| (of.times, of.time);
        assert_eq!(counted(&stats.receive_window), (1, ms(12)));
        assert_eq!(counted(&stats.send_buffer), (1, ms(1)));
        assert_eq!(counted(&stats.scheduler), (1, ms(4)));
    }
}
