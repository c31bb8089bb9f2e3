//! One open path.

use super::caps::{Penalty, RecentMinimum};
use super::copies::Copies;
use super::liveness::{Liveness, Surroundings, UnderWay, Verdict, Verdicts};
use super::moves::Moves;
use super::route::Route;
use super::shaper::{Shape, Shaper};
use super::validation::Elsewhere;
use crate::path::PathState;
use crate::recovery::{PacketPairs, PacketSpace, SentPacket};
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use anabranch_wire::frame::PathStatus;

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
}

impl Default for PathOptions {
    fn default() -> Self {
        Self {
            status: PathStatus::Available,
            weight: 1,
            priority: 0,
            cost: 0,
            shape: None,
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
    /// Those of them that were copied because everything else waited for them.
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

/// One open path: its packet numbers, its route, its health.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) options: PathOptions,
    pub(crate) space: PacketSpace,
    pub(crate) route: Route,
    /// The route before a migration, kept until the new one is validated.
    pub(crate) previous: Option<Route>,
    pub(crate) moves: Moves,
    /// Challenges from addresses the path is not at.
    pub(crate) elsewhere: Elsewhere,
    pub(crate) liveness: Liveness,
    /// Bytes the scheduler assigned to this path that are not sent yet.
    pub(crate) assigned: u64,
    pub(crate) copies: Copies,
    /// What may be in flight whatever the congestion controller allows.
    pub(crate) cap: u64,
    pub(crate) recent_min: RecentMinimum,
    pub(crate) penalty: Option<Penalty>,
    pub(crate) penalised_at: Option<Instant>,
    pub(crate) shaper: Shaper,
    pub(crate) pairs: PacketPairs,
    /// Moving share of packets lost.
    pub(crate) loss: f32,
    /// Whether the peer's announcement of the path was followed by [`PathNotice::Opened`].
    ///
    /// [`PathNotice::Opened`]: crate::event::PathNotice::Opened
    pub(crate) announced: bool,
    pub(crate) counters: PathCounters,
}

impl Path {
    pub(crate) fn new(
        id: PathId,
        space: PacketSpace,
        route: Route,
        options: PathOptions,
        now: Instant,
    ) -> Self {
        Self {
            id,
            options,
            space,
            route,
            previous: None,
            moves: Moves::new(now),
            elsewhere: Elsewhere::default(),
            liveness: Liveness::new(now),
            assigned: 0,
            copies: Copies::default(),
            cap: u64::MAX,
            recent_min: RecentMinimum::default(),
            penalty: None,
            penalised_at: None,
            shaper: Shaper::new(options.shape, now),
            pairs: PacketPairs::default(),
            loss: 0.0,
            announced: false,
            counters: PathCounters::default(),
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

    /// What a scheduler is told of the health.
    pub(crate) fn state(&self) -> PathState {
        if self.liveness.is_trusted() {
            PathState::Active
        } else {
            PathState::Doubtful
        }
    }

    /// Goes on by `next`; returns the route left. Where only the peer's port differs, what was
    /// measured is kept (RFC 9000, section 9.4).
    pub(crate) fn exchange_route(&mut self, mut next: Route, use_ecn: bool) -> Route {
        if next.tuple.differs_by_port(&self.route.tuple) {
            self.route.swap_far_end(&mut next);
        } else {
            next.ecn = self.route.ecn.after_move(use_ecn);
            std::mem::swap(&mut self.route, &mut next);
        }
        next
    }

    /// The route that sent a packet, if it is still there.
    pub(crate) fn route_of(&mut self, generation: u32) -> Option<&mut Route> {
        if self.route.generation == generation {
            return Some(&mut self.route);
        }
        self.previous
            .as_mut()
            .filter(|route| route.generation == generation)
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
            several: self.space.several_eliciting(),
            last_sent: self.space.last_ack_eliciting_sent(),
        }
    }

    /// Time has passed.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        max_ack_delay: Duration,
        around: &Surroundings,
    ) -> Verdicts {
        let own = self.under_way(max_ack_delay);
        let verdicts = self.liveness.on_timeout(now, &own, around);
        for verdict in &verdicts {
            self.obey(now, *verdict);
        }
        verdicts
    }

    /// Something ack-eliciting among `acked` was acknowledged.
    pub(crate) fn on_answered(
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

    /// A challenge was answered, and the far end is proven.
    pub(crate) fn on_responded(&mut self, now: Instant) -> Verdicts {
        let verdicts = self.liveness.on_responded(now);
        for verdict in &verdicts {
            self.obey(now, *verdict);
        }
        verdicts
    }

    /// Another path responded to the inquiry.
    pub(crate) fn on_other_responded(&mut self, now: Instant) -> Option<Verdict> {
        let validated = self.route.validated;
        let verdict = self.liveness.on_other_responded(now, validated)?;
        Some(self.obey(now, verdict))
    }

    /// The driver was told that nothing passes, while another path answers.
    pub(crate) fn on_refused(&mut self, now: Instant) -> Option<Verdict> {
        let verdict = self.liveness.on_refused(now, self.route.validated)?;
        Some(self.obey(now, verdict))
    }

    /// Nobody has to be asked any more which path is to blame.
    pub(crate) fn end_inquiry(&mut self) {
        if self.liveness.end_inquiry() && self.route.validated {
            self.route.validation = None;
        }
    }

    /// Does what a verdict means for the path itself.
    #[cold]
    fn obey(&mut self, now: Instant, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Probe => self.counters.ptos += 1,
            Verdict::Doubt => {
                self.assigned = 0;
                self.counters.doubts += 1;
            }
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
