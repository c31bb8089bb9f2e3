//! A path whose far end moves, and proof that somebody is there (RFC 9000, sections 8.2 and 9).

use super::Connection;
use crate::datagram::Tuple;
use crate::event::{Observation, PathNotice};
use crate::path::cids::RemoteCids;
use crate::path::route::Route;
use crate::time::Instant;
use crate::wire::{PathId, ResetToken, TransportErrorCode};
use smallvec::SmallVec;
use std::net::SocketAddr;

/// Why a path cannot be moved to another route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MigrateError {
    /// Only clients move.
    #[error("only the client moves a path")]
    NotClient,
    /// The handshake is not confirmed, or the connection is over.
    #[error("the connection is not ready")]
    NotYet,
    /// The server forbids it (`disable_active_migration`).
    #[error("the server forbids migration")]
    Forbidden,
    /// No such path is open.
    #[error("no such path is open")]
    NoSuchPath,
    /// The peer has not issued a spare connection ID.
    #[error("the peer has not issued a spare connection ID")]
    NoCid,
}

impl Connection {
    /// The newest packet of a path came from elsewhere: follow it, and ask for proof.
    pub(super) fn on_new_tuple(&mut self, now: Instant, id: PathId, tuple: Tuple, bytes: u64) {
        if self.identity.side.is_client() || !self.handshake.is_confirmed() {
            // A client decides itself by which socket it sends, and servers do not move.
            return;
        }
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        let is_return = path.previous.as_ref().is_some_and(|old| old.tuple == tuple);
        if !is_return && !path.moves.take(now) {
            return;
        }
        self.move_route(now, id, tuple, bytes);
    }

    /// Sends a path's packets along `tuple` from now on. The old route is kept until the new one is
    /// validated, and taken again if that fails.
    ///
    /// With multipath, prefer opening a path and abandoning the old one: nothing stands still
    /// meanwhile. This is for peers without the extension.
    ///
    /// # Errors
    /// See [`MigrateError`].
    pub fn migrate_path(
        &mut self,
        now: Instant,
        id: PathId,
        tuple: Tuple,
    ) -> Result<(), MigrateError> {
        let preferred = self.preferred_remote(tuple.remote.is_ipv4());
        if self.identity.side.is_server() {
            return Err(MigrateError::NotClient);
        }
        if self.life.is_over() || !self.handshake.is_confirmed() {
            return Err(MigrateError::NotYet);
        }
        if self.identity.peer.disable_active_migration && preferred != Some(tuple.remote) {
            return Err(MigrateError::Forbidden);
        }
        let slot = self.paths.slot(id).filter(|slot| slot.open().is_some());
        let slot = slot.ok_or(MigrateError::NoSuchPath)?;
        if !slot.remote_cids.has_spare() {
            // The old connection ID on a new route would link the two (RFC 9000, section 9.5).
            return Err(MigrateError::NoCid);
        }
        self.move_route(now, id, tuple, 0);
        if let Some(path) = self.paths.open_path_mut(id) {
            path.route.amplification.set_validated();
        }
        Ok(())
    }

    /// Where the server would rather be reached, if it said so.
    pub(super) fn preferred_remote(&self, ipv4: bool) -> Option<SocketAddr> {
        let preferred = self.identity.peer.preferred_address.as_ref()?;
        if ipv4 {
            preferred.ipv4.map(SocketAddr::V4)
        } else {
            preferred.ipv6.map(SocketAddr::V6)
        }
    }

    /// Follows the server to its preferred address (RFC 9000, section 9.6).
    pub(super) fn follow_preferred_address(&mut self, now: Instant) {
        let Some(tuple) = self
            .paths
            .open_path(PathId::ZERO)
            .map(|path| path.route.tuple)
        else {
            return;
        };
        if let Some(remote) = self.preferred_remote(tuple.remote.is_ipv4())
            && self.config.migration
            && self.identity.side.is_client()
        {
            // Staying where it works is no failure.
            let _ = self.migrate_path(now, PathId::ZERO, Tuple { remote, ..tuple });
        }
    }

    /// Replaces the route of a path; `bytes` arrived by the new one already.
    #[cold]
    fn move_route(&mut self, now: Instant, id: PathId, tuple: Tuple, bytes: u64) {
        let Some(path) = self.paths.open_path(id) else {
            return;
        };
        let is_return = path.previous.as_ref().is_some_and(|old| old.tuple == tuple);
        let kept = path.previous.as_ref().map_or(0, |old| old.generation);
        let generation = path.route.generation.max(kept) + 1;
        let fresh = (!is_return).then(|| self.new_route(now, id, tuple, generation));
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        let (next, kept) = match fresh {
            Some(mut fresh) => {
                fresh.amplification.on_received(bytes);
                (Some(fresh), path.previous.take())
            }
            None => (path.previous.take(), None),
        };
        let Some(next) = next else { return };
        let mut old = path.exchange_route(next, self.config.ecn);
        if !path.route.validated {
            let pto = old.rtt.pto_base();
            path.route.validate_after(now, &mut self.rng, pto);
        }
        let may_return = old.validated;
        path.previous = if may_return {
            // The old address is asked too: if it still answers, the move was somebody else's doing
            // (RFC 9000, section 9.3.3).
            old.validate(now, &mut self.rng);
            Some(old)
        } else {
            kept.map(|kept| kept.with_measured(old))
        };
        self.change_cids(id, |cids| {
            if is_return {
                cids.move_back();
            } else {
                cids.move_to(tuple, may_return);
            }
        });
        self.sending.wake();
        self.outbox
            .observe(now, &Observation::RouteAssigned { path: id, tuple });
        self.notice(now, PathNotice::Moved { id, tuple });
    }

    /// Changes which connection IDs a path uses where (RFC 9000, section 9.5).
    fn change_cids(&mut self, id: PathId, change: impl FnOnce(&mut RemoteCids)) {
        let Some(slot) = self.paths.slot_mut(id) else {
            return;
        };
        let before: SmallVec<[ResetToken; 1]> = slot.remote_cids.tokens().collect();
        change(&mut slot.remote_cids);
        let after: SmallVec<[ResetToken; 1]> = slot.remote_cids.tokens().collect();
        self.control.paths_dirty |= slot.remote_cids.next_retirement().is_some();
        self.reroute_tokens(&before, &after);
    }

    pub(super) fn on_path_response(&mut self, now: Instant, id: PathId, data: [u8; 8]) {
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        let current = path
            .route
            .validation
            .as_mut()
            .and_then(|v| v.on_response(data, now));
        if let Some(rtt) = current {
            path.route.amplification.set_validated();
            let proven = path.route.validation.take();
            if proven.is_some_and(|validation| validation.needs_size_check()) {
                // The address is proven, but not yet that full-size packets pass.
                path.route.validate(now, &mut self.rng);
                return;
            }
            path.route.validated = true;
            let moved = path.previous.take().is_some();
            // Proof alone does not move a server (RFC 9000, section 9.3): something else must
            // follow, whether there is data or not.
            if moved && self.identity.side.is_client() {
                path.liveness.request_ping();
            }
            if !path.route.rtt.has_sample() {
                path.route.rtt.seed(rtt);
                path.route.update_pacing(now);
            }
            if moved {
                self.change_cids(id, RemoteCids::forget_kept);
            }
            self.sending.wake();
            self.fit_datagrams();
            self.announce_path(now, id);
            self.on_path_responded(now, id);
            return;
        }
        let previous = path
            .previous
            .as_mut()
            .and_then(|route| route.validation.as_mut());
        if previous.and_then(|v| v.on_response(data, now)).is_some() {
            // The old address answers; the new one is still being asked.
            if let Some(route) = &mut path.previous {
                route.validation = None;
            }
        }
    }

    /// Gives up on routes that did not answer.
    pub(super) fn handle_validation_timeout(&mut self, now: Instant, id: PathId) {
        let others = self.paths.open_count() > 1;
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        let failed = |route: &Route| route.validation.as_ref().is_some_and(|v| v.failed(now));
        if let Some(previous) = path.previous.as_mut().filter(|previous| failed(previous)) {
            // It was valid once, and is the one to return to should the new one fail as well
            // (RFC 9000, section 9.3.2).
            previous.validation = None;
        }
        if !failed(&path.route) {
            return;
        }
        if path.liveness.is_asked() && path.route.validated {
            // Nothing is acknowledged anywhere: this path may well be the first to come back. Where
            // there is no other any more, nobody needs to know.
            path.route.validation = None;
            if others {
                path.route.validate(now, &mut self.rng);
            } else {
                path.liveness.end_inquiry();
            }
            return;
        }
        match path.previous.take() {
            Some(previous) if previous.validated => {
                path.exchange_route(previous, self.config.ecn);
                path.route.validation = None;
                let tuple = path.route.tuple;
                self.change_cids(id, RemoteCids::move_back);
                self.sending.wake();
                self.outbox
                    .observe(now, &Observation::RouteAssigned { path: id, tuple });
                self.notice(now, PathNotice::Moved { id, tuple });
            }
            _ => {
                let code = TransportErrorCode::PATH_UNSTABLE_OR_POOR.0;
                self.abandon(now, id, code, false);
            }
        }
    }
}
