//! A path whose far end moves, and proof that somebody is there (RFC 9000, sections 8.2 and 9).

use super::Connection;
use super::receive::Arrival;
use crate::datagram::Tuple;
use crate::event::PathNotice;
use crate::path::route::Route;
use crate::time::Instant;
use crate::wire::{PathId, TransportErrorCode};

impl Connection {
    /// The newest packet of a path came from elsewhere: follow it, and ask for proof.
    pub(super) fn on_new_tuple(&mut self, now: Instant, id: PathId, tuple: Tuple, bytes: u64) {
        if self.identity.side.is_client()
            || !self.config.migration
            || !self.handshake.is_confirmed()
        {
            // A client decides itself by which socket it sends, and servers do not move.
            return;
        }
        let config = self.config.clone();
        let Some(slot) = self.paths.slot_mut(id) else {
            return;
        };
        let Some(path) = slot.path.as_mut() else {
            return;
        };
        let generation = path
            .route
            .generation
            .max(path.previous.as_ref().map_or(0, |r| r.generation))
            + 1;
        let known = path
            .previous
            .as_ref()
            .is_some_and(|previous| previous.tuple == tuple);
        let mut route = match path.previous.take() {
            // It came back to where it was.
            Some(previous) if known => previous,
            kept => {
                let mut fresh = Route::new(&config, &mut self.rng, now, id, tuple, generation);
                if fresh.tuple.remote.ip() == path.route.tuple.remote.ip() {
                    fresh = Route::rebound(&path.route, fresh);
                }
                path.previous = kept;
                fresh.amplification.on_received(bytes);
                fresh
            }
        };
        if !route.validated {
            route.validate(now, &mut self.rng);
        }
        let mut old = std::mem::replace(&mut path.route, route);
        if old.validated {
            // The old address is asked too: if it still answers, the move was somebody else's doing
            // (RFC 9000, section 9.3.3).
            old.validate(now, &mut self.rng);
            path.previous = Some(old);
        }
        if slot.remote_cids.rotate().is_some() {
            self.control.paths_dirty = true;
        }
        self.sending.wake();
        self.notice(now, PathNotice::Moved { id, tuple });
    }

    pub(super) fn on_path_challenge(&mut self, arrival: &Arrival, data: [u8; 8]) {
        let Some(path) = self.paths.path_mut(arrival.path) else {
            return;
        };
        for route in [Some(&mut path.route), path.previous.as_mut()]
            .into_iter()
            .flatten()
        {
            // A client answers where it sends from, whichever socket the question came by.
            if route.tuple == arrival.tuple || route.tuple.remote == arrival.tuple.remote {
                route.responses.push(data);
                return;
            }
        }
    }

    pub(super) fn on_path_response(&mut self, now: Instant, id: PathId, data: [u8; 8]) {
        let Some(path) = self.paths.path_mut(id) else {
            return;
        };
        let current = path
            .route
            .validation
            .as_mut()
            .and_then(|v| v.on_response(data, now));
        if let Some(rtt) = current {
            let small = path
                .route
                .validation
                .as_ref()
                .is_some_and(|v| !v.is_validated());
            path.route.amplification.set_validated();
            if small {
                // The address is proven but not yet that full-size packets pass.
                return;
            }
            path.route.validation = None;
            path.route.validated = true;
            path.previous = None;
            if !path.route.rtt.has_sample() {
                path.route.rtt.seed(rtt);
                path.route.update_pacing(now);
            }
            self.sending.wake();
            self.announce_path(now, id);
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
        let Some(path) = self.paths.path_mut(id) else {
            return;
        };
        let failed = |route: &Route| route.validation.as_ref().is_some_and(|v| v.failed(now));
        if path.previous.as_ref().is_some_and(failed) {
            path.previous = None;
        }
        if !failed(&path.route) {
            return;
        }
        match path.previous.take() {
            Some(previous) if previous.validated => {
                path.route = previous;
                path.route.validation = None;
                let tuple = path.route.tuple;
                self.notice(now, PathNotice::Moved { id, tuple });
            }
            _ => {
                let code = TransportErrorCode::PATH_UNSTABLE_OR_POOR.0;
                self.abandon(now, id, code, false);
            }
        }
    }
}
