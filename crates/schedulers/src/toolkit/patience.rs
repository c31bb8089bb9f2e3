//! A bounded wait for one path while others could send.
//!
//! Leaving a path idle on purpose is only safe if the wait is sure to end: the acknowledgement that
//! is waited for may be lost. So a wait is legal only while the path has something in flight or a
//! pacer that will open, it lasts no longer than an acknowledgement should take, and then one unit
//! goes by the lowest RTT.

use anabranch_proto::sched::{
    Choice, Decision, PathEvent, PathView, Reason, SendView, UnitKind, lowest_rtt,
};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;

/// No wait is cut shorter than this, so that timer granularity does not turn waits into sends.
const SHORTEST_LIMIT: Duration = Duration::from_millis(10);

/// The wait of a scheduler that prefers a full path to a free one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patience {
    waiting: Option<Wait>,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    path: PathId,
    since: Instant,
}

impl Patience {
    /// Holds for `path`, for `reason`. Once patience is exhausted, or if the path has nothing that
    /// would end the wait, answers once with the lowest RTT of the paths that can send.
    pub fn wait_for(&mut self, view: &SendView<'_>, path: &PathView, reason: Reason) -> Choice {
        let since = match self.waiting {
            Some(wait) if wait.path == path.id => wait.since,
            _ => view.now,
        };
        let end = since + longest_wait(view, path);
        if !will_open(view, path) || end <= view.now {
            self.waiting = None;
            return lowest_rtt(view);
        }
        self.waiting = Some(Wait {
            path: path.id,
            since,
        });
        Choice::hold_until(wake_up(view, path, end), reason)
    }

    /// The wait is over: something was sent.
    pub fn end(&mut self) {
        self.waiting = None;
    }

    /// Ends the wait for a path that stops being an option. Call it with every event.
    pub fn on_event(&mut self, event: &PathEvent) {
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event
            && self.waiting.is_some_and(|wait| wait.path == *path)
        {
            self.waiting = None;
        }
    }
}

/// A hold for `path` that starts now and is renewed for as long as the scheduler asks for it;
/// `None` if nothing on the path would ever end it.
pub fn hold_for(view: &SendView<'_>, path: &PathView, reason: Reason) -> Option<Choice> {
    let end = view.now + longest_wait(view, path);
    let until = Some(wake_up(view, path, end));
    will_open(view, path).then_some(Choice {
        decision: Decision::Hold { until },
        reason,
    })
}

fn will_open(view: &SendView<'_>, path: &PathView) -> bool {
    path.bytes_in_flight > 0 || path.pacer_ready > view.now
}

/// When to look again: at the end of the wait, or earlier when only the pacer stands in the way.
fn wake_up(view: &SendView<'_>, path: &PathView, end: Instant) -> Instant {
    let paced = path.room() >= u64::from(path.max_datagram_size) && path.pacer_ready > view.now;
    if paced {
        end.min(path.pacer_ready)
    } else {
        end
    }
}

/// How long an acknowledgement on `path` may take. The last unit of all waits for one RTT at most:
/// nothing follows that the preferred path could carry meanwhile.
pub fn longest_wait(view: &SendView<'_>, path: &PathView) -> Duration {
    let last = view.unit.kind != UnitKind::Idle && view.backlog.total() <= view.unit.bytes;
    if last && !path.smoothed_rtt.is_zero() {
        return path.smoothed_rtt;
    }
    path.smoothed_rtt
        .saturating_add(path.rttvar.saturating_mul(4))
        .max(SHORTEST_LIMIT)
}
