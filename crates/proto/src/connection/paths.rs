//! Opening, announcing and abandoning paths; their connection IDs and status.

use super::Connection;
use crate::config::TransportConfig;
use crate::datagram::Tuple;
use crate::error::TransportError;
use crate::event::{Observation, PathNotice};
use crate::handshake::Level;
use crate::path::manager::{CidSource, Discarded, Slot, TooScattered};
use crate::path::route::Route;
use crate::path::state::{Path, PathOptions};
use crate::path::{MAX_OPEN_PATHS, PathState};
use crate::placement::room_in;
use crate::recovery::PacketSpace;
use crate::rng::Rng;
use crate::sched::PathEvent;
use crate::time::Instant;
use crate::wire::frame::{NewConnectionId, PathStatus};
use crate::wire::{PathId, TransportErrorCode};

/// A 1-RTT packet number space as the configuration wants it.
pub(super) fn one_rtt_space(config: &TransportConfig, rng: &mut Rng) -> PacketSpace {
    let mut space = PacketSpace::new(rng);
    let received = space.received_mut();
    received.set_max_ack_delay(config.max_ack_delay);
    received.set_ack_eliciting_threshold(config.ack_threshold as u32);
    space
}

impl Connection {
    /// Creates the path of an unused ID.
    #[cold]
    pub(super) fn create_path(
        &mut self,
        now: Instant,
        id: PathId,
        tuple: Tuple,
        options: PathOptions,
    ) {
        let mut space = one_rtt_space(&self.config, &mut self.rng);
        if let Some(policy) = self.ack_wish.policy() {
            space.received_mut().set_policy(now, policy);
        }
        let mut route = self.new_route(now, id, tuple, 0);
        route.validate(now, &mut self.rng);
        if self.identity.side().is_client() {
            // The client chose the address itself: nobody is amplified at.
            route.lift_amplification_limit();
        }
        self.paths
            .put(Path::new(id, space, route, options, now), options.status);
        self.outbox
            .observe(now, &Observation::RouteAssigned { path: id, tuple });
        // The peer needs a spare one to move the path.
        self.issue_cids();
    }

    /// A route nothing is known about, with the peer's limits.
    pub(super) fn new_route(
        &mut self,
        now: Instant,
        id: PathId,
        tuple: Tuple,
        generation: u32,
    ) -> Route {
        let mut route = Route::new(&self.config, &mut self.rng, now, id, tuple, generation);
        let limit = self.identity.peer().max_udp_payload_size;
        route.set_peer_limit(limit);
        route
    }

    /// The peer used a path ID for the first time: it opens the path (only clients may).
    #[cold]
    pub(super) fn on_first_packet(&mut self, now: Instant, id: PathId, tuple: Tuple, bytes: u64) {
        if self.identity.side().is_client() || self.paths.slot(id).is_none_or(Slot::is_closing) {
            return;
        }
        if self.paths.open_count() >= self.path_cap() {
            self.refuse(now, id, TransportErrorCode::PATH_RESOURCE_LIMIT_REACHED.0);
            return;
        }
        // The connection ID to answer with may still be under way on a slower path. Until it comes
        // the new path is mute and keeps what it owes; if none comes, its validation fails.
        self.create_path(now, id, tuple, PathOptions::default());
        self.resume_path(now, id, None);
        if let Some(path) = self.paths.path_mut(id) {
            path.on_first_packet(tuple, bytes);
        }
    }

    pub(super) fn path_cap(&self) -> usize {
        (self.config.max_paths as usize).clamp(1, MAX_OPEN_PATHS)
    }

    /// A path may carry data from now on.
    #[cold]
    pub(super) fn announce_path(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        if !path.announce(now) {
            return;
        }
        let tuple = path.route().tuple();
        // Said again after validation even if said before: some peers forget what they hear of a
        // path that is not open yet (docs/interop.md, D4).
        let slot = self.paths.slot(id);
        if slot.is_some_and(|slot| slot.own_status() == PathStatus::Backup) {
            self.paths.repeat_status(id);
        }
        self.on_path_event(PathEvent::Opened { path: id });
        self.outbox.notice(now, PathNotice::Opened { id, tuple });
    }

    /// A path became another one for those who send by it.
    #[cold]
    pub(super) fn on_path_event(&mut self, event: PathEvent) {
        self.fit_datagrams();
        self.placement.on_path(&event);
    }

    /// Datagrams may go on any path that is as good as others: the smallest packet of those decides
    /// how large they can be. A path that is still searched does not count if another is not: it
    /// would narrow datagrams for as long as that takes, and carries meanwhile those that fit.
    #[cold]
    pub(super) fn fit_datagrams(&mut self) {
        let open = self.paths.open();
        let paths = open.filter_map(|slot| Some((slot.status(), slot.open()?)));
        let order = |(status, path): (PathStatus, &Path)| {
            let route = path.route();
            let is_active = path.state() == PathState::Active;
            let is_spare = status == PathStatus::Backup;
            let key = (!is_active, is_spare, !route.is_mtu_known());
            route
                .is_validated()
                .then(|| (key, route.max_datagram_size()))
        };
        if let Some((_, smallest)) = paths.filter_map(order).min() {
            let room = room_in(u64::from(smallest), Level::OneRtt);
            self.streams.set_datagram_room(room);
        }
    }

    /// Tells the application when a path could be opened that could not before.
    #[cold]
    pub(super) fn note_capacity(&mut self, now: Instant) {
        if self.identity.side().is_client()
            && self.handshake.is_complete()
            && self.paths.is_multipath()
            && self.paths.open_count() < self.path_cap()
            && self.paths.next_unused().is_ok()
            && self.paths.tell_of_capacity()
        {
            self.outbox.notice(now, PathNotice::Capacity);
        }
    }

    /// Keeps the peer supplied with connection IDs for every path it may use, lowest IDs first. A
    /// server does so behind its part of the handshake already: with them a client opens paths
    /// as soon as it is complete, a round trip before it knows that the server is.
    #[cold]
    pub(super) fn issue_cids(&mut self) {
        if !self.may_send_one_rtt() || !self.identity.knows_peer() {
            return;
        }
        let mut source = CidSource {
            rng: &mut self.rng,
            keys: self.identity.keys(),
            format: self.identity.cids(),
        };
        let limit = self.identity.peer().active_connection_id_limit;
        self.paths.issue_cids(&mut source, limit);
    }

    pub(super) fn on_new_connection_id(
        &mut self,
        frame: &NewConnectionId,
    ) -> Result<(), TransportError> {
        if self.identity.peer_scid().is_some_and(|cid| cid.is_empty()) {
            return Err(TransportError::violation(
                "connection ID from a peer that uses none",
            ));
        }
        let limit = self.config.active_connection_id_limit;
        self.paths.on_new_cid(frame, limit)?;
        self.note_capacity(self.clock);
        Ok(())
    }

    pub(super) fn on_retire_connection_id(
        &mut self,
        path: PathId,
        sequence: u64,
    ) -> Result<(), TransportError> {
        if self.paths.on_retired_cid(path, sequence)? {
            self.issue_cids();
        }
        Ok(())
    }

    pub(super) fn on_path_status(&mut self, path: PathId, sequence: u64, status: PathStatus) {
        if let Some(status) = self.paths.on_peer_status(path, status, sequence) {
            self.on_path_event(PathEvent::Status { path, status });
        }
    }

    pub(super) fn on_path_cids_blocked(
        &mut self,
        path: PathId,
        next_sequence: u64,
    ) -> Result<(), TransportError> {
        if self.paths.on_cids_blocked(path, next_sequence)? {
            self.issue_cids();
        }
        Ok(())
    }

    /// The peer gives a path up. Answered with the same, also for an ID never used.
    pub(super) fn on_path_abandon(
        &mut self,
        now: Instant,
        id: PathId,
        code: u64,
    ) -> Result<(), TransportError> {
        if self.paths.slot(id).is_none() {
            return Ok(());
        }
        self.abandon(now, id, code, true);
        let discard_at = now + self.three_pto();
        self.paths.on_peer_abandoned(id, discard_at);
        if self.paths.open_count() == 0 && !self.life.is_over() {
            // A client could open a replacement first; ours opens paths before it gives them up.
            let code = TransportErrorCode::NO_VIABLE_PATH;
            return Err(TransportError::new(
                code,
                "the peer abandoned the last path",
            ));
        }
        Ok(())
    }

    fn refuse(&mut self, now: Instant, id: PathId, code: u64) {
        self.abandon(now, id, code, false);
    }

    /// Gives a path up: nothing more is sent on it, its data goes elsewhere.
    #[cold]
    pub(super) fn abandon(&mut self, now: Instant, id: PathId, code: u64, by_peer: bool) {
        let discard_at = now + self.three_pto();
        if !self.paths.begin_closing(id, code, discard_at) {
            return;
        }
        self.one_way.forget(now, id);
        self.bottlenecks.forget(id);
        if self.paths.path(id).is_some() {
            self.release(id);
            self.on_path_event(PathEvent::Abandoned { path: id });
            self.outbox
                .notice(now, PathNotice::Abandoned { id, code, by_peer });
            self.note_capacity(now);
        }
        if !by_peer && self.paths.open_count() == 0 && !self.life.is_over() {
            // Nobody could be told anything any more, nor tell us.
            let code = TransportErrorCode::NO_VIABLE_PATH;
            self.fail(now, TransportError::new(code, "no path is left"));
        }
    }

    /// Everything in flight on a path that is given up goes elsewhere.
    fn release(&mut self, id: PathId) {
        let Some(path) = self.paths.path_mut(id) else {
            return;
        };
        let packets = path.on_closing();
        for (_, packet) in &packets {
            for frame in &packet.frames {
                self.on_frame_lost(Level::OneRtt, id, frame);
            }
        }
    }

    /// Frees paths that were given up long enough ago.
    pub(super) fn discard_closed_paths(&mut self, now: Instant) {
        loop {
            match self.paths.discard_due(now) {
                Ok(Some(Discarded { id, had_path })) => {
                    self.handshake.forget_path(id);
                    if had_path {
                        self.outbox.notice(now, PathNotice::Discarded { id });
                    }
                }
                Ok(None) => return,
                Err(TooScattered) => {
                    let error = TransportError::violation("path IDs with too many holes");
                    self.fail(now, error);
                    return;
                }
            }
            self.issue_cids();
            self.note_capacity(now);
        }
    }
}
