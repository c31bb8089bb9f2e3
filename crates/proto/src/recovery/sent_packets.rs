//! The packets of one space that are neither acknowledged nor lost, in order of their numbers.

use super::loss::PACKET_THRESHOLD;
use super::rate::Snapshot;
use super::sent::SentFrames;
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// How many lost packets are remembered in case they are acknowledged after all.
pub const MAX_LOST_REMEMBERED: usize = 256;

/// How many packets that elicit no acknowledgement are remembered at a time. A peer need not ever
/// acknowledge them, so a pure receiver would collect them without end; what they say is repeated
/// by the next ack-eliciting packet.
pub const MAX_ACK_ONLY_REMEMBERED: usize = 64;

/// This many late packets tell of more than one loss.
pub const SEVERAL: usize = 3;

/// What leaves without asking the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BesideWindow {
    /// Challenges and answers to them.
    Proof,
    /// Control frames, or the PING of an acknowledgement.
    Control,
}

/// A packet that was sent, and what to do with it later.
#[derive(Debug, Clone)]
pub struct SentPacket {
    /// When it was sent.
    pub time_sent: Instant,
    /// When it was declared lost, if it was: set in packets that are acknowledged after all.
    pub lost_at: Option<Instant>,
    /// The packet's size in bytes, protection included.
    pub size: u16,
    /// Whether the peer must acknowledge it.
    pub ack_eliciting: bool,
    /// Whether it counts towards bytes in flight (RFC 9002, section 2). False in a packet that is
    /// acknowledged after it was declared lost: its bytes left the count before.
    pub in_flight: bool,
    /// Whether it probes for a larger datagram size; its loss is no sign of congestion.
    pub is_mtu_probe: bool,
    /// What it was for, if it left without asking the window.
    pub beside_window: Option<BesideWindow>,
    /// Whether it left with an ECN-capable codepoint.
    pub ecn_marked: bool,
    /// The generation of the path's 4-tuple that it was sent on.
    pub tuple_generation: u32,
    /// Bytes in flight on the path, this packet included.
    pub bytes_in_flight_after: u64,
    /// The delivery-rate estimator's state when it was sent.
    pub rate: Snapshot,
    /// The frames it carried.
    pub frames: SentFrames,
}

/// Sent packets by number. Every operation costs time in proportion to the packets it touches.
///
/// Numbers ascend without being dense: some are skipped, some packets are not remembered. An
/// acknowledged packet leaves an empty slot until all older ones are gone, too. As packets below
/// the largest acknowledged number are declared lost soon after, empty slots are few.
#[derive(Debug, Default)]
pub struct SentPackets {
    /// The first slot, if any, is never empty.
    slots: VecDeque<(u64, Option<SentPacket>)>,
    /// Declared lost lately, ascending; all below the first slot.
    lost: VecDeque<(u64, SentPacket)>,
    bytes_in_flight: u64,
    ack_eliciting: usize,
    ack_only: usize,
    /// When the oldest ack-eliciting packets were sent: asked for after each packet, and many that
    /// elicit nothing may precede them.
    oldest_eliciting: [Option<Instant>; SEVERAL],
}

impl SentPackets {
    /// Remembers a packet. Its number must exceed all earlier ones.
    pub fn insert(&mut self, pn: u64, packet: SentPacket) {
        debug_assert!(
            self.slots.back().is_none_or(|(last, _)| *last < pn),
            "numbers ascend"
        );
        if packet.in_flight {
            self.bytes_in_flight += u64::from(packet.size);
        } else if !packet.ack_eliciting {
            if self.ack_only >= MAX_ACK_ONLY_REMEMBERED {
                return;
            }
            self.ack_only += 1;
        }
        if packet.ack_eliciting {
            self.ack_eliciting += 1;
            let mut oldest = self.oldest_eliciting.iter_mut();
            if let Some(free) = oldest.find(|time| time.is_none()) {
                *free = Some(packet.time_sent);
            }
        }
        self.slots.push_back((pn, Some(packet)));
    }

    /// Moves the packets numbered `low..=high` to `acked`, in descending order.
    pub fn acknowledge(&mut self, low: u64, high: u64, acked: &mut Vec<(u64, SentPacket)>) {
        if self.slots.front().is_none_or(|(first, _)| *first > high) {
            return;
        }
        let eliciting = self.ack_eliciting;
        for index in (self.position(low)..self.position(high + 1)).rev() {
            let (pn, slot) = &mut self.slots[index];
            let Some(packet) = slot.take() else { continue };
            acked.push((*pn, packet));
            let packet = &acked[acked.len() - 1].1;
            uncount(
                &mut self.bytes_in_flight,
                &mut self.ack_eliciting,
                &mut self.ack_only,
                packet,
            );
        }
        while let Some((_, None)) = self.slots.front() {
            self.slots.pop_front();
        }
        if self.ack_eliciting < eliciting {
            self.find_oldest();
        }
    }

    /// Moves the packets numbered `low..=high` that were declared lost lately to `acked`, in
    /// descending order.
    pub fn acknowledge_lost(&mut self, low: u64, high: u64, acked: &mut Vec<(u64, SentPacket)>) {
        match (self.lost.front(), self.lost.back()) {
            (Some((first, _)), Some((last, _))) if *first <= high && *last >= low => {}
            _ => return,
        }
        let start = self.lost.partition_point(|(pn, _)| *pn < low);
        let end = self.lost.partition_point(|(pn, _)| *pn <= high);
        acked.extend(self.lost.drain(start..end).rev());
    }

    /// Moves packets that are lost now that `largest_acked` is acknowledged to `lost`, in ascending
    /// order. Returns when the next one will be lost if nothing else happens.
    pub fn detect_lost(
        &mut self,
        now: Instant,
        largest_acked: u64,
        loss_delay: Duration,
        lost: &mut Vec<(u64, SentPacket)>,
    ) -> Option<Instant> {
        let eliciting = self.ack_eliciting;
        while let Some((pn, slot)) = self.slots.front() {
            if let Some(packet) = slot {
                let overtaken = *pn < largest_acked;
                let by_count = *pn + PACKET_THRESHOLD <= largest_acked;
                let by_time = packet.time_sent + loss_delay <= now;
                // Later packets have larger numbers and were sent later: none of them is lost
                // either.
                if !(overtaken && (by_count || by_time)) {
                    break;
                }
            }
            if let Some((pn, Some(packet))) = self.slots.pop_front() {
                uncount(
                    &mut self.bytes_in_flight,
                    &mut self.ack_eliciting,
                    &mut self.ack_only,
                    &packet,
                );
                self.remember_lost(now, pn, &packet);
                lost.push((pn, packet));
            }
        }
        if self.ack_eliciting < eliciting {
            self.find_oldest();
        }
        // A packet that is not in flight is worth no timer.
        let overtaken = self.slots.iter().take_while(|(pn, _)| *pn < largest_acked);
        let mut waiting = overtaken.filter_map(|(_, slot)| slot.as_ref());
        waiting
            .find(|packet| packet.in_flight)
            .map(|packet| packet.time_sent + loss_delay)
    }

    fn remember_lost(&mut self, now: Instant, pn: u64, packet: &SentPacket) {
        if !packet.in_flight {
            return;
        }
        if self.lost.len() >= MAX_LOST_REMEMBERED {
            self.lost.pop_front();
        }
        // Whether its mark was counted by the peer can no longer be told.
        let late = SentPacket {
            lost_at: Some(now),
            in_flight: false,
            ecn_marked: false,
            ..packet.clone()
        };
        self.lost.push_back((pn, late));
    }

    /// Forgets lost packets that were sent before `time`.
    pub fn forget_lost_before(&mut self, time: Instant) {
        while self
            .lost
            .front()
            .is_some_and(|(_, packet)| packet.time_sent < time)
        {
            self.lost.pop_front();
        }
    }

    /// Removes and returns everything, in ascending order.
    pub fn take_all(&mut self) -> Vec<(u64, SentPacket)> {
        self.lost.clear();
        (self.bytes_in_flight, self.ack_eliciting, self.ack_only) = (0, 0, 0);
        self.oldest_eliciting = Default::default();
        self.slots
            .drain(..)
            .filter_map(|(pn, slot)| Some((pn, slot?)))
            .collect()
    }

    /// Bytes of the packets that count as in flight.
    #[cfg(test)]
    pub fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// How many ack-eliciting packets there are.
    pub fn ack_eliciting(&self) -> usize {
        self.ack_eliciting
    }

    /// The packet with the smallest number.
    #[cfg(test)]
    pub fn oldest(&self) -> Option<(u64, &SentPacket)> {
        self.iter().next()
    }

    /// When the oldest ack-eliciting packet was sent.
    pub fn oldest_eliciting(&self) -> Option<Instant> {
        self.oldest_eliciting[0]
    }

    /// When the last of the [`SEVERAL`] oldest ack-eliciting packets was sent.
    pub fn third_oldest_eliciting(&self) -> Option<Instant> {
        self.oldest_eliciting[SEVERAL - 1]
    }

    /// Looks for the oldest ack-eliciting packets, once those before may be gone.
    fn find_oldest(&mut self) {
        let mut oldest = [None; SEVERAL];
        let packets = self.iter().map(|(_, packet)| packet);
        let eliciting = packets.filter(|packet| packet.ack_eliciting);
        // Many that elicit nothing may follow the last one.
        let eliciting = eliciting.take(self.ack_eliciting);
        for (time, packet) in oldest.iter_mut().zip(eliciting) {
            *time = Some(packet.time_sent);
        }
        self.oldest_eliciting = oldest;
    }

    /// All packets in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &SentPacket)> {
        self.slots
            .iter()
            .filter_map(|(pn, slot)| Some((*pn, slot.as_ref()?)))
    }

    /// The packets from number `pn` on, in ascending order.
    pub fn iter_from(&self, pn: u64) -> impl Iterator<Item = (u64, &SentPacket)> {
        let slots = self.slots.range(self.position(pn)..);
        slots.filter_map(|(pn, slot)| Some((*pn, slot.as_ref()?)))
    }

    /// The index of the first slot whose number is at least `pn`.
    fn position(&self, pn: u64) -> usize {
        let Some((first, _)) = self.slots.front() else {
            return 0;
        };
        // Numbers ascend, so the slot lies here or, where numbers are missing, a little before: few
        // are, and a search over all slots would touch memory that is cold.
        let guess = usize::try_from(pn.saturating_sub(*first)).unwrap_or(usize::MAX);
        let mut high = guess.min(self.slots.len());
        let mut low = 0;
        let mut step = 1;
        while high > 0 {
            low = high.saturating_sub(step);
            if self.slots[low].0 < pn {
                break;
            }
            (high, step) = (low, step * 2);
        }
        while low + 1 < high {
            let middle = low.midpoint(high);
            if self.slots[middle].0 < pn {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }
}

/// Takes a packet out of the sums. Not a method, so that the packet may be borrowed from the slots.
fn uncount(bytes: &mut u64, ack_eliciting: &mut usize, ack_only: &mut usize, packet: &SentPacket) {
    if packet.in_flight {
        *bytes -= u64::from(packet.size);
    }
    *ack_eliciting -= usize::from(packet.ack_eliciting);
    *ack_only -= usize::from(!packet.in_flight && !packet.ack_eliciting);
}

#[cfg(test)]
pub(super) mod tests;
