//! What a connection waits for. Who owns which timer is listed in `connection/timers.rs`.

use crate::path::liveness::Alarm;
use crate::time::Instant;

/// What a time-out is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(
    missing_docs,
    reason = "the table at the top of `connection/timers.rs` explains them"
)]
pub enum Timer {
    Acknowledge,
    Loss,
    Pto,
    Silence,
    Inquiry,
    Validation,
    Pacing,
    KeepAlive,
    PathIdle,
    Discard,
    Hold,
    OldKeys,
    Handshake,
    Idle,
    Close,
}

impl From<Alarm> for Timer {
    fn from(alarm: Alarm) -> Self {
        match alarm {
            Alarm::Probe => Self::Pto,
            Alarm::Silence => Self::Silence,
            Alarm::Inquiry => Self::Inquiry,
            Alarm::KeepAlive => Self::KeepAlive,
            Alarm::Idle => Self::PathIdle,
        }
    }
}

/// The first of several timers; of those at the same time, the one named first in [`Timer`].
#[derive(Default)]
pub(crate) struct First(Option<(Instant, Timer)>);

impl First {
    /// One more timer, if it is set.
    pub(crate) fn offer(&mut self, at: Option<Instant>, timer: Timer) {
        if let Some(at) = at
            && self.0.is_none_or(|first| (at, timer) < first)
        {
            self.0 = Some((at, timer));
        }
    }

    /// Whether a timer that ends at `at` or later may be the first.
    pub(crate) fn may_follow(&self, at: Instant) -> bool {
        self.0.is_none_or(|first| at <= first.0)
    }

    /// The first of those offered.
    pub(crate) fn get(&self) -> Option<(Instant, Timer)> {
        self.0
    }
}
