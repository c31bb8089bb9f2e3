//! Who is talking to whom, and what both sides announced of themselves.

use crate::cid_format::CidFormat;
use crate::config::TransportConfig;
use crate::error::TransportError;
use crate::handshake::token::{EndpointKeys, retry_integrity_tag};
use crate::path::MAX_OPEN_PATHS;
use crate::resumption::Tokens;
use anabranch_wire::params::TransportParameters;
use anabranch_wire::{ConnectionId, PathId, Side, TransportErrorCode, VERSION_1};
use std::net::SocketAddr;
use std::sync::Arc;

/// Who is about to talk to whom, as the endpoint knows it when a connection begins.
pub(crate) struct Parties {
    pub(crate) side: Side,
    /// Empty at a server.
    pub(crate) server_name: String,
    pub(crate) keys: Arc<EndpointKeys>,
    /// What further connection IDs of ours are made of.
    pub(crate) cids: CidFormat,
    /// The connection ID the client invented for its first Initial.
    pub(crate) original_dcid: ConnectionId,
    pub(crate) local_cid: ConnectionId,
    /// The peer's connection ID: the client's source ID, or the ID the client invented.
    pub(crate) remote_cid: ConnectionId,
    pub(crate) retry_scid: Option<ConnectionId>,
    /// What a client shows the server to prove its address.
    pub(crate) token: Vec<u8>,
}

/// Who is talking to whom.
#[derive(Debug)]
pub(crate) struct Identity {
    side: Side,
    server_name: String,
    keys: Arc<EndpointKeys>,
    cids: CidFormat,
    original_dcid: ConnectionId,
    handshake_remote: SocketAddr,
    handshake_scid: ConnectionId,
    peer_scid: Option<ConnectionId>,
    /// The source connection ID of the Retry packet, if there was one.
    retry_scid: Option<ConnectionId>,
    token: Vec<u8>,
    next_tokens: Tokens,
    peer: TransportParameters,
}

impl Identity {
    /// `remote` is the peer's address during the handshake.
    pub(crate) fn new(parties: Parties, remote: SocketAddr) -> Self {
        Self {
            side: parties.side,
            server_name: parties.server_name,
            keys: parties.keys,
            cids: parties.cids,
            original_dcid: parties.original_dcid,
            handshake_remote: remote,
            handshake_scid: parties.local_cid,
            peer_scid: parties.side.is_server().then_some(parties.remote_cid),
            retry_scid: parties.retry_scid,
            token: parties.token,
            next_tokens: Tokens::default(),
            peer: TransportParameters::default(),
        }
    }

    pub(crate) fn side(&self) -> Side {
        self.side
    }

    pub(crate) fn server_name(&self) -> &str {
        &self.server_name
    }

    /// What reset tokens and further connection IDs of ours are derived from.
    pub(crate) fn keys(&self) -> &EndpointKeys {
        &self.keys
    }

    /// What further connection IDs of ours are made of.
    pub(crate) fn cids(&self) -> &CidFormat {
        &self.cids
    }

    /// The connection ID the client invented for its first Initial.
    pub(crate) fn original_dcid(&self) -> ConnectionId {
        self.original_dcid
    }

    /// The peer's address during the handshake.
    pub(crate) fn handshake_remote(&self) -> SocketAddr {
        self.handshake_remote
    }

    /// Our connection ID during the handshake.
    pub(crate) fn handshake_scid(&self) -> ConnectionId {
        self.handshake_scid
    }

    /// The peer's connection ID during the handshake, once seen.
    pub(crate) fn peer_scid(&self) -> Option<ConnectionId> {
        self.peer_scid
    }

    /// The peer's first packet told its connection ID.
    pub(crate) fn learn_peer_cid(&mut self, scid: ConnectionId) {
        self.peer_scid = Some(scid);
    }

    /// The token to put into Initials.
    pub(crate) fn token(&self) -> &[u8] {
        &self.token
    }

    /// What the peer announced; defaults until known.
    pub(crate) fn peer(&self) -> &TransportParameters {
        &self.peer
    }

    /// Whether it is known what the peer announced.
    pub(crate) fn knows_peer(&self) -> bool {
        self.peer.initial_source_cid.is_some()
    }

    /// The peer announced these parameters, which [`Identity::check`] found sound.
    pub(crate) fn learn_peer(&mut self, params: TransportParameters) {
        self.peer = params;
    }

    /// The server gave a token for a later connection.
    pub(crate) fn keep_token(&mut self, token: &[u8]) {
        self.next_tokens.add(token);
    }

    /// The newest token for a later connection.
    pub(crate) fn next_token(&self) -> Option<&[u8]> {
        self.next_tokens.newest()
    }

    /// Takes a token for a later connection, which is used once.
    pub(crate) fn take_token(&mut self) -> Option<Vec<u8>> {
        self.next_tokens.take()
    }

    /// Whether this is a client that has heard nothing of its server yet.
    fn has_heard_nothing(&self) -> bool {
        self.side.is_client() && self.peer_scid.is_none() && self.retry_scid.is_none()
    }

    /// Believes a Retry packet if it is in time and authentic: the server wants to see our address
    /// proven first (RFC 9000, section 17.2.5). Returns whether it is believed.
    pub(crate) fn accept_retry(
        &mut self,
        scid: ConnectionId,
        token: &[u8],
        body: &[u8],
        tag: [u8; 16],
    ) -> bool {
        let is_sound = scid != self.original_dcid && !token.is_empty();
        let is_due = self.has_heard_nothing() && is_sound;
        if !is_due || retry_integrity_tag(&self.original_dcid, body) != tag {
            return false;
        }
        self.retry_scid = Some(scid);
        self.token = token.to_vec();
        true
    }

    /// Whether a version negotiation packet tells that the server does not speak our version. It is
    /// believed only before anything else arrived, and only if it echoes our connection ID and does
    /// not list the version in use (RFC 9000, section 6.2).
    pub(crate) fn is_refused(&self, scid: &[u8], versions: &[u8]) -> bool {
        let (list, rest) = versions.as_chunks();
        let is_answer = self.has_heard_nothing() && self.original_dcid.as_slice() == scid;
        is_answer && !list.is_empty() && rest.is_empty() && !list.contains(&VERSION_1.to_be_bytes())
    }

    /// Checks that the peer's parameters repeat the connection IDs of the packets, so that nobody
    /// between can have changed those (RFC 9000, section 7.3).
    pub(crate) fn check(&self, params: &TransportParameters) -> Result<(), TransportError> {
        let mut matches = params.initial_source_cid == self.peer_scid;
        if self.side.is_client() {
            matches &= params.original_dcid == Some(self.original_dcid);
            matches &= params.retry_source_cid == self.retry_scid;
        }
        if matches {
            Ok(())
        } else {
            Err(TransportError::new(
                TransportErrorCode::TRANSPORT_PARAMETER_ERROR,
                "connection IDs in the parameters differ from those of the packets",
            ))
        }
    }

    /// Where the server would rather be reached, if it said so.
    pub(crate) fn preferred_remote(&self, ipv4: bool) -> Option<SocketAddr> {
        let preferred = self.peer.preferred_address.as_ref()?;
        if ipv4 {
            preferred.ipv4.map(SocketAddr::V4)
        } else {
            preferred.ipv6.map(SocketAddr::V6)
        }
    }

    /// The path ID limit our parameters carry; `None` if the extension is off on our side.
    pub(crate) fn announced_path_limit(&self, max_paths: u32) -> Option<PathId> {
        announced_path_limit(max_paths, self.side, self.peer_scid)
    }

    /// What the endpoint declared for this connection, reset tokens apart: those are secrets.
    pub(crate) fn announced(&self, config: &TransportConfig) -> TransportParameters {
        // After a Retry the ID that the client invented is not kept here.
        let known = self.side.is_server() && self.retry_scid.is_none();
        let path_limit = self.announced_path_limit(config.max_paths);
        TransportParameters {
            original_dcid: known.then_some(self.original_dcid),
            initial_source_cid: Some(self.handshake_scid),
            retry_source_cid: self.retry_scid.filter(|_| self.side.is_server()),
            initial_max_path_id: path_limit,
            handshake_by_any_path: reads_handshake_by_any_path(self.side, path_limit),
            ..config.parameters()
        }
    }
}

/// Whether an endpoint with this limit announces `handshake_by_any_path`: a server that allows
/// further paths.
pub(crate) fn reads_handshake_by_any_path(side: Side, path_limit: Option<PathId>) -> bool {
    side.is_server() && path_limit > Some(PathId::ZERO)
}

/// What goes into `initial_max_path_id`: nothing if the extension is off, or if a server learns
/// that its client uses an empty connection ID (RFC 10069 forbids it then).
pub(crate) fn announced_path_limit(
    max_paths: u32,
    side: Side,
    peer_scid: Option<ConnectionId>,
) -> Option<PathId> {
    let peer_is_empty = side.is_server() && peer_scid.is_some_and(|cid| cid.is_empty());
    if max_paths == 0 || peer_is_empty {
        None
    } else {
        Some(PathId(max_paths.min(MAX_OPEN_PATHS as u32) - 1))
    }
}
