//! A path whose far end moves, and proof that somebody is there (RFC 9000, sections 8.2 and 9).

use super::Connection;
use crate::datagram::Tuple;
use crate::event::{Observation, PathNotice};
use crate::path::MigrateError;
use crate::path::cids::RemoteCids;
use crate::path::migration::{Failed, Response};
use crate::time::Instant;
use crate::wire::{PathId, TransportErrorCode};
use std::net::IpAddr;

impl Connection {
    /// The newest packet of a path came from elsewhere: follow it, and ask for proof.
    pub(super) fn on_new_tuple(&mut self, now: Instant, id: PathId, tuple: Tuple, bytes: u64) {
        if self.identity.side().is_client() || !self.handshake.is_confirmed() {
            // A client decides itself by which socket it sends, and servers do not move.
            return;
        }
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        if path.may_follow(now, tuple) {
            self.move_route(now, id, tuple, bytes);
        }
    }

    /// Sends a path's packets along `tuple` from now on. The old route is kept until the new one is
    /// validated, and taken again if that fails.
    ///
    /// With multipath, prefer opening a path and abandoning the old one: data flows on throughout.
    /// This is for peers without the extension.
    ///
    /// # Errors
    /// See [`MigrateError`].
    pub fn migrate_path(
        &mut self,
        now: Instant,
        id: PathId,
        tuple: Tuple,
    ) -> Result<(), MigrateError> {
        self.migrate_path_from(now, id, tuple, None)
    }

    /// As [`migrate_path`](Self::migrate_path), for a driver that knows which address packets along
    /// `tuple` leave from, as it tells [`open_path_from`](Self::open_path_from). Otherwise it is
    /// the one of before if the socket is, or the path is not remembered.
    ///
    /// # Errors
    /// See [`MigrateError`].
    pub fn migrate_path_from(
        &mut self,
        now: Instant,
        id: PathId,
        tuple: Tuple,
        local_address: Option<IpAddr>,
    ) -> Result<(), MigrateError> {
        let preferred = self.identity.preferred_remote(tuple.remote.is_ipv4());
        if self.identity.side().is_server() {
            return Err(MigrateError::NotClient);
        }
        if self.life.is_over() || !self.handshake.is_confirmed() {
            return Err(MigrateError::NotYet);
        }
        if self.identity.peer().disable_active_migration && preferred != Some(tuple.remote) {
            return Err(MigrateError::Forbidden);
        }
        let slot = self.paths.slot(id).filter(|slot| slot.open().is_some());
        let slot = slot.ok_or(MigrateError::NoSuchPath)?;
        if !slot.remote_cids().has_spare() {
            // The old connection ID on a new route would link the two (RFC 9000, section 9.5).
            return Err(MigrateError::NoCid);
        }
        self.move_route(now, id, tuple, 0);
        if let Some(path) = self.paths.open_path_mut(id) {
            path.lift_amplification_limit();
            if let Some(address) = local_address {
                path.set_local_address(address);
            }
        }
        Ok(())
    }

    /// Follows the server to its preferred address (RFC 9000, section 9.6).
    pub(super) fn follow_preferred_address(&mut self, now: Instant) {
        let Some(tuple) = self
            .paths
            .open_path(PathId::ZERO)
            .map(|path| path.route().tuple())
        else {
            return;
        };
        if let Some(remote) = self.identity.preferred_remote(tuple.remote.is_ipv4())
            && self.config.migration
            && self.identity.side().is_client()
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
        let is_return = path.is_return(tuple);
        let generation = path.next_generation();
        let fresh = (!is_return).then(|| {
            let mut fresh = self.new_route(now, id, tuple, generation);
            fresh.on_datagram(bytes);
            if let Some(path) = self.paths.open_path(id) {
                fresh.follow(path.route());
            }
            fresh
        });
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        let moved = path.move_to(now, &mut self.rng, fresh, self.config.ecn);
        let Some(may_return) = moved else { return };
        self.paths.change_cids(id, |cids| {
            if is_return {
                cids.move_back();
            } else {
                cids.move_to(tuple, may_return);
            }
        });
        self.outbox
            .observe(now, &Observation::RouteAssigned { path: id, tuple });
        self.outbox.notice(now, PathNotice::Moved { id, tuple });
    }

    pub(super) fn on_path_response(&mut self, now: Instant, id: PathId, data: [u8; 8]) {
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        let is_client = self.identity.side().is_client();
        let response = path.on_response(now, &mut self.rng, data, is_client);
        let Response::Proven { moved } = response else {
            return;
        };
        if moved {
            self.paths.change_cids(id, RemoteCids::forget_kept);
        }
        self.fit_datagrams();
        self.announce_path(now, id);
        self.on_path_responded(now, id);
    }

    /// The far end of a path did not answer in time.
    #[cold]
    pub(super) fn on_validation_failed(&mut self, now: Instant, id: PathId, failed: Failed) {
        match failed {
            Failed::Returned(tuple) => {
                self.paths.change_cids(id, RemoteCids::move_back);
                self.outbox
                    .observe(now, &Observation::RouteAssigned { path: id, tuple });
                self.outbox.notice(now, PathNotice::Moved { id, tuple });
            }
            Failed::Lost => {
                let code = TransportErrorCode::PATH_UNSTABLE_OR_POOR.0;
                self.abandon(now, id, code, false);
            }
        }
    }
}
