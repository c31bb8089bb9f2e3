//! Delivery-rate estimation (draft-cheng-iccrg-delivery-rate-estimation; draft-ietf-ccwg-bbr,
//! section 4.1).
//!
//! A sample is the data delivered between the acknowledgement that was the latest when a packet was
//! sent and the acknowledgement of that packet, over the time this took. The time is the longer of
//! the one spent sending and the one spent acknowledging, so that neither compressed
//! acknowledgements nor a burst of sending inflate the rate.

use super::max_filter::MaxFilter;
use super::sent_packets::SentPacket;
use crate::time::{Duration, Instant};

/// For how many round trips the largest sample stands for the path's bandwidth.
pub const BANDWIDTH_WINDOW_ROUNDS: u64 = 10;

/// One delivery-rate sample (draft-ietf-ccwg-bbr, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSample {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes delivered on the path so far, this acknowledgement included.
    pub delivered: u64,
    /// Bytes delivered by the time the newest acknowledged packet was sent.
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

/// The estimator's state when a packet was sent; travels with the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    delivered: u64,
    delivered_time: Instant,
    first_sent_time: Instant,
    lost: u64,
    app_limited: bool,
}

/// The delivery-rate estimator of one route. Only packets that count as in flight take part, and
/// only those sent on this route: the snapshots of another one mean nothing here.
#[derive(Debug, Clone, Default)]
pub struct DeliveryRate {
    delivered: u64,
    delivered_time: Instant,
    first_sent_time: Instant,
    lost: u64,
    /// The sender left room unused until `delivered` exceeds this; 0 if it did not.
    app_limited_until: u64,
    ack: AckInProgress,
    round: u64,
    round_ends_at: u64,
    bandwidth: MaxFilter,
}

/// What is known of the acknowledgement frame being processed.
#[derive(Debug, Clone, Copy, Default)]
struct AckInProgress {
    newly_acked: u64,
    newest: Option<NewestAcked>,
}

#[derive(Debug, Clone, Copy)]
struct NewestAcked {
    time_sent: Instant,
    in_flight: u64,
    at_send: Snapshot,
}

impl DeliveryRate {
    /// A state in which nothing was sent or delivered.
    pub fn new() -> Self {
        Self::default()
    }

    /// The snapshot for a packet that leaves now, with `in_flight_before` bytes on the way already.
    pub fn on_sent(&mut self, now: Instant, in_flight_before: u64) -> Snapshot {
        if in_flight_before == 0 {
            // Idle time is not time spent delivering.
            self.first_sent_time = now;
            self.delivered_time = now;
        }
        Snapshot {
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            first_sent_time: self.first_sent_time,
            lost: self.lost,
            app_limited: self.app_limited_until != 0,
        }
    }

    /// A packet was acknowledged; to be called for each one of a frame, in any order.
    pub fn on_packet_acked(&mut self, now: Instant, packet: &SentPacket) {
        if !packet.in_flight {
            return;
        }
        self.delivered += u64::from(packet.size);
        self.delivered_time = now;
        self.ack.newly_acked += u64::from(packet.size);
        let is_newest = self.ack.newest.is_none_or(|newest| {
            (newest.at_send.delivered, newest.time_sent) < (packet.rate.delivered, packet.time_sent)
        });
        if is_newest {
            self.first_sent_time = packet.time_sent;
            self.ack.newest = Some(NewestAcked {
                time_sent: packet.time_sent,
                in_flight: packet.bytes_in_flight_after,
                at_send: packet.rate,
            });
        }
    }

    /// All packets of a frame were counted: the sample, if it can be trusted. An interval below
    /// `min_rtt` means that a packet was acknowledged before it can have arrived, or that the
    /// estimate of the minimum is behind; either way the rate would be too high.
    pub fn finish_ack(&mut self, now: Instant, min_rtt: Duration) -> Option<RateSample> {
        let ack = std::mem::take(&mut self.ack);
        let newest = ack.newest?;
        if self.app_limited_until != 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let at_send = newest.at_send;
        if at_send.delivered >= self.round_ends_at {
            self.round += 1;
            self.round_ends_at = self.delivered;
        }
        let send_elapsed = newest.time_sent.since(at_send.first_sent_time);
        let ack_elapsed = now.since(at_send.delivered_time);
        let interval = send_elapsed.max(ack_elapsed);
        if interval.is_zero() || interval < min_rtt {
            return None;
        }
        let sample = RateSample {
            rate: per_second(self.delivered.saturating_sub(at_send.delivered), interval),
            delivered: self.delivered,
            prior_delivered: at_send.delivered,
            newly_acked: ack.newly_acked,
            lost: self.lost.saturating_sub(at_send.lost),
            in_flight_at_send: newest.in_flight,
            interval,
            app_limited: at_send.app_limited,
        };
        if !sample.app_limited || sample.rate >= self.bandwidth.value() {
            self.bandwidth
                .update(self.round, sample.rate, BANDWIDTH_WINDOW_ROUNDS);
        }
        Some(sample)
    }

    /// Takes note that these bytes were declared lost.
    pub fn on_lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    /// The sender leaves room unused, with `in_flight` bytes on the way: for want of data, or
    /// because the scheduler prefers another path. Samples are lower bounds until all of this is
    /// delivered.
    pub fn set_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// Whether packets sent now are marked as sent with room to spare.
    #[cfg(test)]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until != 0
    }

    /// Bytes delivered so far.
    #[cfg(test)]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The largest rate of the last ten round trips in bytes per second; 0 before the first sample.
    /// Kept while nothing is sent. A sample taken with room to spare counts only if it is larger.
    pub fn bandwidth(&self) -> u64 {
        self.bandwidth.value()
    }
}

/// `bytes` over `interval`, in bytes per second; the interval is not zero.
fn per_second(bytes: u64, interval: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / interval.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
