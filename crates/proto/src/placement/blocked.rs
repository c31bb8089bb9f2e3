//! What keeps a connection from sending although paths have room, for how long and because of which
//! path.

use super::{Placement, hole};
use crate::path::manager::Manager;
use crate::streams::{Blockade, Streams};
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;

/// What kept a connection from sending while a path had room. Which path's unacknowledged data was
/// waited for is counted in [`PathCounters::blocking`](crate::path::PathCounters::blocking).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockedStats {
    /// The peer's flow control: receive-buffer blocking.
    pub receive_window: BlockedTime,
    /// Unacknowledged data that fills the send buffer: send-buffer blocking.
    pub send_buffer: BlockedTime,
    /// The scheduler, which waits for another path.
    pub scheduler: BlockedTime,
}

/// How often and how long something lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockedTime {
    /// How often it began.
    pub times: u64,
    /// How long it lasted in all.
    pub time: Duration,
}

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

impl Placement {
    /// Notes what blocks, once everything that can be sent was sent; `may_send` tells whether data
    /// packets can be protected. Returns the path whose data everything waited for until now, and
    /// for how long.
    pub(crate) fn note_blocked(
        &mut self,
        now: Instant,
        may_send: bool,
        paths: &Manager,
        streams: &Streams,
    ) -> Option<(PathId, Duration)> {
        let waiting = streams.waiting_classes();
        let cause = if waiting.is_empty() {
            streams.blockade().map(Cause::Stopped)
        } else {
            // A class that may still send is not held.
            let free = waiting.without(self.waits.held());
            free.is_empty().then_some(Cause::Held)
        };
        // What costs most is asked last: most often nothing is in the way but the windows.
        let mut slots = paths.in_use();
        let cause = cause.filter(|_| may_send && slots.any(|slot| slot.ready(now).is_some()));
        let owner = match cause {
            Some(Cause::Stopped(_)) => streams.hole().and_then(|hole| hole::owner(paths, &hole)),
            _ => None,
        };
        self.blocked.turn(now, cause, owner)
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
