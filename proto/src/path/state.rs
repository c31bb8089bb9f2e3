//! One open path.

use super::caps::{Penalty, RecentMinimum};
use super::copies::Copies;
use super::moves::Moves;
use super::route::Route;
use super::shaper::{Shape, Shaper};
use super::stalls::Stalls;
use super::validation::Elsewhere;
use crate::path::PathState;
use crate::recovery::{PacketPairs, PacketSpace};
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

/// Whether a path answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Active,
    /// Potentially failed: probed, but no data is sent.
    Doubtful {
        since: Instant,
    },
}

/// What a path said when nothing was acknowledged on any path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inquiry {
    None,
    /// It is being challenged.
    Asked,
    /// It responded: it carries packets both ways.
    Answered(Instant),
}

/// How the peer's lone PINGs on a path are answered: a peer that keeps probing did not see the
/// acknowledgements that went back by the path itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Detour {
    /// Packets in a row that held nothing but a PING.
    pub(crate) lone_pings: u32,
    /// Acknowledgements also travel on another path until then.
    pub(crate) until: Option<Instant>,
    /// How long the next detour lasts.
    pub(crate) span: Duration,
}

impl Detour {
    /// Whether acknowledgements take another path now.
    pub(crate) fn is_active(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
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
    pub(crate) health: Health,
    /// Probe time-outs since the last acknowledgement.
    pub(crate) pto_count: u32,
    /// Ack-eliciting packets owed to a probe time-out; they ignore the congestion window.
    pub(crate) probes_owed: u8,
    /// A PING is owed: keep-alive, or the application asked.
    pub(crate) ping_pending: bool,
    /// Bytes the scheduler assigned to this path that are not sent yet.
    pub(crate) assigned: u64,
    pub(crate) copies: Copies,
    pub(crate) detour: Detour,
    pub(crate) inquiry: Inquiry,
    /// When a packet was last sent or received.
    pub(crate) last_activity: Instant,
    /// When a packet was last sent whose acknowledgement is waited for: the base of the PTO.
    /// Challenges do not count, nor PINGs on a silent path, or a path that is asked again and again
    /// is never probed.
    pub(crate) pto_from: Option<Instant>,
    /// When the last probe time-out was.
    pub(crate) last_pto: Option<Instant>,
    pub(crate) last_ack: Option<Instant>,
    /// How late it answers although it works.
    pub(crate) stalls: Stalls,
    /// Since when it answers everything in time.
    pub(crate) answers_since: Option<Instant>,
    /// The path by which acknowledgements of this one came last.
    pub(crate) acks_came_by: Option<PathId>,
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
            health: Health::Active,
            pto_count: 0,
            probes_owed: 0,
            ping_pending: false,
            assigned: 0,
            copies: Copies::default(),
            detour: Detour::default(),
            inquiry: Inquiry::None,
            last_activity: now,
            pto_from: None,
            last_pto: None,
            last_ack: None,
            stalls: Stalls::default(),
            answers_since: None,
            acks_came_by: None,
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
        self.route.is_open_to_data() && self.health == Health::Active
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
        match self.health {
            Health::Active => PathState::Active,
            Health::Doubtful { .. } => PathState::Doubtful,
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
}
