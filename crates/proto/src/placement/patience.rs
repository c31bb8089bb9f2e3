//! How long a scheduler may hold while data waits.
//!
//! A probe time-out from its first hold. What was in flight then is what it may be waiting for: as
//! long as that is acknowledged, time begins anew. Data sent during the hold does not extend it, or
//! frames of the other direction could keep data waiting without end.

use crate::time::Instant;

/// Ends when something is sent, or when nothing waits.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// When it runs out, however often the scheduler asks for more.
    end: Option<Instant>,
    /// Bytes in flight at the first hold that are neither acknowledged nor lost.
    in_flight: Option<u64>,
}

impl Patience {
    /// A scheduler holds, with `in_flight` bytes in flight: returns when this must be over, which
    /// is `longest` if time begins here.
    pub(super) fn on_hold(&mut self, longest: Instant, in_flight: u64) -> Instant {
        self.in_flight.get_or_insert(in_flight);
        *self.end.get_or_insert(longest)
    }

    pub(super) fn on_acked(&mut self, bytes: u64) {
        if self.in_flight.is_some_and(|left| left > 0) {
            self.end = None;
        }
        self.on_lost(bytes);
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        if let Some(left) = &mut self.in_flight {
            *left = left.saturating_sub(bytes);
        }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.end.is_none_or(|end| end <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn what_was_in_flight_at_the_first_hold_is_waited_for_and_nothing_else() {
        let mut patience = Patience::default();
        assert_eq!(patience.on_hold(at(50), 2400), at(50));
        assert_eq!(patience.on_hold(at(70), 2400), at(50), "asked again");
        patience.on_acked(1200);
        assert_eq!(patience.on_hold(at(80), 9000), at(80));
        patience.on_acked(1200);
        assert_eq!(patience.on_hold(at(90), 9000), at(90));
        patience.on_acked(1200);
        assert_eq!(patience.on_hold(at(100), 9000), at(90), "sent meanwhile");
        assert!(!patience.is_over(at(89)) && patience.is_over(at(90)));
    }

    #[test]
    fn what_is_lost_is_not_waited_for() {
        let mut patience = Patience::default();
        assert_eq!(patience.on_hold(at(50), 1200), at(50));
        patience.on_lost(1200);
        patience.on_acked(1200);
        assert_eq!(patience.on_hold(at(70), 0), at(50));
    }
}
