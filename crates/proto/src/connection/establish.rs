//! From the first Initial to a confirmed handshake.

use super::Connection;
use crate::error::TransportError;
use crate::event::{DropReason, Event, Observation};
use crate::handshake::Level;
use crate::time::Instant;
use crate::wire::params::TransportParameters;
use crate::wire::{ConnectionId, PathId, TransportErrorCode};

impl Connection {
    pub(super) fn on_crypto(
        &mut self,
        now: Instant,
        level: Level,
        offset: u64,
        data: &[u8],
    ) -> Result<(), TransportError> {
        let was_complete = self.handshake.is_complete();
        let had_session = self.handshake.has_session();
        self.handshake.on_crypto(level, offset, data)?;
        self.note_session(had_session);
        self.learn_peer_params(now)?;
        self.note_early_keys(now);
        if self.handshake.is_complete() && !was_complete {
            self.on_complete(now)?;
        }
        Ok(())
    }

    /// Reads the peer's transport parameters as soon as TLS has them.
    #[cold]
    fn learn_peer_params(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.identity.knows_peer() {
            return Ok(());
        }
        let Some(bytes) = self.handshake.peer_params() else {
            return Ok(());
        };
        let sender = self.identity.side().peer();
        let params = TransportParameters::decode(bytes, sender)
            .map_err(|error| TransportError::new(error.code(), error.to_string()))?;
        self.identity.check(&params)?;
        let local_limit = self.identity.announced_path_limit(self.config.max_paths);
        let empty = |cid: Option<ConnectionId>| cid.is_none_or(|cid| cid.is_empty());
        if self.config.max_paths > 0
            && params.initial_max_path_id.is_some()
            && (empty(self.identity.peer_scid()) || self.identity.handshake_scid().is_empty())
        {
            // RFC 10069: who offers the extension has connection IDs.
            return Err(TransportError::violation(
                "multipath with an empty connection ID",
            ));
        }
        if let (Some(local), Some(remote)) = (local_limit, params.initial_max_path_id) {
            self.paths.negotiate(local, remote);
        }
        self.settle_early_data(&params)?;
        self.streams.on_peer_params(&params);
        let limit = self.config.active_connection_id_limit;
        self.paths.on_parameters(&params, limit)?;
        self.one_way.set_exponent(params.ack_delay_exponent);
        self.identity.learn_peer(params);
        self.issue_cids();
        let (by_peer, params) = (true, self.identity.peer());
        self.outbox
            .observe(now, &Observation::Parameters { by_peer, params });
        Ok(())
    }

    #[cold]
    fn on_complete(&mut self, now: Instant) -> Result<(), TransportError> {
        if !self.identity.knows_peer() {
            return Err(TransportError::new(
                TransportErrorCode::crypto(109),
                "the peer sent no transport parameters",
            ));
        }
        let alpn = self.handshake.alpn();
        self.outbox
            .observe(now, &Observation::HandshakeComplete { alpn });
        if let Some(path) = self.paths.path_mut(PathId::ZERO) {
            path.set_validated();
        }
        self.outbox.tell(Event::Connected);
        self.conclude_early_data(now);
        if self.identity.side().is_server() {
            self.owed.handshake_done = true;
            self.queue_new_tokens(now);
            self.spare_first_window();
            self.on_confirmed(now);
        }
        self.announce_path(now, PathId::ZERO);
        self.issue_cids();
        self.note_capacity(now);
        self.replay_undecryptable(now);
        Ok(())
    }

    /// A token for each ticket, as both are good once; at least one.
    fn queue_new_tokens(&mut self, now: Instant) {
        let Some(path) = self.paths.path(PathId::ZERO) else {
            return;
        };
        let address = [(path.route().tuple().remote.ip(), None)];
        let (keys, rng) = (self.identity.keys(), &mut self.rng);
        let tokens = (0..self.handshake.tickets_given().max(1))
            .map(|_| keys.seal_new_token(now, &address, rng));
        let tokens = tokens.collect();
        self.owed.give_new_tokens(tokens);
        self.begin_memories();
    }

    /// The client's first request comes with the end of its handshake, or right behind it: a server
    /// asks for larger packets one round trip later, so that the whole initial window is there for
    /// the answer.
    fn spare_first_window(&mut self) {
        if let Some(path) = self.paths.path_mut(PathId::ZERO) {
            path.hold_mtu();
        }
    }

    pub(super) fn on_handshake_done(&mut self, now: Instant) -> Result<(), TransportError> {
        if self.identity.side().is_server() {
            return Err(TransportError::violation("HANDSHAKE_DONE from a client"));
        }
        self.on_confirmed(now);
        Ok(())
    }

    /// Both sides are known to be complete (RFC 9001, section 4.1.2).
    #[cold]
    pub(super) fn on_confirmed(&mut self, now: Instant) {
        if self.handshake.is_confirmed() {
            return;
        }
        self.handshake.set_confirmed();
        self.outbox.observe(now, &Observation::HandshakeConfirmed);
        self.outbox.tell(Event::Confirmed);
        self.discard_level(now, Level::Handshake);
        // The connection ID that the client invented stays routed for good: an Initial that was
        // delayed or repeated on the way would begin another connection.
        self.follow_preferred_address(now);
    }

    /// The first packet of the next level makes the keys of the one before useless
    /// (RFC 9001, section 4.9.1): sent by the client, received by the server.
    pub(super) fn on_level_sent(&mut self, now: Instant, level: Level) {
        if level == Level::Handshake && self.identity.side().is_client() {
            self.discard_level(now, Level::Initial);
        }
    }

    /// Drops keys, CRYPTO bytes and packets of a level for ever.
    #[cold]
    fn discard_level(&mut self, now: Instant, level: Level) {
        if self.handshake.has_keys(level) {
            self.outbox
                .observe(now, &Observation::KeysDiscarded { level });
        }
        self.forget_space(level);
        self.handshake.discard(level);
    }

    pub(super) fn on_level_used(&mut self, now: Instant, level: Level) {
        if level != Level::Handshake || self.identity.side().is_client() {
            return;
        }
        self.discard_level(now, Level::Initial);
        // Only the owner of the address can have read our Handshake keys' secrets
        // (RFC 9000, section 8.1).
        if let Some(path) = self.paths.path_mut(PathId::ZERO) {
            path.set_validated();
        }
    }

    /// The peer's choice of connection ID, from its first authenticated packet.
    #[cold]
    pub(super) fn learn_peer_cid(&mut self, scid: ConnectionId) {
        if self.identity.peer_scid().is_some() {
            return;
        }
        self.identity.learn_peer_cid(scid);
        self.paths.replace_initial_cid(scid);
    }

    /// The server wants to see our address proven first (RFC 9000, section 17.2.5).
    #[cold]
    pub(super) fn on_retry(
        &mut self,
        now: Instant,
        scid: ConnectionId,
        token: &[u8],
        body: &[u8],
        tag: [u8; 16],
    ) {
        if !self.identity.accept_retry(scid, token, body, tag) {
            let size = body.len() + tag.len();
            let why = DropReason::OutOfState;
            return self.outbox.on_dropped(now, PathId::ZERO, size, why);
        }
        self.paths.replace_initial_cid(scid);
        self.handshake.on_retry(&scid);
        self.forget_sent_initials(now);
        self.repeat_early_data();
    }

    /// What was sent under the old keys will never be acknowledged.
    fn forget_sent_initials(&mut self, now: Instant) {
        let Some(sent) = self.flights.restart() else {
            return;
        };
        if let Some(path) = self.paths.path_mut(PathId::ZERO) {
            path.forget_in_flight(&sent);
        }
        self.observe_metrics(now, PathId::ZERO);
    }
}
