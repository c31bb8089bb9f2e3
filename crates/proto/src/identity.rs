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

/// Who is talking to whom.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) side: Side,
    pub(crate) server_name: String,
    pub(crate) keys: Arc<EndpointKeys>,
    /// What further connection IDs of ours are made of.
    pub(crate) cids: CidFormat,
    /// The connection ID the client invented for its first Initial.
    pub(crate) original_dcid: ConnectionId,
    /// The peer's address during the handshake.
    pub(crate) handshake_remote: SocketAddr,
    /// Our connection ID during the handshake.
    pub(crate) handshake_scid: ConnectionId,
    /// The peer's connection ID during the handshake, once seen.
    pub(crate) peer_scid: Option<ConnectionId>,
    /// The source connection ID of the Retry packet, if there was one.
    pub(crate) retry_scid: Option<ConnectionId>,
    /// The token to put into Initials.
    pub(crate) token: Vec<u8>,
    /// For later connections.
    pub(crate) next_tokens: Tokens,
    /// What the peer announced; defaults until known.
    pub(crate) peer: TransportParameters,
}

impl Identity {
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
        TransportParameters {
            original_dcid: known.then_some(self.original_dcid),
            initial_source_cid: Some(self.handshake_scid),
            retry_source_cid: self.retry_scid.filter(|_| self.side.is_server()),
            initial_max_path_id: self.announced_path_limit(config.max_paths),
            ..config.parameters()
        }
    }
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
