//! When acknowledgements are due: by our habits, or as the peer asked.

use crate::error::TransportError;
use crate::time::Duration;
use anabranch_wire::frame::AckFrequency;

/// Packets per acknowledgement that are granted at the most, whatever the peer asks for.
pub const MAX_PACKETS: u32 = 1024;

/// The longest delay that is granted: longer than any round trip worth using.
pub const MAX_DELAY: Duration = Duration::from_secs(1);

/// The first delay that cannot be asked for: that of RFC 9000, section 18.2.
const DELAY_LIMIT: Duration = Duration::from_millis(1 << 14);

/// How the peer wants to be acknowledged on all paths: the newest of its requests.
#[derive(Debug, Default)]
pub struct AckWish(Option<AckFrequency>);

impl AckWish {
    /// A request arrived; `shortest` is the shortest delay that may be asked for, in microseconds.
    /// Returns what changes, if it is newer than those before.
    ///
    /// # Errors
    ///
    /// It asks for what must not be asked for (draft-ietf-quic-ack-frequency-14, section 4).
    pub fn on_request(
        &mut self,
        wish: &AckFrequency,
        shortest: u64,
    ) -> Result<Option<AckPolicy>, TransportError> {
        if wish.max_ack_delay_us < shortest {
            return Err(TransportError::violation(
                "asks for a shorter delay of acknowledgements than min_ack_delay",
            ));
        }
        if Duration::from_micros(wish.max_ack_delay_us) >= DELAY_LIMIT {
            return Err(TransportError::violation(
                "asks for a delay of acknowledgements of 2^14 ms or more",
            ));
        }
        if self.0.is_some_and(|known| wish.sequence <= known.sequence) {
            return Ok(None);
        }
        self.0 = Some(*wish);
        Ok(self.policy())
    }

    /// What the wish means for each path; `None` while nothing was asked for.
    pub fn policy(&self) -> Option<AckPolicy> {
        self.0.as_ref().map(AckPolicy::asked)
    }
}

/// When acknowledgements of one packet number space are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckPolicy {
    /// After this many ack-eliciting packets; at least 1.
    pub packets: u32,
    /// After this long.
    pub delay: Duration,
    /// At once if a packet is missing or late by this many packet numbers; 0 for never.
    pub reordering: u64,
    /// At once for every congestion mark, or only for the first in a row.
    pub every_mark: bool,
}

impl AckPolicy {
    /// RFC 9000, section 13.2, with this threshold and delay.
    pub fn habit(packets: u32, delay: Duration) -> Self {
        Self {
            packets: packets.max(1),
            delay,
            reordering: 1,
            every_mark: true,
        }
    }

    /// What the peer asked for, within bounds: acknowledging earlier is always allowed.
    pub fn asked(wish: &AckFrequency) -> Self {
        let packets = wish.ack_eliciting_threshold.saturating_add(1);
        Self {
            packets: packets.min(u64::from(MAX_PACKETS)) as u32,
            delay: Duration::from_micros(wish.max_ack_delay_us).min(MAX_DELAY),
            reordering: wish.reordering_threshold,
            every_mark: wish.ack_eliciting_threshold <= 1,
        }
    }
}
