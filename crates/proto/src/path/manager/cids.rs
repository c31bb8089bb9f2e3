//! Connection IDs of all paths, and what the endpoint is to route because of them.

use super::{Manager, Routing, Slot};
use crate::cid_format::CidFormat;
use crate::error::TransportError;
use crate::handshake::token::EndpointKeys;
use crate::path::cids::RemoteCids;
use crate::rng::Rng;
use anabranch_wire::frame::NewConnectionId;
use anabranch_wire::params::TransportParameters;
use anabranch_wire::{ConnectionId, PathId, ResetToken};
use smallvec::SmallVec;

/// Connection IDs issued in advance for one path. More would only help a peer that rotates often;
/// noq takes at most 5.
const CIDS_PER_PATH: u64 = 2;

/// What new connection IDs are made of.
pub(crate) struct CidSource<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) keys: &'a EndpointKeys,
    pub(crate) format: &'a CidFormat,
}

impl CidSource<'_> {
    fn draw(&mut self) -> (ConnectionId, ResetToken) {
        let cid = self.format.draw(self.rng);
        (cid, self.keys.reset_token(&cid))
    }
}

impl Manager {
    /// A connection ID of path 0 that the peer knows or learns without a frame.
    pub(crate) fn adopt_cid(&mut self, cid: ConnectionId, token: ResetToken) {
        if let Some(mut slot) = self.slot_mut(PathId::ZERO) {
            slot.local_cids.adopt(cid, token);
        }
        self.routing.push_back(Routing::AddCid(cid, PathId::ZERO));
    }

    /// Keeps the peer supplied with connection IDs for every path it may use, lowest IDs first, and
    /// as many as it takes: `peer_limit`.
    #[cold]
    pub(crate) fn issue_cids(&mut self, source: &mut CidSource<'_>, peer_limit: u64) {
        let spare = CIDS_PER_PATH.min(peer_limit) as usize;
        let (usable, multipath) = (self.usable_limit(), self.is_multipath());
        for at in 0..self.slots.len() {
            let mut slot = self.change(at);
            if slot.closing.is_some() || slot.id > usable || (slot.id.0 > 0 && !multipath) {
                continue;
            }
            // An ID that may never be used gets one connection ID; an open path a spare for moving.
            let wanted = if slot.path.is_some() { spare } else { 1 };
            let (id, before) = (slot.id, slot.local_cids.live().len());
            for _ in before..wanted {
                let (cid, token) = source.draw();
                slot.local_cids.issue(cid, token);
            }
            drop(slot);
            let live = self.slots[at].local_cids.live().skip(before);
            let new = live.map(|local| Routing::AddCid(local.cid, id));
            self.routing.extend(new);
        }
    }

    /// The peer issued a connection ID; of those for one path it may keep `limit` in use.
    pub(crate) fn on_new_cid(
        &mut self,
        frame: &NewConnectionId,
        limit: u64,
    ) -> Result<(), TransportError> {
        let is_elsewhere =
            |slot: &Slot| slot.id != frame.path && slot.remote_cids.contains(&frame.cid);
        if self.slots().any(is_elsewhere) {
            return Err(TransportError::violation(
                "connection ID belongs to another path",
            ));
        }
        let slot = self.slot_mut(frame.path);
        let Some(mut slot) = slot.filter(|slot| !slot.is_closing()) else {
            return Ok(());
        };
        let before: Tokens = slot.reset_tokens().collect();
        slot.remote_cids.on_new(frame, limit)?;
        let after: Tokens = slot.reset_tokens().collect();
        drop(slot);
        self.reroute_tokens(&before, &after);
        Ok(())
    }

    /// The peer gives a connection ID back; returns whether its path exists, which then needs
    /// another.
    pub(crate) fn on_retired_cid(
        &mut self,
        path: PathId,
        sequence: u64,
    ) -> Result<bool, TransportError> {
        let Some(mut slot) = self.slot_mut(path) else {
            return Ok(false);
        };
        let retired = slot.local_cids.on_retire(sequence)?;
        drop(slot);
        self.routing.extend(retired.map(Routing::RemoveCid));
        Ok(true)
    }

    /// Changes which of the peer's connection IDs a path uses where (RFC 9000, section 9.5).
    pub(crate) fn change_cids(&mut self, id: PathId, change: impl FnOnce(&mut RemoteCids)) {
        let Some(mut slot) = self.slot_mut(id) else {
            return;
        };
        let before: Tokens = slot.remote_cids.tokens().collect();
        change(&mut slot.remote_cids);
        let after: Tokens = slot.remote_cids.tokens().collect();
        drop(slot);
        self.reroute_tokens(&before, &after);
    }

    /// The server chose its own connection ID, by its first packet or by Retry.
    pub(crate) fn replace_initial_cid(&mut self, cid: ConnectionId) {
        if let Some(mut slot) = self.slot_mut(PathId::ZERO) {
            slot.remote_cids.replace_initial(cid);
        }
    }

    /// Takes what the peer's parameters say about path 0.
    pub(crate) fn on_parameters(
        &mut self,
        params: &TransportParameters,
        cid_limit: u64,
    ) -> Result<(), TransportError> {
        let Some(mut slot) = self.slot_mut(PathId::ZERO) else {
            return Ok(());
        };
        if let Some(token) = params.reset_token {
            slot.remote_cids.set_initial_token(token);
        }
        if let Some(preferred) = &params.preferred_address {
            let frame = NewConnectionId {
                path: PathId::ZERO,
                sequence: 1,
                retire_prior_to: 0,
                cid: preferred.cid,
                reset_token: preferred.reset_token,
            };
            slot.remote_cids.on_new(&frame, cid_limit)?;
        }
        if let Some(path) = &mut slot.path {
            path.set_peer_limit(params.max_udp_payload_size);
        }
        drop(slot);
        let token = params.reset_token.map(Routing::AddToken);
        self.routing.extend(token);
        Ok(())
    }

    /// Whether a datagram that ends so is a stateless reset.
    pub(crate) fn knows_token(&self, token: ResetToken) -> bool {
        let mut tokens = self.slots().flat_map(Slot::reset_tokens);
        tokens.any(|known| known == token)
    }

    #[cold]
    fn reroute_tokens(&mut self, before: &[ResetToken], after: &[ResetToken]) {
        let gone = before.iter().filter(|token| !after.contains(token));
        self.routing
            .extend(gone.map(|token| Routing::RemoveToken(*token)));
        let new = after.iter().filter(|token| !before.contains(token));
        self.routing
            .extend(new.map(|token| Routing::AddToken(*token)));
    }

    /// The next change of what is to be routed here.
    pub(crate) fn poll_routing(&mut self) -> Option<Routing> {
        self.routing.pop_front()
    }

    /// The changes that take back everything that was routed here.
    pub(crate) fn last_routing(&self) -> impl Iterator<Item = Routing> + '_ {
        self.slots().flat_map(|slot| {
            let cids = slot.local_cids.live();
            let cids = cids.map(|local| Routing::RemoveCid(local.cid));
            cids.chain(slot.remote_cids.tokens().map(Routing::RemoveToken))
        })
    }
}

type Tokens = SmallVec<[ResetToken; 1]>;
