//! The driver's clock: the only source of the engine's time.

use anabranch_proto::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant as TokioInstant;

/// Maps the runtime's monotonic clock to engine time.
///
/// Engine time counts from the Unix epoch, as the wall clock showed it when this clock was created,
/// so that tokens sealed before a restart still have a meaningful age. After that only the
/// monotonic clock counts: a step of the wall clock does not change engine time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: TokioInstant,
    offset_nanos: u64,
}

impl Clock {
    /// A clock that starts at the wall clock's time.
    pub(crate) fn new() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            started: TokioInstant::now(),
            offset_nanos: u64::try_from(since_epoch.as_nanos()).unwrap_or_default(),
        }
    }

    /// The current time. Never decreases.
    pub(crate) fn now(self) -> Instant {
        Instant::from_nanos(self.offset_nanos) + self.started.elapsed()
    }

    /// Converts `instant` to the runtime's clock, for timers; a time in the far future if the
    /// runtime cannot represent it.
    pub(crate) fn to_tokio(self, instant: Instant) -> TokioInstant {
        let elapsed = instant.since(Instant::from_nanos(self.offset_nanos));
        // A year is longer than any timer, and every platform's clock can represent it.
        self.started + elapsed.min(Duration::from_secs(365 * 24 * 3600))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn engine_time_follows_the_runtime_and_maps_back() {
        let clock = Clock::new();
        let before = clock.now();
        tokio::time::advance(Duration::from_millis(7)).await;
        assert_eq!(clock.now().since(before), Duration::from_millis(7));
        assert_eq!(clock.to_tokio(clock.now()), TokioInstant::now());
    }

    #[tokio::test]
    async fn a_deadline_that_never_comes_is_still_a_valid_timer() {
        let clock = Clock::new();
        assert!(clock.to_tokio(Instant::FAR_FUTURE) > TokioInstant::now());
    }
}
