//! How the peer's lone PINGs are answered: a peer that keeps probing did not see the
//! acknowledgements that went back by the path itself.

use super::Liveness;
use crate::time::{Duration, Instant};

/// Lone PINGs in a row after which acknowledgements take a detour for a while.
const PINGS_BEFORE_DETOUR: u32 = 2;

/// How long the first detour lasts; each further one lasts twice as long.
const FIRST_DETOUR: Duration = Duration::from_secs(2);
const LONGEST_DETOUR: Duration = Duration::from_secs(60);

/// Whether acknowledgements go back another way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Detour {
    /// Packets in a row that held nothing but a PING.
    lone_pings: u32,
    /// Acknowledgements travel on another path instead until then.
    until: Option<Instant>,
    /// How long the last detour was to last.
    span: Duration,
}

impl Liveness {
    /// The peer sent a packet with nothing but a PING; until when acknowledgements take another
    /// path instead, if that begins now.
    pub(crate) fn on_lone_ping(&mut self, now: Instant) -> Option<Instant> {
        let detour = &mut self.detour;
        detour.lone_pings += 1;
        if detour.lone_pings < PINGS_BEFORE_DETOUR {
            return None;
        }
        detour.span = (detour.span * 2).clamp(FIRST_DETOUR, LONGEST_DETOUR);
        detour.until = Some(now + detour.span);
        detour.until
    }

    /// The peer sent something else that must be acknowledged.
    pub(crate) fn on_other_question(&mut self) {
        self.detour.lone_pings = 0;
    }

    /// Whether acknowledgements take another path now.
    pub(crate) fn takes_detour(&self, now: Instant) -> bool {
        self.detour.until.is_some_and(|until| now < until)
    }
}
