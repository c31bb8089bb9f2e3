//! One-way delays: what feeds [`OneWay`](crate::recovery::OneWay), and timestamps both ways
//! (draft-huitema-quic-ts-08).

use super::Connection;
use super::receive::Arrival;
use crate::error::TransportError;
use crate::packet::Frames;
use crate::recovery::one_way::{Carrier, DelayDifference, Echo};
use crate::recovery::received::ACK_DELAY_EXPONENT;
use crate::recovery::{LargestNewlyAcked, SentPacket};
use crate::time::{Duration, Instant};
use crate::wire::PathId;
use crate::wire::frame::Frame;
use crate::wire::params::Timestamps;
use std::ops::RangeInclusive;

impl Connection {
    /// Whether the peer may send us timestamps: we want them, and it can.
    pub fn receives_timestamps(&self) -> bool {
        let peer = self.identity.peer().enable_timestamp;
        self.config.timestamps && peer.is_some_and(Timestamps::sends)
    }

    /// Whether our packets carry timestamps: the peer wants them, and we can.
    pub fn sends_timestamps(&self) -> bool {
        let peer = self.identity.peer().enable_timestamp;
        self.config.timestamps && peer.is_some_and(Timestamps::receives)
    }

    /// How much longer packets take to the peer on `path` than on `other`; `None` unless the peer
    /// sends timestamps or acknowledges both paths by one, and both were measured lately.
    pub fn forward_difference(&self, path: PathId, other: PathId) -> Option<DelayDifference> {
        self.one_way.forward_difference(self.clock, path, other)
    }

    /// How much longer packets take from the peer on `path` than on `other`; `None` unless the peer
    /// sends timestamps or has acknowledged one path by both, and both were measured lately.
    pub fn backward_difference(&self, path: PathId, other: PathId) -> Option<DelayDifference> {
        self.one_way.backward_difference(self.clock, path, other)
    }

    /// What the peer's clock, from its epoch on, shows more than the driver's, in microseconds:
    /// from, and to. `None` without timestamps.
    pub fn clock_offset_us(&self) -> Option<RangeInclusive<i64>> {
        self.one_way.clock_offset()
    }

    /// Notes an RTT sample with its two paths, for when the packet has been read.
    pub(super) fn note_echo(
        &mut self,
        target: PathId,
        newly: &LargestNewlyAcked,
        acked: &[(u64, SentPacket)],
        encoded_delay: u64,
    ) {
        // A path alone has nothing to be compared with.
        if self.paths.open_count() < 2 && !self.receives_timestamps() {
            return;
        }
        let Some(path) = self.paths.slot(target).and_then(|slot| slot.open()) else {
            return;
        };
        let packet = acked.iter().find(|(pn, _)| *pn == newly.pn);
        let generation = path.route().generation();
        if packet.is_none_or(|(_, packet)| packet.tuple_generation != generation) {
            return;
        }
        let exponent = self.identity.peer().ack_delay_exponent.min(20);
        self.one_way.note_echo(Echo {
            path: target,
            generation,
            sent: newly.time_sent,
            // All of it: the limit of RFC 9002, section 5.3 would leave the rest in the delay.
            ack_delay: Duration::from_micros(encoded_delay.saturating_mul(1 << exponent)),
        });
    }

    pub(super) fn on_timestamp(&mut self, time: u64) -> Result<(), TransportError> {
        if !self.receives_timestamps() {
            return Err(TransportError::violation(
                "TIMESTAMP without the extension, or from a peer that said it sends none",
            ));
        }
        self.one_way.note_stamp(time);
        Ok(())
    }

    /// A packet has been read: acknowledgements and timestamp in it belong together.
    pub(super) fn settle_delays(&mut self, arrival: &Arrival) {
        let path = self.paths.slot(arrival.path).and_then(|slot| slot.open());
        let carrier = path
            .filter(|path| path.route().tuple() == arrival.tuple)
            .map(|path| Carrier {
                path: arrival.path,
                generation: path.route().generation(),
                received: arrival.came_at,
            });
        match carrier {
            Some(carrier) => self.one_way.settle(carrier),
            // By another way than the path's route, or by one that is given up.
            None => self.one_way.discard(),
        }
        for delay in self.one_way.delays() {
            self.bottlenecks
                .on_sample(arrival.now, delay.path, delay.measure, delay.micros);
        }
    }

    /// Writes when the packet leaves, if the peer wants to know.
    pub(super) fn write_timestamp(&self, now: Instant, frames: &mut Frames<'_>) {
        if self.sends_timestamps() {
            let micros = now.since(self.began).as_micros() as u64;
            let time = micros >> ACK_DELAY_EXPONENT;
            frames.put(&Frame::Timestamp { time });
        }
    }
}
