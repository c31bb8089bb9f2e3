//! When acknowledgements are due: by our habits, or as the peer asked.

use crate::time::Duration;
use anabranch_wire::frame::AckFrequency;

/// Packets per acknowledgement that are granted at the most, whatever the peer asks for.
pub const MAX_PACKETS: u32 = 1024;

/// The longest delay that is granted: longer than any round trip worth using.
pub const MAX_DELAY: Duration = Duration::from_secs(1);

/// When acknowledgements of one packet number space are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckPolicy {
    /// After this many ack-eliciting packets; at least 1.
    pub packets: u32,
    /// After this long.
    pub delay: Duration,
    /// At once if a packet is missing or late by so many; 0 for never.
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
