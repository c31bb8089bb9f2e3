//! What an acknowledgement changes, and what counts as lost.

use super::Connection;
use super::receive::Arrival;
use crate::congestion::{CongestionEvent, Member};
use crate::error::TransportError;
use crate::event::Observation;
use crate::handshake::Level;
use crate::path::ecn::EcnOutcome;
use crate::path::packets::{Acked, Lost, News};
use crate::path::state::Path;
use crate::recovery::sent::SentFrame;
use crate::recovery::{LargestNewlyAcked, PacketSpace, SentPacket};
use crate::time::{Duration, Instant};
use crate::wire::PathId;
use crate::wire::frame::Ack;

impl Connection {
    pub(super) fn on_ack(
        &mut self,
        arrival: &Arrival,
        ack: &Ack<'_>,
    ) -> Result<(), TransportError> {
        let level = arrival.level;
        let target = if level == Level::OneRtt {
            ack.path
        } else {
            PathId::ZERO
        };
        let mut acked = std::mem::take(&mut self.scratch.acked);
        acked.clear();
        let newly = self.take_acked(level, target, ack, &mut acked);
        let result = newly.map(|newly| {
            if let Some(newly) = newly {
                self.on_newly_acked(arrival, ack, target, &newly, &acked);
            }
        });
        self.scratch.acked = acked;
        result
    }

    /// Moves the packets that a frame acknowledges to `acked`.
    fn take_acked(
        &mut self,
        level: Level,
        target: PathId,
        ack: &Ack<'_>,
        acked: &mut Vec<(u64, SentPacket)>,
    ) -> Result<Option<LargestNewlyAcked>, TransportError> {
        if !level.is_data() {
            return self.flights.take_acked(level, ack.ranges(), acked);
        }
        if let Some(path) = self.paths.path_mut(target) {
            return path.take_acked(ack.ranges(), acked);
        }
        if self.paths.slot(target).is_some() {
            return Err(TransportError::violation(
                "acknowledges packets of a path that was never opened",
            ));
        }
        // A path that is gone has nothing left to learn.
        Ok(None)
    }

    fn on_newly_acked(
        &mut self,
        arrival: &Arrival,
        ack: &Ack<'_>,
        target: PathId,
        newly: &LargestNewlyAcked,
        acked: &[(u64, SentPacket)],
    ) {
        let Arrival { now, level, .. } = *arrival;
        if level == Level::OneRtt {
            self.handshake.on_acked(target, newly.pn);
        }
        // What left by several paths tells the RTT of none.
        let sample =
            newly.ack_eliciting && newly.is_largest_ever && !self.leaves_by_all_paths(level);
        let delay = self.ack_delay(level, ack.delay);
        let max_ack_delay = self.peer_max_ack_delay();
        let Some((path, is_open)) = self.paths.known_mut(target) else {
            return;
        };
        let news = News {
            by: (level == Level::OneRtt).then_some(arrival.path),
            came_at: arrival.came_at,
            newly,
            delay: sample.then_some(delay),
            ecn: ack.ecn,
            max_ack_delay,
            is_open,
        };
        let sum = path.on_acked(now, &news, acked);
        self.note_mtu(now, target, sum.mtu);
        if sample && level == Level::OneRtt {
            self.note_echo(target, newly, acked, ack.delay);
        }
        self.bottlenecks.on_packets(target, acked.len() as u64, 0);
        for (_, packet) in acked {
            for frame in &packet.frames {
                self.on_frame_acked(level, frame);
            }
        }
        self.flights.on_acked(level, self.identity.side());
        if sum.eliciting {
            self.end_inquiry();
        }
        if let Some(verdict) = sum.verdict {
            self.carry_out(now, target, verdict);
        }
        self.check_ecn(now, target, &sum, newly);
        self.tune_streams(now);
        self.detect_lost(now, level, target);
        self.grow_window(now, target, newly.time_sent, &sum);
        self.tell_memory(now, target);
        self.tend_keys(now);
        self.ack_routes.settle(&self.paths);
        if level == Level::OneRtt {
            self.review_ack_frequency(now, target);
        }
        self.placement.on_acked(target, sum.bytes, sum.rtt);
        self.observe_metrics(now, target);
    }

    /// The peer's delay in answering, believed up to what it announced (RFC 9002, section 5.3).
    fn ack_delay(&self, level: Level, encoded: u64) -> Duration {
        if level != Level::OneRtt {
            return Duration::ZERO;
        }
        let micros = encoded.saturating_mul(1 << self.identity.peer().ack_delay_exponent.min(20));
        let delay = Duration::from_micros(micros);
        if self.handshake.is_confirmed() {
            delay.min(self.peer_max_ack_delay())
        } else {
            delay
        }
    }

    /// The size of a path's packets changed.
    fn note_mtu(&mut self, now: Instant, path: PathId, change: Option<(u16, u16)>) {
        if let Some((old, new)) = change {
            self.outbox
                .observe(now, &Observation::MtuUpdated { path, old, new });
            self.fit_datagrams();
        }
    }

    fn on_frame_acked(&mut self, level: Level, frame: &SentFrame) {
        match *frame {
            SentFrame::Crypto { start, length } => {
                self.handshake.on_crypto_acked(level, start, length);
            }
            SentFrame::Ack { path, largest } => {
                if !level.is_data() {
                    self.flights.on_ack_acked(level, largest);
                } else if let Some(path) = self.paths.path_mut(path) {
                    path.on_ack_acked(largest);
                }
            }
            SentFrame::AckFrequency { sequence } => self.ack_requests.on_acked(sequence),
            // What was queued again for a loss that was none need not leave any more.
            SentFrame::HandshakeDone => self.owed.handshake_done = false,
            SentFrame::NewTokens { number } => self.owed.on_new_tokens_acked(number),
            _ if frame.is_about_paths() => self.paths.on_frame_acked(frame),
            _ => self.streams.on_acked(frame),
        }
    }

    /// Queues again what a packet carried, apart from stream data of a path that is only doubted.
    #[cold]
    pub(super) fn on_frame_lost(&mut self, level: Level, path: PathId, frame: &SentFrame) {
        match *frame {
            SentFrame::Crypto { start, length } => {
                self.handshake.on_crypto_lost(level, start, length);
            }
            SentFrame::Ack { .. } => {}
            SentFrame::HandshakeDone => self.owed.handshake_done = true,
            SentFrame::NewTokens { number } => self.owed.on_new_tokens_lost(number),
            SentFrame::AckFrequency { sequence } => self.ack_requests.on_lost(sequence),
            _ if frame.is_about_paths() => self.paths.on_frame_lost(frame),
            _ => self.streams.on_lost(frame, path),
        }
    }

    /// Declares packets lost that newer acknowledgements or time have overtaken.
    pub(super) fn detect_lost(&mut self, now: Instant, level: Level, target: PathId) {
        let mut lost = std::mem::take(&mut self.scratch.lost);
        lost.clear();
        match level {
            Level::OneRtt => {
                if let Some(path) = self.paths.path_mut(target) {
                    path.detect_lost(now, &mut lost);
                }
            }
            early => {
                if let Some(path) = self.paths.path(PathId::ZERO) {
                    self.flights.detect_lost(now, early, path, &mut lost);
                }
            }
        }
        if !lost.is_empty() {
            self.on_packets_lost(now, level, target, &lost);
        }
        self.scratch.lost = lost;
    }

    fn on_packets_lost(
        &mut self,
        now: Instant,
        level: Level,
        target: PathId,
        lost: &[(u64, SentPacket)],
    ) {
        if self.outbox.is_observed() {
            let largest = self
                .space(level, target)
                .and_then(PacketSpace::largest_acked);
            self.outbox
                .observe_lost(now, (level, target), largest, lost);
        }
        for (_, packet) in lost {
            for frame in &packet.frames {
                self.on_frame_lost(level, target, frame);
            }
        }
        let probes = lost
            .iter()
            .filter(|(_, packet)| packet.is_mtu_probe)
            .count();
        self.bottlenecks
            .on_packets(target, 0, (lost.len() - probes) as u64);
        let max_ack_delay = self.peer_max_ack_delay();
        let Some(path) = self.paths.path_mut(target) else {
            return;
        };
        let Lost {
            event,
            mtu,
            ecn_failed,
        } = path.on_lost(now, lost, max_ack_delay);
        self.note_mtu(now, target, mtu);
        if ecn_failed {
            self.outbox
                .observe(now, &Observation::EcnFailed { path: target });
        }
        if probes > 0 {
            // A search may have ended.
            self.fit_datagrams();
        }
        let Some(event) = event else {
            // A route that was left lost it, or a probe: what it carried waits again all the same.
            self.placement.on_requeued();
            self.observe_metrics(now, target);
            return;
        };
        self.notify_congestion(now, target, &event);
        self.placement.on_lost(target, event.bytes_lost);
        self.observe_metrics(now, target);
    }

    /// ECN counts that grew mean congestion; counts that make no sense turned ECN off on the route.
    fn check_ecn(&mut self, now: Instant, target: PathId, sum: &Acked, newly: &LargestNewlyAcked) {
        match sum.ecn {
            Some(EcnOutcome::Congestion) => {
                let event = CongestionEvent {
                    now,
                    last_sent: newly.time_sent,
                    bytes_lost: 0,
                    bytes_in_flight: sum.in_flight,
                    persistent: false,
                    ecn: true,
                    sent_in_flight: sum.prior_in_flight,
                };
                self.notify_congestion(now, target, &event);
            }
            Some(EcnOutcome::Failed) => self
                .outbox
                .observe(now, &Observation::EcnFailed { path: target }),
            _ => {}
        }
    }

    #[cold]
    fn notify_congestion(&mut self, now: Instant, target: PathId, event: &CongestionEvent) {
        let members = self.snapshot_members(target);
        if let Some(path) = self.paths.path_mut(target) {
            path.on_congestion(now, event, &members);
        }
        self.scratch.members = members;
    }

    fn grow_window(&mut self, now: Instant, target: PathId, largest_sent: Instant, sum: &Acked) {
        let members = self.snapshot_members(target);
        if let Some(path) = self.paths.path_mut(target) {
            path.grow_window(now, largest_sent, sum, &members);
        }
        self.scratch.members = members;
    }

    /// Windows of streams are as large as the slowest path needs.
    fn tune_streams(&mut self, now: Instant) {
        let open = self.paths.open().filter_map(|slot| slot.open());
        let slowest = open.map(|path| path.route().rtt().smoothed()).max();
        if let Some(rtt) = slowest {
            self.streams.set_tuning(rtt, now);
        }
    }

    /// Replaces keys before they wear out, and keeps old ones as long as packets may be late.
    fn tend_keys(&mut self, now: Instant) {
        let three_pto = self.three_pto();
        self.handshake.set_key_discard_delay(three_pto);
        if self.handshake.needs_key_update() {
            // Refused while the last update is young: then the next acknowledgement tries again.
            let _ = self.handshake.update_keys(now, three_pto);
            self.observe_keys(now, false);
        }
    }

    /// The paths a coupled controller may look at, in the reused buffer.
    fn snapshot_members(&mut self, target: PathId) -> Vec<Member> {
        let mut members = std::mem::take(&mut self.scratch.members);
        self.paths.members(target, &self.bottlenecks, &mut members);
        members
    }

    /// Everything in flight on a closed space counts as neither acknowledged nor lost.
    pub(super) fn forget_space(&mut self, level: Level) {
        let Some(sent) = self.flights.close(level) else {
            return;
        };
        if let Some(path) = self.paths.path_mut(PathId::ZERO) {
            path.on_space_gone(&sent);
        }
        // Observers would go on counting what was in flight.
        self.observe_metrics(self.clock, PathId::ZERO);
    }

    pub(super) fn observe_metrics(&mut self, now: Instant, target: PathId) {
        if !self.outbox.is_observed() {
            return;
        }
        if let Some(metrics) = self.paths.path(target).map(Path::metrics) {
            let path = target;
            self.outbox
                .observe(now, &Observation::Metrics { path, metrics });
        }
    }
}
