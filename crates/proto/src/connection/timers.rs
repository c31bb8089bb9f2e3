//! Timers, each beside the state it guards:
//!
//! | timer | scope | owner |
//! |---|---|---|
//! | acknowledgement delay | space | `ReceivedPackets` |
//! | loss time | space | `PacketSpace` |
//! | probe time-out, silence, no response while another path responds | path | [`Liveness`] |
//! | keep-alive, path idle, the same while data is missing | path | [`Liveness`] |
//! | challenge repeat, validation failure | route | `Validation` |
//! | MTU probe | route | `MtuDiscovery` |
//! | pacing, shaping | route, path | `Pacer`, `Shaper` |
//! | abandoned path discarded | slot | `Closing` |
//! | hold of the scheduler | connection | `Placement` |
//! | old keys | connection | `Handshake` |
//! | probe time-out of the handshake | connection | `Flights` |
//! | idle | connection | here |
//! | closing, draining | connection | `Life` |
//!
//! [`Liveness`]: crate::path::liveness::Liveness

use super::Connection;
use super::silence::Census;
use crate::error::ConnectionError;
use crate::handshake::Level;
use crate::handshake::flights::LEVELS;
use crate::packet::MIN_USEFUL_ROOM;
use crate::path::PathSet;
use crate::path::liveness::Alarm;
use crate::path::route::Route;
use crate::path::state::Path;
use crate::time::{Duration, Instant};
use crate::wire::PathId;

/// Bytes below which the amplification limit leaves no room for a useful packet. A lone PING from a
/// new address has to earn enough for a challenge.
pub(super) const MIN_BUDGET: u64 = MIN_USEFUL_ROOM as u64;

/// How often a validation looks whether it is still kept from sending.
const STUCK_VALIDATION: Duration = Duration::from_secs(1);

/// A handshake in which nothing moves is given up after this long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// What a time-out is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(
    missing_docs,
    reason = "the table at the top of the module explains them"
)]
pub enum Timer {
    Acknowledge,
    Loss,
    Pto,
    Silence,
    Inquiry,
    Validation,
    Pacing,
    KeepAlive,
    PathIdle,
    Discard,
    Hold,
    OldKeys,
    Handshake,
    Idle,
    Close,
}

/// The first of several timers; of those at the same time, the one named first in [`Timer`].
#[derive(Default)]
struct First(Option<(Instant, Timer)>);

impl First {
    fn offer(&mut self, at: Option<Instant>, timer: Timer) {
        if let Some(at) = at
            && self.0.is_none_or(|first| (at, timer) < first)
        {
            self.0 = Some((at, timer));
        }
    }

    /// Whether a timer that ends at `at` or later may be the first.
    fn may_follow(&self, at: Instant) -> bool {
        self.0.is_none_or(|first| at <= first.0)
    }
}

impl From<Alarm> for Timer {
    fn from(alarm: Alarm) -> Self {
        match alarm {
            Alarm::Probe => Self::Pto,
            Alarm::Silence => Self::Silence,
            Alarm::Inquiry => Self::Inquiry,
            Alarm::KeepAlive => Self::KeepAlive,
            Alarm::Idle => Self::PathIdle,
        }
    }
}

impl Connection {
    /// When [`handle_timeout`](Self::handle_timeout) must be called, if nothing arrives before.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.next_timer().map(|(at, _)| at)
    }

    /// The next time-out and what asked for it: for whoever wonders why a driver wakes up.
    pub fn next_timer(&self) -> Option<(Instant, Timer)> {
        if self.life.is_over() {
            return self.life.deadline().map(|at| (at, Timer::Close));
        }
        let mut first = First::default();
        let data = self.streams.has_unsent();
        let census = self.census();
        for slot in self.paths.in_use() {
            if let Some(path) = slot.open() {
                let waits = data || self.placement.waits_for(slot.id);
                let waits = waits && slot.carrier().is_some();
                self.offer_path_timers(path, waits, census, &mut first);
            }
            first.offer(slot.discard_deadline(), Timer::Discard);
        }
        first.offer(self.ack_deadline(), Timer::Acknowledge);
        let initial = self.paths.path(PathId::ZERO);
        let handshake = self.flights.deadline(&self.handshake, initial);
        first.offer(handshake, Timer::Handshake);
        // Nearly always far off: then the probe time-outs that may put it off need no look.
        if self
            .idle_timeout()
            .is_some_and(|least| first.may_follow(self.idle_since + least))
        {
            first.offer(self.idle_deadline(), Timer::Idle);
        }
        first.offer(self.placement.deadline(), Timer::Hold);
        first.offer(self.handshake.deadline(), Timer::OldKeys);
        first.0
    }

    /// Offers the timers of a path; `waits` tells whether data or copies wait that it
    /// may carry.
    fn offer_path_timers(&self, path: &Path, waits: bool, census: Census, first: &mut First) {
        let around = self.surroundings(path, census);
        let own = path.under_way(self.peer_max_ack_delay());
        let size = u64::from(path.route().mtu.current());
        // Only a pacer that is the obstacle: what else stops data has a timer or event of its own.
        let may_carry = path.is_healthy() || !around.others_answer;
        let paced = (waits && may_carry && path.room() >= size)
            .then(|| path.ready_at(self.clock, size))
            .filter(|ready| *ready > self.clock);
        first.offer(path.space().loss_time(), Timer::Loss);
        if let Some((at, alarm)) = path.liveness().deadline(&own, &around) {
            first.offer(Some(at), alarm.into());
        }
        first.offer(self.validation_deadline(path), Timer::Validation);
        first.offer(paced, Timer::Pacing);
    }

    /// When an acknowledgement is due that can be sent at all.
    fn ack_deadline(&self) -> Option<Instant> {
        let paths = self
            .paths
            .in_use()
            .filter_map(|slot| Some((slot, slot.path()?)));
        let due = paths.filter_map(|(slot, path)| {
            // The cheap question first: few paths have an acknowledgement to send.
            let at = path.space().received.deadline()?;
            self.ack_route(self.clock, slot.is_closing(), path)
                .map(|_| at)
        });
        due.min().map(|at| at.max(self.clock))
    }

    /// When to repeat a challenge or give up. A challenge that is due but may not be sent, for lack
    /// of amplification budget or of a connection ID, waits for the peer.
    fn validation_deadline(&self, path: &Path) -> Option<Instant> {
        let is_settled = |route: &Route| route.validation.is_none();
        if is_settled(path.route()) && path.previous().is_none_or(is_settled) {
            return None;
        }
        let cids = &self.paths.slot(path.id())?.remote_cids;
        let current = (path.route(), cids.has_active());
        let previous = path.previous();
        let previous = previous.map(|route| (route, cids.has_active() && cids.kept().is_some()));
        let routes = [current].into_iter().chain(previous);
        let deadlines = routes.filter_map(|(route, has_cid)| {
            let at = route.validation.as_ref()?.deadline()?;
            let is_mute = !has_cid || route.amplification.budget() < MIN_BUDGET;
            let stuck = at <= self.clock && is_mute;
            Some(if stuck {
                self.clock + STUCK_VALIDATION
            } else {
                at
            })
        });
        deadlines.min()
    }

    /// RFC 9000, section 10.1: the smaller of both sides' time-outs, but never below three PTOs.
    fn idle_deadline(&self) -> Option<Instant> {
        let timeout = self.idle_timeout()?;
        Some(self.idle_since + timeout.max(self.three_pto()))
    }

    /// What both sides agreed on.
    fn idle_timeout(&self) -> Option<Duration> {
        let ours = self.config.max_idle_timeout;
        if !self.handshake.is_complete() {
            // A handshake that nobody finishes must not keep its place for ever.
            return Some(ours.map_or(HANDSHAKE_TIMEOUT, |ours| ours.min(HANDSHAKE_TIMEOUT)));
        }
        let theirs = Duration::from_millis(self.identity.peer.max_idle_timeout_ms);
        let theirs = Some(theirs).filter(|theirs| !theirs.is_zero());
        ours.into_iter().chain(theirs).min()
    }

    /// Time has passed. Calling early does nothing.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
        self.sent_all_at = None;
        if self.life.is_over() {
            if self.life.deadline().is_some_and(|at| at <= now) {
                self.finish_draining();
            }
            return;
        }
        if self.idle_deadline().is_some_and(|at| at <= now) {
            self.vanish(now, ConnectionError::TimedOut);
            return;
        }
        self.handle_flights_timeout(now);
        self.handshake.handle_timeout(now);
        self.placement.on_timeout(now);
        // No more paths are open at a time than the set has room for.
        let ids: PathSet = self.paths.open().map(|slot| slot.id).collect();
        for id in ids.iter() {
            self.handle_path_timeout(now, id);
            if self.life.is_over() {
                return;
            }
        }
        self.discard_closed_paths(now);
    }

    fn handle_flights_timeout(&mut self, now: Instant) {
        for level in LEVELS {
            if self.flights.has_lost(now, level) {
                self.detect_lost(now, level, PathId::ZERO);
            }
        }
        let Some(path) = self.paths.path(PathId::ZERO) else {
            return;
        };
        if let Some((level, missed)) = self.flights.probe(now, &self.handshake, path) {
            for frame in missed {
                self.on_frame_lost(level, PathId::ZERO, &frame);
            }
            if let Some(path) = self.paths.path_mut(PathId::ZERO) {
                path.on_handshake_probe(now);
            }
        }
    }

    fn handle_path_timeout(&mut self, now: Instant, id: PathId) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let Some(path) = self.paths.open_path(id) else {
            return;
        };
        if due(path.space().loss_time()) {
            self.detect_lost(now, Level::OneRtt, id);
        }
        self.handle_validation_timeout(now, id);
        let Some(path) = self.paths.open_path(id) else {
            return;
        };
        let around = self.surroundings(path, self.census());
        let max_ack_delay = self.peer_max_ack_delay();
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        for verdict in path.on_timeout(now, max_ack_delay, &around) {
            self.carry_out(now, id, verdict);
        }
    }
}
