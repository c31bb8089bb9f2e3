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
//! | idle | connection | `Idle` |
//! | closing, draining | connection | `Life` |
//!
//! [`Liveness`]: crate::path::liveness::Liveness

use super::Connection;
use crate::error::ConnectionError;
use crate::handshake::Level;
use crate::idle;
use crate::path::PathSet;
use crate::path::manager::{Common, Slot};
use crate::path::state::{Path, TimedOut};
use crate::time::{Duration, Instant};
use crate::timer::{First, Timer};
use crate::wire::PathId;

impl Connection {
    /// When [`handle_timeout`](Self::handle_timeout) must be called, if nothing arrives before.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.next_timer().map(|(at, _)| at)
    }

    /// The next time-out and its cause, for debugging.
    pub fn next_timer(&self) -> Option<(Instant, Timer)> {
        if self.life.is_over() {
            return self.life.deadline().map(|at| (at, Timer::Close));
        }
        let mut first = First::default();
        let data = self.streams.has_unsent();
        let common = self.common();
        for slot in self.paths.in_use() {
            if let Some(path) = slot.open() {
                let waits = data || self.placement.waits_for(slot.id());
                let waits = waits && slot.carrier().is_some();
                self.offer_path_timers(path, waits, &common, &mut first);
            }
            let validation = slot.validation_deadline(self.clock);
            first.offer(validation, Timer::Validation);
            first.offer(slot.discard_deadline(), Timer::Discard);
        }
        let acknowledgement = self.ack_routes.deadline(self.clock, &self.paths);
        first.offer(acknowledgement, Timer::Acknowledge);
        let initial = self.paths.path(PathId::ZERO);
        let handshake = self.flights.deadline(&self.handshake, initial);
        first.offer(handshake, Timer::Handshake);
        // Nearly always far off: then the probe time-outs that may put it off need no look.
        if self
            .idle_timeout()
            .is_some_and(|least| first.may_follow(self.idle.deadline(least)))
        {
            first.offer(self.idle_deadline(), Timer::Idle);
        }
        first.offer(self.placement.deadline(), Timer::Hold);
        first.offer(self.handshake.deadline(), Timer::OldKeys);
        first.get()
    }

    /// Offers the timers of a path; `waits` tells whether data or copies wait that it
    /// may carry.
    fn offer_path_timers(&self, path: &Path, waits: bool, common: &Common, first: &mut First) {
        let around = self.paths.surroundings(path, common);
        let own = path.under_way(self.peer_max_ack_delay());
        let size = u64::from(path.route().max_datagram_size());
        // Only a pacer that is the obstacle: what else stops data has a timer or event of its own.
        let may_carry = path.is_healthy() || !around.others_answer;
        let paced = (waits && may_carry && path.room() >= size)
            .then(|| path.ready_at(self.clock, size))
            .filter(|ready| *ready > self.clock);
        first.offer(path.space().loss_time(), Timer::Loss);
        if let Some((at, alarm)) = path.liveness().deadline(&own, &around) {
            first.offer(Some(at), alarm.into());
        }
        first.offer(paced, Timer::Pacing);
    }

    /// Never below three PTOs (RFC 9000, section 10.1).
    fn idle_deadline(&self) -> Option<Instant> {
        let timeout = self.idle_timeout()?;
        Some(self.idle.deadline(timeout.max(self.three_pto())))
    }

    /// When the connection ends if nothing is carried, as both ends agreed.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        let announced = Duration::from_millis(self.identity.peer().max_idle_timeout_ms);
        let peers = self.handshake.is_complete().then_some(announced);
        idle::timeout(self.config.max_idle_timeout, peers)
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
        let open = || self.paths.open().filter_map(Slot::open);
        let ids: PathSet = open().map(Path::id).collect();
        let losing: PathSet = open()
            .filter(|path| path.has_lost(now))
            .map(Path::id)
            .collect();
        for id in ids.iter() {
            if losing.contains(id) {
                self.detect_lost(now, Level::OneRtt, id);
            }
            self.handle_path_timeout(now, id);
            if self.life.is_over() {
                return;
            }
        }
        self.discard_closed_paths(now);
    }

    fn handle_path_timeout(&mut self, now: Instant, id: PathId) {
        let (common, max_ack_delay) = (self.common(), self.peer_max_ack_delay());
        let (rng, use_ecn) = (&mut self.rng, self.config.ecn);
        let timed_out = self
            .paths
            .on_timeout(now, rng, id, &common, max_ack_delay, use_ecn);
        let Some(TimedOut { failed, verdicts }) = timed_out else {
            return;
        };
        if let Some(failed) = failed {
            self.on_validation_failed(now, id, failed);
        }
        for verdict in verdicts {
            self.carry_out(now, id, verdict);
        }
    }
}
