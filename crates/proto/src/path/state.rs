//! One open path.

use super::liveness::{Liveness, Rest, Surroundings, UnderWay, Verdict, Verdicts};
use super::manager::Common;
use super::migration::Failed;
use super::moves::Moves;
use super::route::Route;
use super::shaper::{Shape, Shaper};
use super::validation::{Elsewhere, ElsewhereAnswers};
use crate::config::MIN_KEEP_ALIVE;
use crate::congestion::{ControllerFactory, ControllerInit, Member, PathMemory};
use crate::datagram::Tuple;
use crate::event::Metrics;
use crate::packet::Frames;
use crate::path::PathState;
use crate::recovery::{PacketPairs, PacketSpace, SentPacket};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use anabranch_wire::frame::PathStatus;
use std::net::IpAddr;

/// How the application wants a path to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathOptions {
    /// What we tell the peer to send there.
    pub status: PathStatus,
    /// For schedulers that share by weight.
    pub weight: u32,
    /// For schedulers that prefer by class; higher first.
    pub priority: i32,
    /// For schedulers that count cost.
    pub cost: u32,
    /// How fast at most we send there.
    pub shape: Option<Shape>,
    /// A PING goes out if the path was silent for this long, or for half the idle time-out if that
    /// is shorter; `None` means what
    /// [`TransportConfig::keep_alive`](crate::config::TransportConfig::keep_alive) says. Below four
    /// seconds the peer takes such PINGs for probes, and acknowledges by other paths in between.
    pub keep_alive: Option<Duration>,
}

impl PathOptions {
    fn weighing(&self) -> Weighing {
        Weighing {
            weight: self.weight,
            priority: self.priority,
            cost: self.cost,
        }
    }
}

/// What schedulers are told of the [`PathOptions`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weighing {
    pub(crate) weight: u32,
    pub(crate) priority: i32,
    pub(crate) cost: u32,
}

impl Default for PathOptions {
    fn default() -> Self {
        Self {
            status: PathStatus::Available,
            weight: 1,
            priority: 0,
            cost: 0,
            shape: None,
            keep_alive: None,
        }
    }
}

/// Counters of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathCounters {
    /// UDP payload bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// UDP payload bytes received.
    pub received_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes acknowledged that counted as in flight.
    pub acked_bytes: u64,
    /// Bytes declared lost.
    pub lost_bytes: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Losses that turned out to be none.
    pub spurious_losses: u64,
    /// Stream bytes sent for the first time.
    pub fresh_bytes: u64,
    /// Stream bytes sent again, for loss or from a doubted path.
    pub retransmitted_bytes: u64,
    /// Stream bytes sent as copies by the scheduler's wish.
    pub copied_bytes: u64,
    /// How many of these bytes were copied because everything else waited for them.
    pub rescued_bytes: u64,
    /// How long the connection could send nothing because it waited for data in flight here.
    pub blocking: Duration,
    /// Stream bytes taken from this path while it was doubted, to travel elsewhere.
    pub reinjected_bytes: u64,
    /// Probe time-outs.
    pub ptos: u64,
    /// Times the path was doubted.
    pub doubts: u64,
    /// Packets received with a congestion mark.
    pub ce_marks: u64,
}

/// What came of time that passed.
#[derive(Debug)]
pub(crate) struct TimedOut {
    /// The far end did not answer.
    pub(crate) failed: Option<Failed>,
    pub(crate) verdicts: Verdicts,
}

/// One open path: its packet numbers, its route, its health.
#[derive(Debug)]
pub(crate) struct Path {
    pub(super) id: PathId,
    pub(super) weighing: Weighing,
    pub(super) space: PacketSpace,
    pub(super) route: Route,
    /// The route before a migration, kept until the new one is validated.
    pub(super) previous: Option<Box<Route>>,
    pub(super) moves: Moves,
    /// Challenges from addresses the path is not at.
    pub(super) elsewhere: Elsewhere,
    pub(super) liveness: Liveness,
    /// How long it may rest before it is asked, if that is its own.
    keep_alive: Option<Duration>,
    /// What may be in flight whatever the congestion controller allows.
    pub(super) cap: u64,
    pub(super) shaper: Shaper,
    pub(super) pairs: PacketPairs,
    /// Moving share of packets lost.
    pub(super) loss: f32,
    /// Whether the peer's announcement of the path was followed by [`PathNotice::Opened`].
    ///
    /// [`PathNotice::Opened`]: crate::event::PathNotice::Opened
    pub(super) announced: bool,
    pub(super) counters: PathCounters,
    /// Grows when the path becomes another one to schedulers, but for acknowledgements and losses.
    pub(super) version: u64,
}

impl Path {
    pub(crate) fn id(&self) -> PathId {
        self.id
    }

    /// Estimates and window, for observers.
    pub(crate) fn metrics(&self) -> Metrics {
        let route = &self.route;
        Metrics {
            smoothed_rtt: route.rtt.smoothed(),
            rttvar: route.rtt.rttvar(),
            min_rtt: route.rtt.min(),
            latest_rtt: route.rtt.latest(),
            congestion_window: route.controller.window(),
            ssthresh: route.controller.ssthresh(),
            bytes_in_flight: route.in_flight,
            delivery_rate: route.rate.bandwidth(),
            pto_count: self.liveness.pto_count(),
            phase: route.controller.phase(),
            app_limited: route.app_limited,
        }
    }

    /// What coupled controllers see of it, as a path that the event is not about.
    pub(crate) fn member(&self) -> Member {
        let (controller, rtt) = (&self.route.controller, &self.route.rtt);
        let is_healthy = self.is_healthy();
        Member {
            path: self.id,
            is_self: false,
            window: controller.window(),
            ssthresh: controller.ssthresh(),
            smoothed_rtt: if rtt.has_sample() {
                rtt.smoothed()
            } else {
                Duration::ZERO
            },
            bytes_between_losses: controller.bytes_between_losses(),
            active: is_healthy && !self.route.app_limited,
            shares_bottleneck: false,
            probing_rtt: controller.is_probing_rtt() && is_healthy && self.route.in_flight > 0,
        }
    }

    pub(crate) fn weighing(&self) -> Weighing {
        self.weighing
    }

    /// Its 1-RTT packet number space.
    pub(crate) fn space(&self) -> &PacketSpace {
        &self.space
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// The route before a migration, until the new one is validated.
    pub(crate) fn previous(&self) -> Option<&Route> {
        self.previous.as_deref()
    }

    /// Writes challenges and responses, in a packet that leaves by the path's route or by the
    /// `previous` one; `full` tells whether the datagram can be full size. Returns whether any was
    /// written.
    pub(crate) fn write_proof(
        &mut self,
        now: Instant,
        previous: bool,
        frames: &mut Frames<'_>,
        full: bool,
    ) -> bool {
        let route = match &mut self.previous {
            Some(route) if previous => route,
            _ => &mut self.route,
        };
        route.write_proof(now, frames, full)
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    pub(crate) fn pairs(&self) -> &PacketPairs {
        &self.pairs
    }

    /// Moving share of packets lost.
    pub(crate) fn loss(&self) -> f32 {
        self.loss
    }

    pub(crate) fn counters(&self) -> &PathCounters {
        &self.counters
    }

    /// Tells apart what the path was like at different times, but for what acknowledgements and
    /// losses change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Stream bytes are written for the first time, and `again`.
    pub(crate) fn count_written(&mut self, fresh: u64, again: u64) {
        self.counters.fresh_bytes += fresh;
        self.counters.retransmitted_bytes += again;
    }

    /// Stream bytes that another path carries are written, because the scheduler wants it.
    pub(crate) fn count_copied(&mut self, bytes: u64) {
        self.counters.copied_bytes += bytes;
    }

    /// Stream bytes that another path carries are written, because everything waits for them.
    pub(crate) fn count_rescued(&mut self, bytes: u64) {
        self.count_copied(bytes);
        self.counters.rescued_bytes += bytes;
    }

    /// Stream bytes in flight here are offered to other paths, as this one does not answer.
    pub(crate) fn count_reinjected(&mut self, bytes: u64) {
        self.counters.reinjected_bytes += bytes;
    }

    /// The connection could send nothing for so long because it waited for data in flight here.
    pub(crate) fn count_blocking(&mut self, span: Duration) {
        self.counters.blocking += span;
    }

    /// Ignores `options.status`, which the slot owns.
    pub(crate) fn set_options(&mut self, options: PathOptions, now: Instant) {
        self.version += 1;
        self.weighing = options.weighing();
        self.shaper.set(options.shape, now);
        self.keep_alive = options.keep_alive;
    }

    /// What may be in flight whatever the congestion controller allows.
    pub(crate) fn set_cap(&mut self, cap: u64) {
        self.cap = cap;
    }

    /// The far end needs no proof any more.
    pub(crate) fn set_validated(&mut self) {
        self.version += 1;
        self.route.set_validated();
    }

    /// Packets leave from this address.
    pub(crate) fn set_local_address(&mut self, address: IpAddr) {
        self.route.set_local_address(address);
    }

    /// An earlier connection saw this of the path's present route; see [`Route::resume`].
    pub(crate) fn resume(&mut self, memory: PathMemory, until: Instant) {
        self.route.resume(memory, until);
    }

    /// The client chose the address itself: nobody is amplified at.
    pub(crate) fn lift_amplification_limit(&mut self) {
        self.route.lift_amplification_limit();
    }

    /// The peer takes no larger datagrams.
    pub(crate) fn set_peer_limit(&mut self, limit: u64) {
        self.route.set_peer_limit(limit);
    }

    /// Larger packets are tried once the next one is acknowledged.
    pub(crate) fn hold_mtu(&mut self) {
        let next = self.space.peek_pn();
        self.route.mtu.hold_until_acked(next);
    }

    /// Packets will never be acknowledged, which says nothing about congestion.
    pub(crate) fn forget_in_flight(&mut self, sent: &[(u64, SentPacket)]) {
        for (_, packet) in sent {
            self.route.take_off(packet);
        }
    }

    /// Nothing in flight of the path's own space will be acknowledged: returns it.
    pub(crate) fn forget_data(&mut self) -> Vec<(u64, SentPacket)> {
        let sent = self.space.take_all();
        self.forget_in_flight(&sent);
        sent
    }

    /// A new controller, as the factory makes them, for the present route.
    pub(crate) fn replace_controller(
        &mut self,
        now: Instant,
        factory: &ControllerFactory,
        seed: u64,
    ) {
        self.route.controller = factory.build(&ControllerInit {
            max_datagram_size: self.route.mtu.current(),
            now,
            seed,
            path: self.id,
        });
        self.route.update_pacing(now);
    }

    /// Whether the path is announced to the application for the first time.
    pub(crate) fn announce(&mut self, now: Instant) -> bool {
        if self.announced {
            return false;
        }
        self.announced = true;
        self.version += 1;
        self.route.update_pacing(now);
        true
    }

    /// Room that nobody used must not grow windows nor count as capacity (RFC 9002, section 7.8).
    pub(crate) fn note_app_limited(&mut self, now: Instant) {
        let route = &mut self.route;
        let size = u64::from(route.mtu.current());
        route.app_limited = route.free_window() >= size && route.pacer.ready_at(now, size) <= now;
        if route.app_limited {
            route.rate.set_app_limited(route.in_flight);
        }
    }

    /// A probe time-out of the handshake expired.
    pub(crate) fn on_handshake_probe(&mut self, now: Instant) {
        self.liveness.on_activity(now);
    }

    /// Somebody wants to know whether the path answers.
    pub(crate) fn request_ping(&mut self) {
        self.liveness.request_ping();
    }

    /// The PING that was owed is written.
    pub(crate) fn take_ping(&mut self) {
        self.liveness.take_ping();
    }

    /// A probe is written.
    pub(crate) fn take_probe(&mut self) {
        self.liveness.take_probe();
    }

    /// The peer asks whether its packets come by here. Challenges that arrive by none of the path's
    /// routes are answered where they came from if `elsewhere` tells their packet's number and
    /// size.
    pub(crate) fn on_challenge(
        &mut self,
        tuple: Tuple,
        data: [u8; 8],
        elsewhere: Option<(u64, usize)>,
    ) {
        for route in [Some(&mut self.route), self.previous.as_deref_mut()]
            .into_iter()
            .flatten()
        {
            // A client answers where it sends from, whichever socket the question came by.
            if route.tuple == tuple || route.tuple.remote == tuple.remote && elsewhere.is_none() {
                route.responses.push(data);
                return;
            }
        }
        if let Some((pn, size)) = elsewhere {
            self.elsewhere.push(tuple, data, pn, size);
        }
    }

    /// A challenge in a 0-RTT packet, which anybody can repeat from anywhere.
    pub(crate) fn on_early_challenge(&mut self, tuple: Tuple, data: [u8; 8]) {
        if self.route.tuple == tuple {
            self.route.responses.push(data);
        }
    }

    /// Whether somebody who is not the path's far end waits for an answer.
    pub(crate) fn has_answers(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// The next of these answers.
    pub(crate) fn take_answers(&mut self) -> Option<ElsewhereAnswers> {
        self.elsewhere.pop()
    }

    pub(crate) fn new(
        id: PathId,
        space: PacketSpace,
        route: Route,
        options: PathOptions,
        now: Instant,
    ) -> Self {
        Self {
            id,
            weighing: options.weighing(),
            space,
            route,
            previous: None,
            moves: Moves::new(now),
            elsewhere: Elsewhere::default(),
            liveness: Liveness::new(now),
            keep_alive: options.keep_alive,
            cap: u64::MAX,
            shaper: Shaper::new(options.shape, now),
            pairs: PacketPairs::default(),
            loss: 0.0,
            announced: false,
            counters: PathCounters::default(),
            version: 0,
        }
    }

    /// How long it may rest before it is asked.
    pub(crate) fn rest(&self, common: &Common) -> Rest {
        let own = self.keep_alive.map(|time| time.max(MIN_KEEP_ALIVE));
        let most = own.or(common.keep_alive.most);
        Rest {
            most: most.map(|most| {
                common
                    .longest_rest
                    .map_or(most, |longest| most.min(longest))
            }),
            ..common.keep_alive
        }
    }

    /// Whether the path answers and its far end is proven, as far as data needs that.
    pub(crate) fn is_healthy(&self) -> bool {
        self.route.is_open_to_data() && self.liveness.is_trusted()
    }

    /// The congestion window, or what mechanisms leave of it.
    pub(crate) fn window(&self) -> u64 {
        self.route.controller.window().min(self.cap)
    }

    /// How much of [`window`](Self::window) is left.
    pub(crate) fn room(&self) -> u64 {
        self.window().saturating_sub(self.route.in_flight)
    }

    /// When pacer and shaper let `bytes` go: not later than `now` if at once.
    pub(crate) fn ready_at(&self, now: Instant, bytes: u64) -> Instant {
        let paced = self.route.pacer.ready_at(now, bytes);
        paced.max(self.shaper.ready_at(now, bytes))
    }

    /// Whether window and pacer let a full packet go now.
    pub(crate) fn has_room(&self, now: Instant) -> bool {
        let size = u64::from(self.route.mtu.current());
        self.room() >= size && self.ready_at(now, size) <= now
    }

    /// Whether the window lets a full packet go, but the pacer not yet.
    pub(crate) fn is_paced(&self, now: Instant) -> bool {
        let size = u64::from(self.route.mtu.current());
        self.room() >= size && self.ready_at(now, size) > now
    }

    /// Whether the path [is healthy](Self::is_healthy) and has room.
    pub(crate) fn can_send(&self, now: Instant) -> bool {
        self.is_healthy() && self.has_room(now)
    }

    /// What a scheduler is told of the health.
    pub(crate) fn state(&self) -> PathState {
        if self.liveness.is_trusted() {
            PathState::Active
        } else {
            PathState::Doubtful
        }
    }

    /// The time to wait for an acknowledgement before probing (RFC 9002, section 6.2.1), without
    /// backoff.
    pub(crate) fn pto(&self, max_ack_delay: Duration) -> Duration {
        self.route.rtt.pto_base() + max_ack_delay
    }

    /// What [`Liveness`] has to know of the path.
    pub(crate) fn under_way(&self, max_ack_delay: Duration) -> UnderWay {
        UnderWay {
            pto: self.pto(max_ack_delay),
            validated: self.route.validated,
            loss_pending: self.space.loss_time().is_some(),
            awaits: self.space.ack_eliciting_in_flight() > 0,
            oldest: self.space.oldest_eliciting(),
            third_oldest: self.space.third_oldest_eliciting(),
            last_sent: self.space.last_ack_eliciting_sent(),
        }
    }

    /// Whether the loss time is over.
    pub(crate) fn has_lost(&self, now: Instant) -> bool {
        self.space.loss_time().is_some_and(|at| at <= now)
    }

    /// Time has passed; what was lost is known already.
    pub(super) fn on_timeout(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        max_ack_delay: Duration,
        around: &Surroundings,
        use_ecn: bool,
    ) -> TimedOut {
        let failed = self.on_validation_timeout(now, rng, around.several, use_ecn);
        let mut verdicts = Verdicts::new();
        if failed != Some(Failed::Lost) {
            let own = self.under_way(max_ack_delay);
            verdicts = self.liveness.on_timeout(now, &own, around);
        }
        for verdict in &verdicts {
            self.obey(now, *verdict);
        }
        TimedOut { failed, verdicts }
    }

    /// Something ack-eliciting among `acked` was acknowledged.
    pub(super) fn on_answered(
        &mut self,
        now: Instant,
        max_ack_delay: Duration,
        acked: &[(u64, SentPacket)],
    ) -> Option<Verdict> {
        let pto = self.pto(max_ack_delay);
        let eliciting = acked.iter().filter(|(_, packet)| packet.ack_eliciting);
        let sent = eliciting.map(|(_, packet)| packet.time_sent);
        let verdict = self.liveness.on_answered(now, pto, sent)?;
        Some(self.obey(now, verdict))
    }

    /// The driver was told that nothing passes, while another path answers.
    pub(crate) fn on_refused(&mut self, now: Instant) -> Option<Verdict> {
        let verdict = self.liveness.on_refused(now, self.route.validated)?;
        Some(self.obey(now, verdict))
    }

    /// Does what a verdict means for the path itself.
    #[cold]
    pub(super) fn obey(&mut self, now: Instant, verdict: Verdict) -> Verdict {
        self.version += 1;
        match verdict {
            Verdict::Probe => self.counters.ptos += 1,
            Verdict::Doubt => self.counters.doubts += 1,
            // What is known of the capacity of a path that was only slow still holds.
            Verdict::Trust {
                was_slow: false, ..
            } => {
                self.route.controller.restart(now);
                self.route.update_pacing(now);
            }
            _ => {}
        }
        verdict
    }
}
