//! Capacity of the bottleneck from packet pairs: two packets that left back to back arrive as far
//! apart as the bottleneck takes to send one.
//!
//! Arrivals are seen by their acknowledgements, so pairs count only where each packet is
//! acknowledged alone. Links that collect packets (Wi-Fi, cellular) make estimates too high; the
//! [delivery rate](super::DeliveryRate) is what schedulers and controllers use.

use super::SentPacket;
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// The estimate is the median of this many pairs.
const PAIRS: usize = 15;

/// The pairs of one path.
#[derive(Debug, Clone, Default)]
pub struct PacketPairs {
    /// The packet acknowledged last, if alone: its number, when it left, when this was known.
    first: Option<(u64, Instant, Instant)>,
    /// Bytes per second, of the last pairs.
    rates: VecDeque<u64>,
}

impl PacketPairs {
    /// Packets were acknowledged together, at `now`. `full` is the size that counts.
    pub fn on_ack(&mut self, now: Instant, acked: &[(u64, SentPacket)], full: u16) {
        let [(pn, packet)] = acked else {
            self.first = None;
            return;
        };
        if packet.size < full || packet.is_mtu_probe || !packet.in_flight {
            self.first = None;
            return;
        }
        if let Some((before, sent, seen)) = self.first
            && before + 1 == *pn
            && sent == packet.time_sent
        {
            self.on_pair(u64::from(packet.size), now.since(seen));
        }
        self.first = Some((*pn, packet.time_sent, now));
    }

    /// Two packets, the second one of `bytes`, arrived this far apart.
    pub fn on_pair(&mut self, bytes: u64, dispersion: Duration) {
        if dispersion.is_zero() {
            return;
        }
        let rate = u128::from(bytes) * 1_000_000_000 / dispersion.as_nanos();
        if self.rates.len() >= PAIRS {
            self.rates.pop_front();
        }
        self.rates
            .push_back(u64::try_from(rate).unwrap_or(u64::MAX));
    }

    /// Bytes per second, once there are enough pairs.
    pub fn estimate(&self) -> Option<u64> {
        if self.rates.len() < PAIRS {
            return None;
        }
        let mut sorted = [0; PAIRS];
        for (slot, rate) in sorted.iter_mut().zip(&self.rates) {
            *slot = *rate;
        }
        sorted.sort_unstable();
        Some(sorted[PAIRS / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::rate::Snapshot;
    use crate::recovery::sent::SentFrames;

    fn ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn packet(pn: u64, sent: u64, size: u16) -> (u64, SentPacket) {
        let packet = SentPacket {
            lost_at: None,
            time_sent: ms(sent),
            size,
            ack_eliciting: true,
            in_flight: true,
            is_mtu_probe: false,
            beside_window: None,
            ecn_marked: false,
            tuple_generation: 0,
            bytes_in_flight_after: 0,
            rate: Snapshot::default(),
            frames: SentFrames::new(),
        };
        (pn, packet)
    }

    #[test]
    fn the_median_of_fifteen_pairs_is_the_capacity() {
        let mut pairs = PacketPairs::default();
        for pair in 0..15 {
            assert_eq!(pairs.estimate(), None);
            // Cross traffic stretches some pairs.
            let gap = if pair % 3 == 0 { 9 } else { 2 };
            pairs.on_pair(1200, Duration::from_millis(gap));
        }
        assert_eq!(pairs.estimate(), Some(600_000));
    }

    #[test]
    fn only_full_packets_sent_together_and_acknowledged_alone_are_pairs() {
        let mut pairs = PacketPairs::default();
        let mut ack = |now, acked: &[(u64, SentPacket)]| {
            pairs.on_ack(ms(now), acked, 1200);
            pairs.rates.len()
        };
        assert_eq!(ack(10, &[packet(0, 0, 1200)]), 0);
        assert_eq!(ack(11, &[packet(1, 0, 1200)]), 1);
        assert_eq!(ack(12, &[packet(2, 1, 1200)]), 1, "sent apart");
        assert_eq!(ack(13, &[packet(4, 1, 1200)]), 1, "one is missing");
        assert_eq!(ack(14, &[packet(6, 1, 1200), packet(5, 1, 1200)]), 1);
        assert_eq!(ack(15, &[packet(7, 1, 1200)]), 1, "nothing to compare with");
        assert_eq!(ack(16, &[packet(8, 1, 300)]), 1, "too small");
    }
}
