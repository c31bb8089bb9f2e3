//! What observers are told beside the events of the parts.

use super::{Connection, Outbox};
use crate::event::{Observation, Subject};
use crate::time::Instant;
use crate::wire::PathId;
use crate::wire::params::TransportParameters;

impl Outbox {
    pub(super) fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.observe(now, observation);
        }
    }

    /// Whether it is worth collecting what only an observer wants.
    pub(super) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }
}

impl Connection {
    /// A peer's first packet could be opened, so this is no noise: from now on a server may spend
    /// what an observer costs, such as a file.
    pub(super) fn greet(&mut self, now: Instant) {
        if self.identity.side.is_server() {
            self.invite_observer(now);
        }
    }

    /// Asks the configuration for an observer.
    #[cold]
    pub(super) fn invite_observer(&mut self, now: Instant) {
        let Some(factory) = &self.config.observer else {
            return;
        };
        let Some(path) = self.paths.path(PathId::ZERO) else {
            return;
        };
        self.outbox.observer = factory.build(&Subject {
            side: self.identity.side,
            original_dcid: self.identity.original_dcid,
            tuple: path.route().tuple,
            began: now,
        });
        self.introduce();
    }

    /// Tells a new observer what it cannot have seen.
    pub(super) fn introduce(&mut self) {
        let Self {
            identity,
            outbox,
            paths,
            clock,
            ..
        } = self;
        if !outbox.is_observed() {
            return;
        }
        let Some(slot) = paths.open().next() else {
            return;
        };
        let Some(path) = slot.open() else { return };
        let remote_cid = slot.remote_cids.active().map(|(_, cid, _)| cid);
        let started = Observation::Started {
            side: identity.side,
            original_dcid: identity.original_dcid,
            local_cid: identity.handshake_scid,
            remote_cid: remote_cid.unwrap_or_default(),
            tuple: path.route().tuple,
        };
        outbox.observe(*clock, &started);
        for slot in paths.open() {
            let Some(path) = slot.open() else { continue };
            let (path, tuple) = (slot.id, path.route().tuple);
            outbox.observe(*clock, &Observation::RouteAssigned { path, tuple });
        }
        self.outbox.observed_keys = self.handshake.keys_updated();
        let params = self.announced_parameters();
        let (by_peer, params) = (false, &params);
        self.outbox
            .observe(self.clock, &Observation::Parameters { by_peer, params });
        if self.identity.peer.initial_source_cid.is_some() {
            let (by_peer, params) = (true, &self.identity.peer);
            self.outbox
                .observe(self.clock, &Observation::Parameters { by_peer, params });
        }
    }

    /// What the endpoint declared for this connection, reset tokens apart: those are secrets.
    fn announced_parameters(&self) -> TransportParameters {
        let identity = &self.identity;
        // After a Retry the ID that the client invented is not kept here.
        let known = identity.side.is_server() && identity.retry_scid.is_none();
        TransportParameters {
            original_dcid: known.then_some(identity.original_dcid),
            initial_source_cid: Some(identity.handshake_scid),
            retry_source_cid: identity.retry_scid.filter(|_| identity.side.is_server()),
            initial_max_path_id: self.announced_path_limit(),
            ..self.config.parameters()
        }
    }

    /// Reports a key update, if there was one.
    pub(super) fn observe_keys(&mut self, now: Instant, by_peer: bool) {
        if !self.outbox.is_observed() {
            return;
        }
        let generation = self.handshake.keys_updated();
        if generation != self.outbox.observed_keys {
            self.outbox.observed_keys = generation;
            let update = Observation::KeyUpdated {
                generation,
                by_peer,
            };
            self.outbox.observe(now, &update);
        }
    }
}
