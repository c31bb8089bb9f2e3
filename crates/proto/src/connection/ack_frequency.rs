//! Acknowledgement frequency (draft-ietf-quic-ack-frequency-14): what the peer wants of ours, and
//! what we want of the peer's.

use super::Connection;
use crate::error::TransportError;
use crate::packet::Frames;
use crate::path::manager::Slot;
use crate::path::state::Path;
use crate::recovery::ack_requests::{Bounds, Need};
use crate::recovery::loss::PACKET_THRESHOLD;
use crate::recovery::sent::SentFrame;
use crate::time::{Duration, Instant};
use crate::wire::PathId;
use crate::wire::frame::{AckFrequency, Frame};
use smallvec::SmallVec;

impl Connection {
    pub(super) fn on_ack_frequency(
        &mut self,
        now: Instant,
        wish: &AckFrequency,
    ) -> Result<(), TransportError> {
        let config = &self.config;
        let shortest = config.ack_frequency.min_ack_delay_us(config.max_ack_delay);
        if let Some(policy) = self.ack_wish.on_request(wish, shortest.unwrap_or(0))? {
            for path in self.paths.known() {
                path.set_ack_policy(now, policy);
            }
        }
        Ok(())
    }

    /// Whether the peer takes the frames of the extension.
    pub(super) fn peer_takes_ack_requests(&self) -> bool {
        self.identity.peer().min_ack_delay_us.is_some() && self.handshake.is_complete()
    }

    /// What makes the peer answer: `IMMEDIATE_ACK` if it understands that, else `PING`.
    pub(super) fn question(&self) -> Frame<'static> {
        if self.config.ack_frequency.immediate && self.peer_takes_ack_requests() {
            Frame::ImmediateAck
        } else {
            Frame::Ping
        }
    }

    /// Adds `IMMEDIATE_ACK` to a packet if it fits and the peer understands it.
    pub(super) fn ask_for_answer(&self, frames: &mut Frames<'_>) {
        if let Frame::ImmediateAck = self.question() {
            frames.put(&Frame::ImmediateAck);
        }
    }

    /// Whether data on a path is to be answered at once, as the peer may be waiting for more than
    /// comes: nothing is under way that would be acknowledged before.
    pub(super) fn is_first_after_quiet(&self, path: &Path) -> bool {
        self.ack_requests.is_reduced() && path.space().ack_eliciting_in_flight() == 0
    }

    /// Whether what was just written is the last for now, so that nothing will come behind it to
    /// make its acknowledgement due.
    pub(super) fn is_last_for_now(&self) -> bool {
        self.ack_requests.is_reduced() && !self.streams.has_unsent()
    }

    /// Considers after an acknowledgement for `target` whether the peer acknowledges as often as is
    /// good. What is under way counts, and a path that sent all its window allowed: requests are
    /// acknowledged themselves, and must not be answered by the next one for ever.
    pub(super) fn review_ack_frequency(&mut self, now: Instant, target: PathId) {
        let Some(most) = self.config.ack_frequency.most_packets else {
            return;
        };
        if !self.peer_takes_ack_requests() {
            return;
        }
        let peer = self.identity.peer();
        let bounds = Bounds {
            packets: most,
            announced: Duration::from_millis(peer.max_ack_delay_ms),
            shortest: Duration::from_micros(peer.min_ack_delay_us.unwrap_or(0)),
        };
        let open = self.paths.open().filter_map(Slot::open);
        let in_use = open.filter(|path| {
            let is_full = path.id() == target && !path.route().is_app_limited();
            let carries = is_full || path.space().ack_eliciting_in_flight() > 0;
            path.is_healthy() && path.route().rtt().has_sample() && carries
        });
        let needs = in_use.map(|path| Need {
            packets: path.window() / u64::from(path.route().max_datagram_size()),
            rtt: path.route().rtt().smoothed(),
        });
        let needs: SmallVec<[Need; 4]> = needs.collect();
        self.ack_requests.review(now, bounds, &needs);
    }

    /// Writes the request that waits, if it fits.
    pub(super) fn write_ack_request(&mut self, frames: &mut Frames<'_>) {
        // As late as it can be noticed: earlier costs acknowledgements that say nothing new.
        if let Some(wish) = self.ack_requests.next_frame(PACKET_THRESHOLD)
            && frames.put(&Frame::AckFrequency(wish))
        {
            let sequence = self.ack_requests.on_sent(self.clock);
            frames.note(SentFrame::AckFrequency { sequence });
        }
    }
}
