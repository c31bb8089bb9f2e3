//! How often acknowledgements are sent and wanted (draft-ietf-quic-ack-frequency-14).

use std::time::Duration;

/// The shortest delay of acknowledgements that a peer may ask for: what timers of drivers resolve.
pub(crate) const MIN_ACK_DELAY: Duration = Duration::from_millis(1);

/// What the two ends may tell each other about acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckFrequency {
    /// Whether the peer may say how often it wants acknowledgements; announces `min_ack_delay`.
    pub accept: bool,
    /// Whether packets that want an answer at once say so with `IMMEDIATE_ACK`, if the peer
    /// accepts that: probes, keep-alives, challenges of new paths.
    pub immediate: bool,
    /// The most packets that the peer is asked to acknowledge by one, if it accepts that: a quarter
    /// of the smallest window in use, within this. `None` leaves the peer to its habits.
    pub most_packets: Option<u32>,
}

impl Default for AckFrequency {
    fn default() -> Self {
        Self {
            accept: true,
            immediate: true,
            most_packets: None,
        }
    }
}

impl AckFrequency {
    /// The transport parameter, in microseconds; it must not exceed `max_ack_delay`.
    pub(crate) fn min_ack_delay_us(&self, max_ack_delay: Duration) -> Option<u64> {
        // The other parameter is of whole milliseconds.
        let max = Duration::from_millis(max_ack_delay.as_millis() as u64);
        self.accept
            .then(|| MIN_ACK_DELAY.min(max).as_micros() as u64)
    }
}
