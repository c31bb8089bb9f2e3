//! What observers are told beside the events of the parts.

use super::Connection;
use crate::event::{Observation, Subject};
use crate::time::Instant;
use crate::wire::PathId;

impl Connection {
    /// A peer's first packet could be opened, so this is no noise: from now on a server may spend
    /// what an observer costs, such as a file.
    pub(super) fn greet(&mut self, now: Instant) {
        if self.identity.side().is_server() {
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
        let observer = factory.build(&Subject {
            side: self.identity.side(),
            original_dcid: self.identity.original_dcid(),
            tuple: path.route().tuple(),
            began: now,
        });
        let keys = self.handshake.keys_updated();
        self.outbox.set_observer(observer, keys);
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
        let remote_cid = slot.remote_cids().active().map(|(_, cid, _)| cid);
        let started = Observation::Started {
            side: identity.side(),
            original_dcid: identity.original_dcid(),
            local_cid: identity.handshake_scid(),
            remote_cid: remote_cid.unwrap_or_default(),
            tuple: path.route().tuple(),
        };
        outbox.observe(*clock, &started);
        for slot in paths.open() {
            let Some(path) = slot.open() else { continue };
            let (path, tuple) = (slot.id(), path.route().tuple());
            outbox.observe(*clock, &Observation::RouteAssigned { path, tuple });
        }
        let params = self.identity.announced(&self.config);
        let (by_peer, params) = (false, &params);
        self.outbox
            .observe(self.clock, &Observation::Parameters { by_peer, params });
        if self.identity.knows_peer() {
            let (by_peer, params) = (true, self.identity.peer());
            self.outbox
                .observe(self.clock, &Observation::Parameters { by_peer, params });
        }
    }

    /// Reports a key update, if there was one.
    pub(super) fn observe_keys(&mut self, now: Instant, by_peer: bool) {
        let generation = self.handshake.keys_updated();
        self.outbox.observe_keys(now, generation, by_peer);
    }
}
