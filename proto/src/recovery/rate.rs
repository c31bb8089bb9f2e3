//! Delivery-rate estimation.

use crate::time::Duration;

/// One delivery-rate sample (draft-ietf-ccwg-bbr, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSample {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes delivered on the path so far, this acknowledgement included.
    pub delivered: u64,
    /// The same when the newest acknowledged packet was sent.
    pub prior_delivered: u64,
    /// Bytes newly acknowledged.
    pub newly_acked: u64,
    /// Bytes declared lost on the path between the two.
    pub lost: u64,
    /// Bytes in flight right after the newest acknowledged packet was sent.
    pub in_flight_at_send: u64,
    /// The time the sample spans.
    pub interval: Duration,
    /// Whether the sender left room unused, so that the sample is a lower bound only.
    pub app_limited: bool,
}
