//! Opening, announcing and abandoning paths; their connection IDs and status.

use super::timers::MIN_BUDGET;
use super::{Connection, Routing};
use crate::config::{AckReturn, TransportConfig};
use crate::datagram::Tuple;
use crate::error::TransportError;
use crate::event::{Observation, PathNotice};
use crate::handshake::Level;
use crate::path::MAX_OPEN_PATHS;
use crate::path::manager::{Closing, Slot};
use crate::path::route::Route;
use crate::path::state::{Path, PathOptions};
use crate::recovery::{AckPolicy, PacketSpace};
use crate::rng::Rng;
use crate::sched::PathEvent;
use crate::time::Instant;
use crate::wire::frame::{NewConnectionId, PathStatus};
use crate::wire::{ConnectionId, PathId, ResetToken, TransportErrorCode};
use smallvec::SmallVec;

/// Connection IDs issued in advance for one path. More would only help a peer that rotates often;
/// noq takes at most 5.
const CIDS_PER_PATH: u64 = 2;

/// Short header with the longest connection ID and packet number, and tag.
const ONE_RTT_OVERHEAD: usize = 1 + 20 + 4 + 16;

/// A 1-RTT packet number space as the configuration wants it.
pub(super) fn one_rtt_space(config: &TransportConfig, rng: &mut Rng) -> PacketSpace {
    let mut space = PacketSpace::new(rng);
    space.received.set_max_ack_delay(config.max_ack_delay);
    space
        .received
        .set_ack_eliciting_threshold(config.ack_threshold as u32);
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
        if let Some(wish) = &self.ack_wish {
            space.received.set_policy(now, AckPolicy::asked(wish));
        }
        let mut route = self.new_route(now, id, tuple, 0);
        route.validate(now, &mut self.rng);
        if self.identity.side.is_client() {
            // The client chose the address itself: nobody is amplified at.
            route.amplification.set_validated();
        }
        self.paths.put(Path::new(id, space, route, options, now));
        self.outbox
            .observe(now, &Observation::RouteAssigned { path: id, tuple });
        let slot = self.paths.slot(id);
        let tokens: Vec<ResetToken> = slot.into_iter().flat_map(Slot::reset_tokens).collect();
        self.reroute_tokens(&[], &tokens);
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
        let limit = self.identity.peer.max_udp_payload_size;
        route.mtu.set_peer_limit(limit);
        route
    }

    /// The peer used a path ID for the first time: it opens the path (only clients may).
    #[cold]
    pub(super) fn on_first_packet(&mut self, now: Instant, id: PathId, tuple: Tuple, bytes: u64) {
        if self.identity.side.is_client() || self.paths.slot(id).is_none_or(|s| s.closing.is_some())
        {
            return;
        }
        if self.paths.open_count() >= self.path_cap() {
            self.refuse(now, id, TransportErrorCode::PATH_RESOURCE_LIMIT_REACHED.0);
            return;
        }
        // The connection ID to answer with may still be under way on a slower path. Until it comes
        // the new path is mute and keeps what it owes; if none comes, its validation fails.
        self.create_path(now, id, tuple, PathOptions::default());
        if let Some(path) = self.paths.path_mut(id) {
            path.on_datagram(tuple, bytes);
            path.counters_mut().received_packets += 1;
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
        let (tuple, status) = (path.route().tuple, path.options().status);
        // Said again after validation even if said before: some peers forget what they hear of a
        // path that is not open yet (docs/interop.md, D4).
        if status == PathStatus::Backup
            && let Some(mut slot) = self.paths.slot_mut(id)
        {
            slot.state_status(status);
        }
        self.fit_datagrams();
        self.placement.on_path(&PathEvent::Opened { path: id });
        self.notice(now, PathNotice::Opened { id, tuple });
    }

    /// Datagrams may go on any path: the smallest packet decides how large they can be.
    #[cold]
    pub(super) fn fit_datagrams(&mut self) {
        let open = self.paths.open().filter_map(|slot| slot.open());
        let validated = open.filter(|path| path.route().validated);
        if let Some(smallest) = validated.map(|path| path.route().mtu.current()).min() {
            let room = usize::from(smallest).saturating_sub(ONE_RTT_OVERHEAD);
            self.streams.set_datagram_room(room);
        }
    }

    /// Tells the application when a path could be opened that could not before.
    #[cold]
    pub(super) fn note_capacity(&mut self, now: Instant) {
        if self.identity.side.is_client()
            && !self.control.capacity_told
            && self.handshake.is_confirmed()
            && self.paths.is_multipath()
            && self.paths.open_count() < self.path_cap()
            && self.paths.next_unused().is_ok()
        {
            self.control.capacity_told = true;
            self.notice(now, PathNotice::Capacity);
        }
    }

    /// Keeps the peer supplied with connection IDs for every path it may use, lowest IDs first.
    #[cold]
    pub(super) fn issue_cids(&mut self) {
        if !self.handshake.is_confirmed() {
            return;
        }
        let wanted = CIDS_PER_PATH.min(self.identity.peer.active_connection_id_limit) as usize;
        let (usable, multipath) = (self.paths.usable_limit(), self.paths.is_multipath());
        self.paths.change_each(|slot| {
            if slot.closing.is_some() || slot.id > usable || (slot.id.0 > 0 && !multipath) {
                return true;
            }
            // An ID that may never be used gets one connection ID; an open path a spare for moving.
            let wanted = if slot.path.is_some() { wanted } else { 1 };
            while slot.local_cids.live().len() < wanted {
                let cid = random_cid(&mut self.rng, self.identity.cid_length);
                let token = self.identity.keys.reset_token(&cid);
                slot.local_cids.issue(cid, token);
                self.routing.push_back(Routing::AddCid(cid, slot.id));
            }
            true
        });
    }

    pub(super) fn on_new_connection_id(
        &mut self,
        frame: &NewConnectionId,
    ) -> Result<(), TransportError> {
        if self.identity.peer_scid.is_some_and(|cid| cid.is_empty()) {
            return Err(TransportError::violation(
                "connection ID from a peer that uses none",
            ));
        }
        let elsewhere = self
            .paths
            .slots()
            .any(|slot| slot.id != frame.path && slot.remote_cids.contains(&frame.cid));
        if elsewhere {
            return Err(TransportError::violation(
                "connection ID belongs to another path",
            ));
        }
        let limit = self.config.active_connection_id_limit;
        let Some(mut slot) = self.paths.slot_mut(frame.path) else {
            return Ok(());
        };
        if slot.closing.is_some() {
            return Ok(());
        }
        let before: Vec<ResetToken> = slot.reset_tokens().collect();
        slot.remote_cids.on_new(frame, limit)?;
        let after: Vec<ResetToken> = slot.reset_tokens().collect();
        drop(slot);
        self.reroute_tokens(&before, &after);
        self.note_capacity(self.clock);
        Ok(())
    }

    #[cold]
    pub(super) fn reroute_tokens(&mut self, before: &[ResetToken], after: &[ResetToken]) {
        for token in before.iter().filter(|token| !after.contains(token)) {
            self.routing.push_back(Routing::RemoveToken(*token));
        }
        for token in after.iter().filter(|token| !before.contains(token)) {
            self.routing.push_back(Routing::AddToken(*token));
        }
    }

    pub(super) fn on_retire_connection_id(
        &mut self,
        path: PathId,
        sequence: u64,
    ) -> Result<(), TransportError> {
        let Some(mut slot) = self.paths.slot_mut(path) else {
            return Ok(());
        };
        let retired = slot.local_cids.on_retire(sequence)?;
        drop(slot);
        self.routing.extend(retired.map(Routing::RemoveCid));
        self.issue_cids();
        Ok(())
    }

    pub(super) fn on_path_status(&mut self, path: PathId, sequence: u64, status: PathStatus) {
        let slot = self.paths.slot_mut(path);
        let Some(mut slot) = slot.filter(|slot| slot.closing.is_none()) else {
            return;
        };
        if slot.peer_status.is_none_or(|(_, newest)| sequence > newest) {
            slot.peer_status = Some((status, sequence));
            self.placement.on_path(&PathEvent::Status { path, status });
        }
    }

    pub(super) fn on_path_cids_blocked(
        &mut self,
        path: PathId,
        next_sequence: u64,
    ) -> Result<(), TransportError> {
        let Some(slot) = self.paths.slot(path) else {
            return Ok(());
        };
        if next_sequence > slot.local_cids.next_sequence() {
            return Err(TransportError::violation(
                "PATH_CIDS_BLOCKED beyond what was issued",
            ));
        }
        self.issue_cids();
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
        if let Some(mut slot) = self.paths.slot_mut(id)
            && let Some(closing) = &mut slot.closing
            && !closing.peer_abandoned
        {
            closing.peer_abandoned = true;
            // What the peer sent on the path before may still be under way.
            closing.discard_at = closing.discard_at.max(discard_at);
        }
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
        let closing = Closing {
            code,
            abandon_pending: true,
            peer_abandoned: false,
            abandon_acked: false,
            discard_at,
        };
        let Some(slot) = self.paths.begin_closing(id, closing) else {
            return;
        };
        let tokens: Vec<ResetToken> = slot.remote_cids.tokens().collect();
        self.reroute_tokens(&tokens, &[]);
        self.one_way.forget(now, id);
        self.bottlenecks.forget(id);
        if self.paths.path(id).is_some() {
            self.release(id);
            self.placement.on_path(&PathEvent::Abandoned { path: id });
            self.notice(now, PathNotice::Abandoned { id, code, by_peer });
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
        let due: Vec<PathId> = self
            .paths
            .in_use()
            .filter(|slot| {
                slot.closing
                    .and_then(|closing| closing.deadline())
                    .is_some_and(|at| at <= now)
            })
            .map(|slot| slot.id)
            .collect();
        for id in due {
            match self.paths.discard(id) {
                Ok(Some(slot)) => {
                    for cid in slot.local_cids.live() {
                        self.routing.push_back(Routing::RemoveCid(cid.cid));
                    }
                    self.handshake.forget_path(id);
                    if slot.path.is_some() {
                        self.notice(now, PathNotice::Discarded { id });
                    }
                }
                Ok(None) => {}
                Err(_) => {
                    self.fail(
                        now,
                        TransportError::violation("path IDs with too many holes"),
                    );
                    return;
                }
            }
            self.issue_cids();
            self.note_capacity(now);
        }
    }

    pub(super) fn knows_token(&self, token: ResetToken) -> bool {
        let mut tokens = self.paths.slots().flat_map(Slot::reset_tokens);
        tokens.any(|known| known == token)
    }

    /// Where the acknowledgement of `path` travels.
    pub(super) fn ack_route(&self, now: Instant, closing: bool, path: &Path) -> Option<PathId> {
        let carrier = |id: PathId| self.paths.slot(id).filter(|slot| can_carry(slot));
        let own = || carrier(path.id()).map(|slot| slot.id);
        if !self.multipath_active() {
            return own();
        }
        let home = (!closing && path.is_healthy()).then_some(path.id());
        let wanted = match self.config.ack_return {
            AckReturn::LowestRtt => self.control.ack_home.filter(|id| self.works(*id)),
            AckReturn::Path(id) if self.works(id) => Some(id),
            AckReturn::SamePath | AckReturn::Path(_) => home,
            AckReturn::LowestId => {
                let mut open = self.paths.open();
                return open.find(|slot| can_carry(slot)).map(|slot| slot.id);
            }
        };
        let wanted = wanted.and_then(carrier).map(|slot| slot.id);
        if wanted.is_some() && !path.liveness().takes_detour(now) {
            return wanted;
        }
        // A detour is worth it by a path that answers. Where none does, both sides may have doubts
        // about the one that works again: they learn of it only by answering there.
        let answers = |id: &PathId| {
            let path = self.paths.path(*id);
            path.is_some_and(|path| path.liveness().pto_count() == 0)
        };
        let best = self.control_path_except(wanted);
        best.filter(answers)
            .or_else(own)
            .or_else(|| self.control_path())
    }

    /// Whether a path works, as far as is known.
    fn works(&self, id: PathId) -> bool {
        let path = self.paths.slot(id).and_then(|slot| slot.open());
        path.is_some_and(|path| path.is_healthy() && path.liveness().pto_count() == 0)
    }

    /// Chooses the path by which all acknowledgements return. One that is hardly faster than the
    /// chosen one is left alone: to the peer another way back is another RTT.
    pub(super) fn settle_ack_home(&mut self) {
        if self.config.ack_return != AckReturn::LowestRtt {
            return;
        }
        let smoothed = |id: PathId| self.paths.path(id).map(|path| path.route().rtt.smoothed());
        let best = self.control_path();
        let kept = self.control.ack_home.filter(|home| {
            let much_slower = smoothed(*home) > best.and_then(smoothed).map(|rtt| rtt * 9 / 8);
            self.works(*home) && !much_slower
        });
        self.control.ack_home = kept.or(best);
    }

    /// The paths whose acknowledgements a packet on `carrier` takes along.
    pub(super) fn acks_travelling_on(
        &self,
        now: Instant,
        carrier: PathId,
    ) -> SmallVec<[PathId; 4]> {
        let rides_along = self.config.ack_return == AckReturn::SamePath;
        self.paths
            .in_use()
            .filter_map(|slot| slot.path.as_ref().map(|path| (slot, path)))
            .filter(|(slot, path)| {
                path.space().received.has_unreported()
                    && (path.id() == carrier && rides_along
                        || self.ack_route(now, slot.closing.is_some(), path) == Some(carrier))
            })
            .map(|(_, path)| path.id())
            .collect()
    }
}

pub(crate) fn random_cid(rng: &mut Rng, length: usize) -> ConnectionId {
    let bytes: [u8; 20] = rng.array();
    ConnectionId::new(&bytes[..length.min(20)]).expect("at most 20 bytes")
}

/// Whether a packet with any frame may be sent on the path.
pub(super) fn can_carry(slot: &Slot) -> bool {
    let budget = slot.open().map(|path| path.route().amplification.budget());
    slot.remote_cids.has_active() && budget.is_some_and(|budget| budget >= MIN_BUDGET)
}
