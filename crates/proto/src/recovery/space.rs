//! One packet number space: numbers, packets under way, loss, and what the peer sent.

use super::loss::loss_delay;
use super::received::ReceivedPackets;
use super::rtt::RttEstimator;
use super::sent_packets::{SentPacket, SentPackets};
use crate::error::TransportError;
use crate::rng::Rng;
use crate::time::Instant;
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// The first skipped packet number comes about this far in. A handshake is over before.
const FIRST_SKIP_DISTANCE: u64 = 256;

/// Skipped numbers get rarer up to this distance: each costs the peer an early acknowledgement and
/// one more range to report for a round trip.
const MAX_SKIP_DISTANCE: u64 = 16_384;

/// How many skipped numbers are remembered. More than are skipped in any plausible round trip, and
/// only numbers under way are worth guessing for a peer that cheats.
const MAX_SKIPPED_REMEMBERED: usize = 32;

/// Lost packets may be acknowledged for this many PTOs before they are forgotten.
const LOST_MEMORY_PTOS: u32 = 3;

/// A packet number space: Initial, Handshake, or the 1-RTT packets of one path.
///
/// A number is skipped now and then: a peer that acknowledges packets before it received them, to
/// make us send faster, acknowledges one that was never sent (RFC 9000, section 21.4).
#[derive(Debug)]
pub struct PacketSpace {
    received: ReceivedPackets,
    sent: SentPackets,
    next: u64,
    skip_at: u64,
    skip_distance: u64,
    skipped: VecDeque<u64>,
    rng: Rng,
    largest_acked: Option<u64>,
    loss_time: Option<Instant>,
    last_ack_eliciting_sent: Option<Instant>,
    sent_since_ack_eliciting: u32,
}

/// The newest of the packets that an acknowledgement frame acknowledged for the first time, those
/// declared lost before included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargestNewlyAcked {
    /// The packet's number.
    pub pn: u64,
    /// When it was sent.
    pub time_sent: Instant,
    /// Whether any newly acknowledged packet that was not declared lost was ack-eliciting.
    pub ack_eliciting: bool,
    /// Whether it is the frame's largest number and exceeds all acknowledged before. Only then, and
    /// if `ack_eliciting`, is the time since it was sent an RTT sample (RFC 9002, section 5.1).
    pub is_largest_ever: bool,
}

impl PacketSpace {
    /// A space in which nothing was sent or received.
    pub fn new(rng: &mut Rng) -> Self {
        let mut space = Self {
            received: ReceivedPackets::new(),
            sent: SentPackets::default(),
            next: 0,
            skip_at: 0,
            skip_distance: FIRST_SKIP_DISTANCE,
            skipped: VecDeque::new(),
            rng: rng.fork(),
            largest_acked: None,
            loss_time: None,
            last_ack_eliciting_sent: None,
            sent_since_ack_eliciting: 0,
        };
        space.plan_skip();
        space
    }

    /// What the peer sent in this space.
    pub fn received(&self) -> &ReceivedPackets {
        &self.received
    }

    /// What the peer sent in this space.
    pub fn received_mut(&mut self) -> &mut ReceivedPackets {
        &mut self.received
    }

    /// Takes the next packet number. One that is taken and not sent is as good as skipped to the
    /// peer, but acknowledging it is not noticed.
    pub fn next_pn(&mut self) -> u64 {
        let pn = self.next;
        self.next += 1;
        if self.next == self.skip_at {
            if self.skipped.len() >= MAX_SKIPPED_REMEMBERED {
                self.skipped.pop_front();
            }
            self.skipped.push_back(self.next);
            self.next += 1;
            self.plan_skip();
        }
        pn
    }

    fn plan_skip(&mut self) {
        let distance = self.skip_distance;
        self.skip_at = self.next + distance / 2 + self.rng.below(distance);
        self.skip_distance = (distance * 2).min(MAX_SKIP_DISTANCE);
    }

    /// The number [`PacketSpace::next_pn`] will return.
    pub fn peek_pn(&self) -> u64 {
        self.next
    }

    /// The largest number the peer acknowledged.
    pub fn largest_acked(&self) -> Option<u64> {
        self.largest_acked
    }

    /// Remembers a packet that was sent with a number from [`PacketSpace::next_pn`].
    pub fn on_sent(&mut self, pn: u64, packet: SentPacket) {
        if packet.ack_eliciting {
            self.last_ack_eliciting_sent = Some(packet.time_sent);
            self.sent_since_ack_eliciting = 0;
        } else {
            self.sent_since_ack_eliciting = self.sent_since_ack_eliciting.saturating_add(1);
        }
        self.sent.insert(pn, packet);
    }

    /// Remembers a packet that was made with the number `pn` from [`PacketSpace::peek_pn`].
    pub(crate) fn remember(&mut self, pn: u64, packet: SentPacket) {
        let next = self.next_pn();
        debug_assert_eq!(next, pn, "the packet number was announced by peek_pn");
        self.on_sent(next, packet);
    }

    /// Processes the ranges of one acknowledgement frame, descending and apart from each other.
    ///
    /// Newly acknowledged packets are appended to `acked` in descending order. Among them are
    /// packets declared lost before, as far as they are still remembered, with
    /// [`lost_at`](SentPacket::lost_at) set: their frames did arrive. Call
    /// [`PacketSpace::detect_lost`] next.
    ///
    /// # Errors
    /// `PROTOCOL_VIOLATION` if a packet is acknowledged that was never sent.
    pub fn on_ack(
        &mut self,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        acked: &mut Vec<(u64, SentPacket)>,
    ) -> Result<Option<LargestNewlyAcked>, TransportError> {
        let mut frame_largest = None;
        let mut newest: Option<(u64, Instant)> = None;
        let mut ack_eliciting = false;
        for range in ranges {
            let (low, high) = range.into_inner();
            self.check_was_sent(low, high)?;
            frame_largest = frame_largest.or(Some(high));
            let start = acked.len();
            self.sent.acknowledge(low, high, acked);
            ack_eliciting |= acked[start..]
                .iter()
                .any(|(_, packet)| packet.ack_eliciting);
            self.sent.acknowledge_lost(low, high, acked);
            if let Some((pn, packet)) = acked.get(start) {
                newest = newest.or(Some((*pn, packet.time_sent)));
            }
        }
        let advances = frame_largest > self.largest_acked;
        self.largest_acked = self.largest_acked.max(frame_largest);
        Ok(newest.map(|(pn, time_sent)| LargestNewlyAcked {
            pn,
            time_sent,
            ack_eliciting,
            is_largest_ever: advances && frame_largest == Some(pn),
        }))
    }

    fn check_was_sent(&self, low: u64, high: u64) -> Result<(), TransportError> {
        if high >= self.next {
            return Err(TransportError::violation(
                "a packet was acknowledged that was never sent",
            ));
        }
        // Nearly every range is older or newer than all skipped numbers but the last few.
        let at = self.skipped.partition_point(|pn| *pn < low);
        match self.skipped.get(at) {
            Some(pn) if *pn <= high => Err(TransportError::violation(
                "a skipped packet number was acknowledged: the peer acknowledges what it did not \
                 receive",
            )),
            _ => Ok(()),
        }
    }

    /// Moves the packets that are lost by now to `lost`, in ascending order (RFC 9002, section
    /// 6.1), and sets [`PacketSpace::loss_time`]. To be called after each acknowledgement and at
    /// that time.
    pub fn detect_lost(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        lost: &mut Vec<(u64, SentPacket)>,
    ) {
        let Some(largest_acked) = self.largest_acked else {
            return;
        };
        self.sent
            .forget_lost_before(now - rtt.pto_base() * LOST_MEMORY_PTOS);
        self.loss_time = self
            .sent
            .detect_lost(now, largest_acked, loss_delay(rtt), lost);
    }

    /// When the next packet will be lost if nothing is acknowledged until then.
    pub fn loss_time(&self) -> Option<Instant> {
        self.loss_time
    }

    /// Bytes of the packets that count as in flight and are neither acknowledged nor lost.
    #[cfg(test)]
    pub fn bytes_in_flight(&self) -> u64 {
        self.sent.bytes_in_flight()
    }

    /// How many ack-eliciting packets are neither acknowledged nor lost.
    pub fn ack_eliciting_in_flight(&self) -> usize {
        self.sent.ack_eliciting()
    }

    /// When the last ack-eliciting packet was sent: the base of the PTO.
    pub fn last_ack_eliciting_sent(&self) -> Option<Instant> {
        self.last_ack_eliciting_sent
    }

    /// How many packets in a row elicited no acknowledgement. An endpoint that only receives adds a
    /// PING to one once in a while, to learn which of its acknowledgements arrived (RFC 9000,
    /// section 13.2.4).
    pub fn sent_since_ack_eliciting(&self) -> u32 {
        self.sent_since_ack_eliciting
    }

    /// When the oldest ack-eliciting packet was sent that is neither acknowledged nor lost.
    pub fn oldest_eliciting(&self) -> Option<Instant> {
        self.sent.oldest_eliciting()
    }

    /// When the third-oldest such packet was sent: if it is late, several are.
    pub fn third_oldest_eliciting(&self) -> Option<Instant> {
        self.sent.third_oldest_eliciting()
    }

    /// The packets that are neither acknowledged nor lost, in ascending order.
    pub fn iter_unacked(&self) -> impl Iterator<Item = (u64, &SentPacket)> {
        self.sent.iter()
    }

    /// The packets from number `pn` on that are neither acknowledged nor lost.
    pub fn unacked_from(&self, pn: u64) -> impl Iterator<Item = (u64, &SentPacket)> {
        self.sent.iter_from(pn)
    }

    /// Removes and returns all packets under way, in ascending order: the path is closed, or the
    /// server asked for a Retry. Acknowledgements that still come in find nothing.
    pub fn take_all(&mut self) -> Vec<(u64, SentPacket)> {
        self.loss_time = None;
        self.sent.take_all()
    }
}

#[cfg(test)]
mod tests;
