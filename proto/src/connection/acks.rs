//! What an acknowledgement changes, and what counts as lost.

use super::Connection;
use super::receive::Arrival;
use crate::congestion::{AckEvent, CongestionEvent, Member, SpuriousLoss};
use crate::error::TransportError;
use crate::event::{LossTrigger, Metrics, Observation};
use crate::handshake::Level;
use crate::path::ecn::EcnOutcome;
use crate::path::state::Path;
use crate::recovery::sent::SentFrame;
use crate::recovery::{LargestNewlyAcked, PacketSpace, SentPacket, loss};
use crate::sched::PathEvent;
use crate::time::{Duration, Instant};
use crate::wire::PathId;
use crate::wire::frame::{Ack, EcnCounts};

/// Weight of one packet in the moving share of losses.
const LOSS_GAIN: f32 = 1.0 / 256.0;

/// What the packets of one acknowledgement add up to on the current route.
#[derive(Default)]
struct Sum {
    bytes: u64,
    eliciting: bool,
    marked: u64,
    prior_in_flight: u64,
}

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
        if level == Level::OneRtt && self.paths.slot(target).is_some_and(|s| s.path.is_none()) {
            return Err(TransportError::violation(
                "acknowledges packets of a path that was never opened",
            ));
        }
        let mut acked = std::mem::take(&mut self.scratch.acked);
        acked.clear();
        // A space that is gone has nothing left to learn.
        let newly = match self.space_mut(level, target) {
            Some(space) => space.on_ack(ack.ranges(), &mut acked),
            None => Ok(None),
        };
        let result = newly.map(|newly| {
            if let Some(newly) = newly {
                self.on_newly_acked(arrival, ack, target, &newly, &acked);
            }
        });
        self.scratch.acked = acked;
        result
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
        let sample = newly.ack_eliciting && newly.is_largest_ever;
        let delay = self.ack_delay(level, ack.delay);
        let Some(sum) =
            self.account_acked(arrival, target, acked, sample.then_some((newly, delay)))
        else {
            return;
        };
        if sample && level == Level::OneRtt {
            self.note_echo(target, newly, acked, ack.delay);
        }
        self.bottlenecks.on_packets(target, acked.len() as u64, 0);
        self.note_spurious(now, target, acked);
        for (_, packet) in acked {
            for frame in &packet.frames {
                self.on_frame_acked(level, frame);
            }
        }
        self.reset_probing(level);
        if sum.eliciting {
            self.on_path_answered(now, target, acked);
        }
        if level == Level::OneRtt {
            self.check_ecn(now, target, ack.ecn, &sum, newly);
        }
        self.detect_lost(now, level, target);
        self.grow_window(now, target, newly.time_sent, &sum);
        self.settle_ack_home();
        if level == Level::OneRtt {
            self.review_ack_frequency(now, target);
        }
        self.sending.wake();
        let rtt = self.paths.path(target).map(|path| path.route.rtt.latest());
        self.sending.tell(&PathEvent::Acked {
            path: target,
            bytes: sum.bytes,
            rtt,
        });
        self.observe_metrics(now, target);
    }

    /// The peer's delay in answering, believed up to what it announced (RFC 9002, section 5.3).
    fn ack_delay(&self, level: Level, encoded: u64) -> Duration {
        if level != Level::OneRtt {
            return Duration::ZERO;
        }
        let micros = encoded.saturating_mul(1 << self.identity.peer.ack_delay_exponent.min(20));
        let delay = Duration::from_micros(micros);
        if self.handshake.is_confirmed() {
            delay.min(self.peer_max_ack_delay())
        } else {
            delay
        }
    }

    /// Takes acknowledged packets off the routes' accounts and takes the RTT sample.
    fn account_acked(
        &mut self,
        arrival: &Arrival,
        target: PathId,
        acked: &[(u64, SentPacket)],
        sample: Option<(&LargestNewlyAcked, Duration)>,
    ) -> Option<Sum> {
        let now = arrival.now;
        let max_ack_delay = self.peer_max_ack_delay();
        let path = self.paths.path_mut(target)?;
        let pto = path.pto(max_ack_delay);
        path.liveness.on_acked(now, oldest_awaited(acked), pto);
        let mut sum = Sum {
            prior_in_flight: path.route.in_flight,
            ..Sum::default()
        };
        if let Some((newly, delay)) = sample {
            time_path(path, arrival, acked, newly, delay);
        }
        if arrival.level == Level::OneRtt {
            path.pairs.on_ack(now, acked, path.route.mtu.current());
        }
        let mut grown = false;
        for (pn, packet) in acked {
            sum.eliciting |= packet.ack_eliciting;
            let current = packet.tuple_generation == path.route.generation;
            let Some(route) = path.route_of(packet.tuple_generation) else {
                continue;
            };
            if packet.in_flight {
                route.in_flight = route.in_flight.saturating_sub(u64::from(packet.size));
            }
            if !current {
                continue;
            }
            route.rate.on_packet_acked(now, packet);
            if packet.is_mtu_probe {
                let old = route.mtu.current();
                if let Some(new) = route.mtu.on_probe_acked(packet.size) {
                    grown = true;
                    route.controller.on_mtu(new);
                    let path = target;
                    self.outbox
                        .observe(now, &Observation::MtuUpdated { path, old, new });
                }
            } else {
                route.mtu.on_acked(packet.size, *pn);
                route.mtu.resume(now, packet.size);
            }
            if packet.in_flight {
                sum.bytes += u64::from(packet.size);
            }
            sum.marked += u64::from(packet.ecn_marked);
            path.loss -= path.loss * LOSS_GAIN;
        }
        path.counters.acked_bytes += sum.bytes;
        if grown {
            self.fit_datagrams();
        }
        Some(sum)
    }

    /// Losses that were none: the controller may take back what it did for them.
    fn note_spurious(&mut self, now: Instant, target: PathId, acked: &[(u64, SentPacket)]) {
        let Some(path) = self.paths.path_mut(target) else {
            return;
        };
        for (_, packet) in acked {
            let Some(lost_at) = packet.lost_at else {
                continue;
            };
            // As with the loss: probes are no sign of congestion, and the route before had a window
            // of its own.
            if packet.is_mtu_probe {
                continue;
            }
            path.counters.spurious_losses += 1;
            if packet.tuple_generation == path.route.generation {
                let bytes = u64::from(packet.size);
                let event = SpuriousLoss {
                    now,
                    bytes,
                    lost_at,
                };
                path.route.controller.on_spurious_loss(&event);
            }
        }
    }

    fn on_frame_acked(&mut self, level: Level, frame: &SentFrame) {
        match *frame {
            SentFrame::Crypto { start, length } => {
                self.handshake.on_crypto_acked(level, start, length);
            }
            SentFrame::Ack { path, largest } => {
                if let Some(space) = self.space_mut(level, path) {
                    space.received.on_ack_acked(largest);
                }
            }
            SentFrame::NewConnectionId { path, sequence } => {
                if let Some(slot) = self.paths.slot_mut(path) {
                    slot.local_cids.on_acked(sequence);
                }
            }
            SentFrame::RetireConnectionId { path, sequence } => {
                if let Some(slot) = self.paths.slot_mut(path) {
                    slot.remote_cids.on_retirement_acked(sequence);
                }
            }
            SentFrame::AckFrequency { sequence } => self.ack_requests.on_acked(sequence),
            // What was queued again for a loss that was none need not leave any more.
            SentFrame::HandshakeDone => self.control.handshake_done = false,
            SentFrame::NewToken => {
                self.control.new_token_sent = None;
                self.control.new_token = None;
            }
            SentFrame::PathAbandon { path } => {
                if let Some(closing) = self.paths.slot_mut(path).and_then(|s| s.closing.as_mut()) {
                    closing.abandon_acked = true;
                    closing.abandon_pending = false;
                }
            }
            SentFrame::PathStatus { path, sequence } => {
                if let Some(slot) = self.paths.slot_mut(path) {
                    slot.status_pending &= !slot.is_own_status(sequence);
                }
            }
            SentFrame::MaxPathId { limit } => {
                self.paths.limit_pending &= self.paths.local_limit != Some(limit);
            }
            SentFrame::PathsBlocked { .. } | SentFrame::PathCidsBlocked { .. } => {}
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
            SentFrame::Ack { .. } | SentFrame::PathsBlocked { .. } => {}
            SentFrame::PathCidsBlocked { path } => {
                if let Some(slot) = self.paths.slot_mut(path)
                    && !slot.remote_cids.has_active()
                {
                    slot.cids_blocked_pending = true;
                    self.control.paths_dirty = true;
                }
            }
            SentFrame::HandshakeDone => self.control.handshake_done = true,
            SentFrame::NewToken => self.control.new_token = self.control.new_token_sent.take(),
            SentFrame::AckFrequency { sequence } => self.ack_requests.on_lost(sequence),
            SentFrame::NewConnectionId { path, sequence } => {
                if let Some(slot) = self.paths.slot_mut(path) {
                    slot.local_cids.on_lost(sequence);
                    self.control.paths_dirty = true;
                }
            }
            SentFrame::RetireConnectionId { path, sequence } => {
                if let Some(slot) = self.paths.slot_mut(path) {
                    slot.remote_cids.on_retirement_lost(sequence);
                    self.control.paths_dirty = true;
                }
            }
            SentFrame::PathAbandon { path } => {
                if let Some(closing) = self.paths.slot_mut(path).and_then(|s| s.closing.as_mut()) {
                    closing.abandon_pending = true;
                    self.control.paths_dirty = true;
                }
            }
            SentFrame::PathStatus { path, sequence } => {
                if let Some(slot) = self.paths.slot_mut(path)
                    && slot.is_own_status(sequence)
                {
                    slot.status_pending = true;
                    self.control.paths_dirty = true;
                }
            }
            SentFrame::MaxPathId { limit } => {
                if self.paths.local_limit == Some(limit) {
                    self.paths.limit_pending = true;
                    self.control.paths_dirty = true;
                }
            }
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
                    path.space.detect_lost(now, &path.route.rtt, &mut lost);
                }
            }
            early => {
                let space = self.early.spaces[early as usize].as_mut();
                if let (Some(space), Some(path)) = (space, self.paths.path(PathId::ZERO)) {
                    space.detect_lost(now, &path.route.rtt, &mut lost);
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
            self.observe_lost(now, level, target, lost);
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
        let old = path.route.mtu.current();
        let event = account_lost(path, now, lost, max_ack_delay);
        let new = path.route.mtu.current();
        if new != old {
            let path = target;
            self.outbox
                .observe(now, &Observation::MtuUpdated { path, old, new });
            self.fit_datagrams();
        }
        let Some(event) = event else {
            return;
        };
        if event.persistent
            && let Some(path) = self.paths.path_mut(target)
        {
            path.route.rtt.restart_min();
        }
        self.notify_congestion(now, target, &event);
        self.sending.fresh_loss = true;
        self.sending.wake();
        self.sending.tell(&PathEvent::Lost {
            path: target,
            bytes: event.bytes_lost,
        });
        self.observe_metrics(now, target);
    }

    /// ECN counts that grew mean congestion; counts that make no sense turn ECN off on the route.
    fn check_ecn(
        &mut self,
        now: Instant,
        target: PathId,
        counts: Option<EcnCounts>,
        sum: &Sum,
        newly: &LargestNewlyAcked,
    ) {
        let Some(path) = self.paths.path_mut(target) else {
            return;
        };
        let outcome = path
            .route
            .ecn
            .on_ack(counts, sum.marked, newly.is_largest_ever);
        if outcome == EcnOutcome::Congestion {
            let event = CongestionEvent {
                now,
                last_sent: newly.time_sent,
                bytes_lost: 0,
                bytes_in_flight: path.route.in_flight,
                persistent: false,
                ecn: true,
                sent_in_flight: sum.prior_in_flight,
            };
            self.notify_congestion(now, target, &event);
        }
        if outcome == EcnOutcome::Failed {
            self.outbox
                .observe(now, &Observation::EcnFailed { path: target });
        }
    }

    #[cold]
    fn notify_congestion(&mut self, now: Instant, target: PathId, event: &CongestionEvent) {
        let members = self.snapshot_members(target);
        if let Some(path) = self.paths.path_mut(target) {
            path.route.controller.on_congestion(event, &members);
            path.route.update_pacing(now);
        }
        self.scratch.members = members;
    }

    fn grow_window(&mut self, now: Instant, target: PathId, largest_sent: Instant, sum: &Sum) {
        let members = self.snapshot_members(target);
        if let Some(path) = self.paths.path_mut(target) {
            let route = &mut path.route;
            let rate = route.rate.finish_ack(now, route.rtt.min());
            if let Some(sample) = &rate {
                path.shaper.on_rate(now, sample);
            }
            if sum.bytes > 0 {
                let event = AckEvent {
                    now,
                    bytes: sum.bytes,
                    largest_sent,
                    bytes_in_flight: route.in_flight,
                    prior_in_flight: sum.prior_in_flight,
                    rtt: route.rtt.view(),
                    rate,
                    app_limited: route.app_limited,
                };
                route.controller.on_ack(&event, &members);
            }
            route.update_pacing(now);
        }
        self.scratch.members = members;
        let slowest = self
            .paths
            .open()
            .filter_map(|slot| slot.open())
            .map(|p| p.route.rtt.smoothed());
        if let Some(rtt) = slowest.max() {
            self.streams.set_tuning(rtt, now);
        }
        self.tend_keys(now);
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
        members.clear();
        let asks = |path: &Path| path.route.controller.is_coupled();
        if !self.paths.path(target).is_some_and(asks) {
            return members;
        }
        let open = || self.paths.open().filter_map(|slot| slot.open());
        let own = open().find(|path| path.id == target);
        members.extend(open().map(|path| {
            let controller = &path.route.controller;
            let rtt = &path.route.rtt;
            Member {
                path: path.id,
                is_self: path.id == target,
                window: controller.window(),
                ssthresh: controller.ssthresh(),
                smoothed_rtt: if rtt.has_sample() {
                    rtt.smoothed()
                } else {
                    Duration::ZERO
                },
                bytes_between_losses: controller.bytes_between_losses(),
                active: path.is_healthy() && !path.route.app_limited,
                shares_bottleneck: own.is_some_and(|own| self.shares_bottleneck(own, path)),
                probing_rtt: controller.is_probing_rtt()
                    && path.is_healthy()
                    && path.route.in_flight > 0,
            }
        }));
        members
    }

    /// An acknowledgement shows that the path works in both directions (RFC 9002, section 6.2.1).
    fn reset_probing(&mut self, level: Level) {
        // A client whose address the server has not proven yet keeps its backoff: the
        // acknowledgement may be all the server is allowed to send.
        if level != Level::Initial || self.identity.side.is_server() {
            self.early.pto_count = 0;
        }
    }

    /// Everything in flight on a closed space counts as neither acknowledged nor lost.
    pub(super) fn forget_space(&mut self, level: Level) {
        let Some(mut space) = self.early.spaces[level as usize].take() else {
            return;
        };
        self.early.probes_owed[level as usize] = 0;
        if let Some(path) = self.paths.path_mut(PathId::ZERO) {
            for (_, packet) in space.take_all() {
                if packet.in_flight
                    && let Some(route) = path.route_of(packet.tuple_generation)
                {
                    route.in_flight = route.in_flight.saturating_sub(u64::from(packet.size));
                }
            }
            path.liveness.reset_backoff();
        }
        self.early.pto_count = 0;
        // Observers would go on counting what was in flight.
        self.observe_metrics(self.clock, PathId::ZERO);
    }

    fn observe_lost(
        &mut self,
        now: Instant,
        level: Level,
        path: PathId,
        lost: &[(u64, SentPacket)],
    ) {
        let largest = self.space(level, path).and_then(PacketSpace::largest_acked);
        for (pn, packet) in lost {
            let overtaken = largest.is_some_and(|largest| pn + loss::PACKET_THRESHOLD <= largest);
            let observation = Observation::PacketLost {
                level,
                path,
                pn: *pn,
                size: usize::from(packet.size),
                is_mtu_probe: packet.is_mtu_probe,
                trigger: if overtaken {
                    LossTrigger::Reordering
                } else {
                    LossTrigger::Time
                },
            };
            self.outbox.observe(now, &observation);
        }
    }

    pub(super) fn observe_metrics(&mut self, now: Instant, target: PathId) {
        if !self.outbox.is_observed() {
            return;
        }
        let Some(path) = self.paths.path(target) else {
            return;
        };
        let route = &path.route;
        let metrics = Metrics {
            smoothed_rtt: route.rtt.smoothed(),
            rttvar: route.rtt.rttvar(),
            min_rtt: route.rtt.min(),
            latest_rtt: route.rtt.latest(),
            congestion_window: route.controller.window(),
            ssthresh: route.controller.ssthresh(),
            bytes_in_flight: route.in_flight,
            delivery_rate: route.rate.bandwidth(),
            pto_count: path.liveness.pto_count(),
            phase: route.controller.phase(),
            app_limited: route.app_limited,
        };
        let path = target;
        self.outbox
            .observe(now, &Observation::Metrics { path, metrics });
    }
}

/// When the oldest packet was sent that was still waited for.
fn oldest_awaited(acked: &[(u64, SentPacket)]) -> Option<Instant> {
    // In descending order: the last one was sent first.
    let mut packets = acked.iter().rev().map(|(_, packet)| packet);
    let oldest = packets.find(|packet| packet.ack_eliciting && packet.lost_at.is_none());
    oldest.map(|packet| packet.time_sent)
}

/// Takes an RTT sample of the path's present route.
fn time_path(
    path: &mut Path,
    arrival: &Arrival,
    acked: &[(u64, SentPacket)],
    newly: &LargestNewlyAcked,
    delay: Duration,
) {
    if arrival.level == Level::OneRtt {
        // RFC 10069: an RTT spans both directions, so another return path is another RTT.
        if path.liveness.on_ack_by(arrival.path) {
            path.route.rtt.restart_min();
        }
    }
    // The route before had an RTT of its own (RFC 9000, section 9.4).
    let current = path.route.generation;
    let mut packets = acked.iter();
    if packets.any(|(pn, packet)| *pn == newly.pn && packet.tuple_generation == current) {
        let rtt = arrival.now.since(newly.time_sent);
        path.route.rtt.on_sample(rtt, delay, arrival.now);
    }
}

/// Takes lost packets off the accounts; returns the congestion event they amount to, if any.
fn account_lost(
    path: &mut Path,
    now: Instant,
    lost: &[(u64, SentPacket)],
    max_ack_delay: Duration,
) -> Option<CongestionEvent> {
    let mut event = None;
    for (pn, packet) in lost {
        let current = packet.tuple_generation == path.route.generation;
        let Some(route) = path.route_of(packet.tuple_generation) else {
            continue;
        };
        let size = u64::from(packet.size);
        if packet.in_flight {
            route.in_flight = route.in_flight.saturating_sub(size);
        }
        if packet.is_mtu_probe {
            route.mtu.on_probe_lost(*pn);
            continue;
        }
        route.rate.on_lost(size);
        if packet.ecn_marked {
            route.ecn.on_lost(1);
        }
        if let Some(mtu) = route.mtu.on_lost(now, packet.size, *pn, packet.time_sent) {
            route.controller.on_mtu(mtu);
        }
        let bytes_in_flight = route.in_flight;
        path.counters.lost_packets += 1;
        path.counters.lost_bytes += size;
        path.loss += (1.0 - path.loss) * LOSS_GAIN;
        // What the route before lost says nothing about the present one.
        if packet.in_flight && current {
            let event = event.get_or_insert(CongestionEvent {
                now,
                last_sent: packet.time_sent,
                bytes_lost: 0,
                bytes_in_flight,
                persistent: false,
                ecn: false,
                sent_in_flight: packet.bytes_in_flight_after,
            });
            event.bytes_lost += size;
            event.last_sent = event.last_sent.max(packet.time_sent);
            event.bytes_in_flight = bytes_in_flight;
        }
    }
    // A doubted path was silent, not congested; its controller starts over when it answers.
    if let Some(event) = &mut event
        && path.liveness.is_trusted()
    {
        let since = path.route.rtt.first_sample();
        event.persistent = loss::persistent_congestion(lost, &path.route.rtt, max_ack_delay, since);
    }
    event
}
