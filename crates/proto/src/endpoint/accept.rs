//! Beginnings: connecting, accepting, and what is answered without a connection.

use super::admission::{Admission, Counted, Origin};
use super::contain::contained;
use super::{Endpoint, Handle, Member};
use crate::cid_format::random_cid;
use crate::config::{ClientConfig, IncomingPolicy, RetryPolicy, ServerConfig, TransportConfig};
use crate::congestion::resume::MEMORY_LIFETIME;
use crate::connection::{Beginning, Connection};
use crate::datagram::{Ecn, Transmit, Tuple};
use crate::handshake::token::{NewToken, TokenError, TokenId, retry_integrity_tag};
use crate::handshake::{Handshake, Level};
use crate::identity::{Parties, announced_path_limit, reads_handshake_by_any_path};
use crate::known_paths::{Ends, Recollection};
use crate::path::manager::Routing;
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use crate::tls;
use crate::wire::header::{self, Header};
use crate::wire::params::{PreferredAddress, TransportParameters};
use crate::wire::{
    ConnectionId, MIN_DATAGRAM_SIZE, PathId, ResetToken, Side, TransportErrorCode, VERSION_1,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// Answers waiting to be sent without a connection; more are dropped.
const MAX_STATELESS_QUEUE: usize = 64;

/// Retry packets waiting to be sent; more are dropped. More than a driver hands over in one go.
const MAX_RETRY_QUEUE: usize = 1024;

/// A stateless reset is at least this long, to look like a packet (RFC 9000, section 10.3).
const MIN_RESET: usize = 21;

/// Why a connection could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// TLS refuses the configuration or the server's name.
    #[error("{0}")]
    Tls(#[from] tls::ConfigError),
    /// Every handle is in use.
    #[error("too many connections")]
    TooMany,
}

/// Answers that need no connection, sent at a bounded rate but for Retry: whoever makes us use up
/// that rate, with packets of a few bytes and any source, must not keep clients out. A Retry is
/// several times smaller than what asked for it, and costs less than reading a packet.
#[derive(Debug)]
pub(super) struct Stateless {
    queue: VecDeque<(Tuple, Vec<u8>)>,
    retries: VecDeque<(Tuple, Vec<u8>)>,
    per_second: u32,
    left: u32,
    since: Instant,
    /// The last datagram was one of these.
    had_its_turn: bool,
}

impl Stateless {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            retries: VecDeque::new(),
            per_second,
            left: per_second,
            since: Instant::ZERO,
            had_its_turn: false,
        }
    }

    /// Whether one more answer may be sent in this second.
    fn has_budget(&mut self, now: Instant) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            (self.since, self.left) = (now, self.per_second);
        }
        self.left > 0 && self.queue.len() < MAX_STATELESS_QUEUE
    }

    fn push(&mut self, now: Instant, tuple: Tuple, bytes: Vec<u8>) {
        if self.has_budget(now) {
            self.left -= 1;
            self.queue.push_back((tuple, bytes));
        }
    }

    fn push_retry(&mut self, tuple: Tuple, bytes: Vec<u8>) {
        if self.retries.len() < MAX_RETRY_QUEUE {
            self.retries.push_back((tuple, bytes));
        }
    }

    /// As [`poll_transmit`](Self::poll_transmit), but every other time nothing: connections take
    /// turns with as many answers as somebody wants to provoke.
    pub(super) fn poll_in_turn(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        if std::mem::take(&mut self.had_its_turn) {
            return None;
        }
        let transmit = self.poll_transmit(buf);
        self.had_its_turn = transmit.is_some();
        transmit
    }

    pub(super) fn poll_transmit(&mut self, buf: &mut Vec<u8>) -> Option<Transmit> {
        let retry = self.retries.pop_front();
        let (tuple, bytes) = retry.or_else(|| self.queue.pop_front())?;
        buf.extend_from_slice(&bytes);
        Some(Transmit::single(tuple, bytes.len()))
    }
}

/// Somebody who wants to connect, by its first Initial.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) tuple: Tuple,
    /// The connection ID it invented for the server.
    pub(super) dcid: ConnectionId,
    scid: ConnectionId,
    pub(super) proof: Proof,
}

/// What a token proved.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    /// The `NEW_TOKEN` token that did, which is good once.
    token: Option<TokenId>,
    /// What that token says of paths, the one it came by first.
    earlier: Recollection,
    original_dcid: ConnectionId,
    pub(super) retry_scid: Option<ConnectionId>,
    pub(super) address_validated: bool,
}

impl Proof {
    /// That of a client without a token.
    fn none(dcid: ConnectionId) -> Self {
        Self {
            token: None,
            earlier: Recollection::default(),
            original_dcid: dcid,
            retry_scid: None,
            address_validated: false,
        }
    }
}

impl Endpoint {
    /// Starts a connection along `tuple` to the server called `server_name`.
    pub fn connect(
        &mut self,
        now: Instant,
        config: ClientConfig,
        tuple: Tuple,
        server_name: &str,
    ) -> Result<Handle, ConnectError> {
        let handle = self.free_handle().ok_or(ConnectError::TooMany)?;
        let transport = TransportConfig::bounded(&config.transport);
        let mut rng = self.rng.fork();
        let local_cid = self.config.cids.draw(&mut rng);
        let remote_cid = random_cid(&mut rng, 8);
        let params = TransportParameters {
            initial_source_cid: Some(local_cid),
            initial_max_path_id: announced_path_limit(transport.max_paths, Side::Client, None),
            ..transport.parameters()
        };
        let mut bytes = Vec::new();
        params.encode(&mut bytes, Side::Client);
        let resume = config.resume.as_ref();
        let resume = resume.filter(|resume| resume.state.fits(&config.tls, server_name));
        let handshake = Handshake::client(&config.tls, server_name, bytes, &remote_cid, resume)?;
        let handshake = self.set_up(handshake);
        let mut token = config.token;
        if let Some(resume) = resume.filter(|_| token.is_empty()) {
            token.clone_from(&resume.state.token);
        }
        let mut connection = Connection::new(
            now,
            Beginning {
                parties: Parties {
                    side: Side::Client,
                    server_name: server_name.to_owned(),
                    keys: self.keys.clone(),
                    cids: self.config.cids.clone(),
                    original_dcid: remote_cid,
                    local_cid,
                    remote_cid,
                    retry_scid: None,
                    token,
                },
                config: transport,
                handshake,
                tuple,
                earlier: resume.map_or_else(Recollection::default, |it| it.recollection(now)),
                local_address: config.local_address,
                preferred_cid: None,
                address_validated: true,
                rng,
                send_budget: None,
                receive_budget: self.config.receive_budget.clone(),
            },
        );
        if let Some(resume) = resume.filter(|_| connection.may_send_early_data()) {
            connection.offer_early_data(resume.state.remembered.clone());
        }
        self.connections.insert(handle, connection.into());
        self.touch(handle);
        Ok(handle)
    }

    /// A handshake as this endpoint wants its connections protected.
    #[cfg(feature = "null-protection")]
    fn set_up(&self, mut handshake: Handshake) -> Handshake {
        handshake.set_null_protection(self.is_unprotected);
        handshake
    }

    /// Without the feature there is nothing to choose.
    #[cfg(not(feature = "null-protection"))]
    #[expect(
        clippy::unused_self,
        reason = "with the feature it is the endpoint that knows"
    )]
    fn set_up(&self, handshake: Handshake) -> Handshake {
        handshake
    }

    fn free_handle(&mut self) -> Option<Handle> {
        for _ in 0..=self.connections.len() {
            let handle = Handle(self.next_handle);
            self.next_handle = self.next_handle.wrapping_add(1);
            if !self.connections.contains_key(&handle) {
                return Some(handle);
            }
        }
        None
    }

    /// A datagram for no connection of ours.
    pub(super) fn handle_unknown(
        &mut self,
        now: Instant,
        tuple: Tuple,
        ecn: Option<Ecn>,
        data: &mut [u8],
    ) {
        match header::parse(data, self.config.cids.length()) {
            Ok(Header::Initial {
                version: VERSION_1,
                dcid,
                scid,
                token,
                ..
            }) => {
                let token = token.to_vec();
                self.handle_first_initial(now, tuple, ecn, (dcid, scid, &token), data);
            }
            Ok(Header::Long {
                version: VERSION_1,
                dcid,
                ..
            }) => {
                // Early data of a client that waits.
                self.waiting_room.keep(tuple, dcid, ecn, data);
            }
            Ok(Header::Unsupported { dcid, scid, .. })
                if self.server.is_some() && data.len() >= MIN_DATAGRAM_SIZE =>
            {
                let mut reply = Vec::new();
                let first: [u8; 1] = self.rng.array();
                header::put_version_negotiation(&mut reply, scid, dcid, &[VERSION_1], first[0]);
                self.stateless.push(now, tuple, reply);
            }
            Ok(Header::Short { dcid, .. }) => self.send_reset(now, tuple, dcid, data.len()),
            _ => {}
        }
    }

    /// Tells a peer that keeps talking to a connection we lost that it is gone.
    fn send_reset(&mut self, now: Instant, tuple: Tuple, dcid: ConnectionId, trigger: usize) {
        // Always shorter than what triggered it, so that two endpoints cannot keep resetting each
        // other (RFC 9000, section 10.3.3).
        let Some(length) = trigger.checked_sub(1).filter(|length| *length >= MIN_RESET) else {
            return;
        };
        let mut reply = vec![0; length.min(42)];
        self.rng.fill(&mut reply);
        reply[0] = (reply[0] & 0x3f) | header::FIXED_BIT;
        let ResetToken(token) = self.keys.reset_token(&dcid);
        let at = reply.len() - token.len();
        reply[at..].copy_from_slice(&token);
        self.stateless.push(now, tuple, reply);
    }

    fn handle_first_initial(
        &mut self,
        now: Instant,
        tuple: Tuple,
        ecn: Option<Ecn>,
        (dcid, scid, token): (ConnectionId, ConnectionId, &[u8]),
        data: &mut [u8],
    ) {
        let Some(server) = self.server.clone() else {
            return;
        };
        // RFC 9000, sections 14.1 and 7.2.
        if data.len() < MIN_DATAGRAM_SIZE || dcid.len() < 8 {
            return;
        }
        if self.waiting_room.keep(tuple, dcid, ecn, data) {
            return;
        }
        let checked = self.check_token(now, tuple, dcid, token);
        let client = Client {
            tuple,
            dcid,
            scid,
            proof: checked.clone().unwrap_or_else(|| Proof::none(dcid)),
        };
        if checked.is_none() {
            self.turn_away(now, &server, &client, TransportErrorCode::INVALID_TOKEN);
            return;
        }
        let admission = self.admission(&server, &client);
        let asks = server.incoming == IncomingPolicy::Ask;
        let must_prove = self.wants_retry(&server) || asks && self.waiting_room.is_crowded();
        let is_proven = client.proof.address_validated;
        if !is_proven && (must_prove || admission == Admission::ProveAddress) {
            self.send_retry(now, &client);
        } else if admission != Admission::Welcome {
            let code = TransportErrorCode::CONNECTION_REFUSED;
            self.turn_away(now, &server, &client, code);
        } else if asks {
            self.waiting_room.enter(now, client, ecn, data);
        } else {
            let first = [(ecn, data)];
            self.begin(now, &server, &client, first);
        }
    }

    /// Whether a client may have a connection, as far as numbers go.
    pub(super) fn admission(&self, server: &ServerConfig, client: &Client) -> Admission {
        let origin = Origin::from(client.tuple.remote);
        let (proven, most) = (
            client.proof.address_validated,
            server.max_connections_per_address,
        );
        match self.crowds.admit(origin, proven, most) {
            Admission::Welcome if self.connections.len() >= server.max_connections => {
                Admission::Refused
            }
            admission => admission,
        }
    }

    /// Starts a server's connection with the first datagrams of its client; none if they are noise.
    pub(super) fn begin<'a>(
        &mut self,
        now: Instant,
        server: &Arc<ServerConfig>,
        client: &Client,
        datagrams: impl IntoIterator<Item = (Option<Ecn>, &'a mut [u8])>,
    ) -> Option<Handle> {
        let contain = self.config.contain_panics;
        let handle = contained(contain, || self.create(now, server, client)).flatten()?;
        for (ecn, data) in datagrams {
            self.work(handle, |connection| {
                connection.handle_datagram(now, client.tuple, ecn, PathId::ZERO, data);
            });
        }
        let heard = |member: &Member| member.has_failed || member.connection.has_heard_peer();
        if !self.connections.get(&handle).is_some_and(heard) {
            // Noise that looks like an Initial must not take the place of a client.
            self.forget(handle);
            return None;
        }
        if let Some(token) = client.proof.token {
            self.spent_tokens.spend(now, token);
        }
        Some(handle)
    }

    /// What a client's token proves; none if it is to be refused for it.
    fn check_token(
        &self,
        now: Instant,
        tuple: Tuple,
        dcid: ConnectionId,
        token: &[u8],
    ) -> Option<Proof> {
        let mut proof = Proof::none(dcid);
        if token.is_empty() {
            return Some(proof);
        }
        match self.keys.open_retry(now, token, tuple.remote, &dcid) {
            Ok(original_dcid) => Some(Proof {
                token: None,
                earlier: Recollection::default(),
                original_dcid,
                retry_scid: Some(dcid),
                address_validated: true,
            }),
            // Not from a Retry, so perhaps from an earlier connection; a useless one of those does
            // no harm (RFC 9000, section 8.1.3).
            Err(TokenError::NotRetry) => {
                let opened = self.keys.open_new_token(now, token, tuple.remote.ip());
                let is_fresh = |token: &NewToken| !self.spent_tokens.is_spent(token.id);
                if let Some(token) = opened.ok().filter(is_fresh) {
                    proof.token = Some(token.id);
                    let until = token.id.issued + MEMORY_LIFETIME;
                    proof.earlier = Recollection::new(token.paths, until);
                    proof.address_validated = true;
                }
                Some(proof)
            }
            Err(_) => None,
        }
    }

    fn wants_retry(&self, server: &ServerConfig) -> bool {
        match server.retry {
            RetryPolicy::Never => false,
            RetryPolicy::Always => true,
            RetryPolicy::WhenBusy => self.handshaking.len() >= server.busy_handshakes,
        }
    }

    pub(super) fn send_retry(&mut self, now: Instant, client: &Client) {
        let scid = self.config.cids.draw_for_retry(&mut self.rng);
        let remote = client.tuple.remote;
        let token = self
            .keys
            .seal_retry(now, remote, &client.dcid, &scid, &mut self.rng);
        let mut reply = Vec::new();
        header::put_retry(&mut reply, &client.scid, &scid, &token);
        let tag = retry_integrity_tag(&client.dcid, &reply);
        reply.extend_from_slice(&tag);
        self.stateless.push_retry(client.tuple, reply);
    }

    /// Answers an Initial with `CONNECTION_CLOSE`, without keeping anything.
    pub(super) fn turn_away(
        &mut self,
        now: Instant,
        server: &ServerConfig,
        client: &Client,
        code: TransportErrorCode,
    ) {
        if !self.stateless.has_budget(now) {
            return;
        }
        let Ok(mut handshake) = Handshake::server(&server.tls, Vec::new(), &client.dcid) else {
            return;
        };
        let scid = self.config.cids.draw(&mut self.rng);
        let mut packet = Vec::new();
        let kind = header::LongType::Initial;
        let long = header::put_long(&mut packet, kind, &client.scid, &scid, &[], 0, 1);
        let close = crate::wire::frame::ConnectionClose {
            application: false,
            code: code.0,
            frame_type: 0,
            reason: &[],
        };
        let frame = crate::wire::frame::Frame::ConnectionClose(close);
        frame.encode(&mut packet, crate::wire::frame::Form::Plain);
        let end = packet.len() + Handshake::TAG_LEN;
        long.set_length(&mut packet, end);
        let sealed = handshake.seal(
            Level::Initial,
            PathId::ZERO,
            0,
            &mut packet,
            0,
            long.pn_offset,
            1,
        );
        if sealed.is_ok() {
            self.stateless.push(now, client.tuple, packet);
        }
    }

    /// The parameter that sends a client to the server's other addresses.
    fn preferred_address(&self, server: &ServerConfig, rng: &mut Rng) -> Option<PreferredAddress> {
        let addresses = &server.preferred_addresses;
        let cid = self.config.cids.draw(rng);
        let v4 = |address: &SocketAddr| match address {
            SocketAddr::V4(v4) => Some(*v4),
            SocketAddr::V6(_) => None,
        };
        let v6 = |address: &SocketAddr| match address {
            SocketAddr::V6(v6) => Some(*v6),
            SocketAddr::V4(_) => None,
        };
        (!addresses.is_empty()).then(|| PreferredAddress {
            ipv4: addresses.iter().find_map(v4),
            ipv6: addresses.iter().find_map(v6),
            cid,
            reset_token: self.keys.reset_token(&cid),
        })
    }

    /// Counts a connection where it comes from; what it may begin with of what its token says.
    fn enter(
        &mut self,
        server: &ServerConfig,
        origin: Origin,
        proof: &Proof,
    ) -> (Counted, Recollection) {
        let most = server.max_connections_per_address;
        let mut counted = self.crowds.enter(origin, proof.address_validated);
        let mut earlier = proof.earlier.clone();
        // A token without a memory takes nobody's turn.
        earlier.line_up(|ends: &Ends| {
            let at = Origin::from(ends.remote());
            let issued = proof.token?.issued;
            self.crowds.turn(&mut counted, at, issued, most)
        });
        (counted, earlier)
    }

    fn create(
        &mut self,
        now: Instant,
        server: &Arc<ServerConfig>,
        client: &Client,
    ) -> Option<Handle> {
        let Client {
            tuple,
            dcid,
            scid,
            ref proof,
        } = *client;
        let handle = self.free_handle()?;
        let mut rng = self.rng.fork();
        let local_cid = self.config.cids.draw(&mut rng);
        let preferred_address = self.preferred_address(server, &mut rng);
        let transport = TransportConfig::bounded(&server.transport);
        let max_path_id = announced_path_limit(transport.max_paths, Side::Server, Some(scid));
        let params = TransportParameters {
            original_dcid: Some(proof.original_dcid),
            initial_source_cid: Some(local_cid),
            retry_source_cid: proof.retry_scid,
            reset_token: Some(self.keys.reset_token(&local_cid)),
            preferred_address,
            initial_max_path_id: max_path_id,
            handshake_by_any_path: reads_handshake_by_any_path(Side::Server, max_path_id),
            ..transport.parameters()
        };
        let mut bytes = Vec::new();
        params.encode(&mut bytes, Side::Server);
        let origin = Origin::from(tuple.remote);
        let tls = server.tls.for_client(origin.0);
        let handshake = self.set_up(Handshake::server(&tls, bytes, &dcid).ok()?);
        let (counted, earlier) = self.enter(server, origin, proof);
        let connection = Connection::new(
            now,
            Beginning {
                parties: Parties {
                    side: Side::Server,
                    server_name: String::new(),
                    keys: self.keys.clone(),
                    cids: self.config.cids.clone(),
                    original_dcid: dcid,
                    local_cid,
                    remote_cid: scid,
                    retry_scid: proof.retry_scid,
                    token: Vec::new(),
                },
                config: transport,
                handshake,
                tuple,
                earlier,
                local_address: None,
                preferred_cid: preferred_address.map(|preferred| preferred.cid),
                address_validated: proof.address_validated,
                rng,
                send_budget: Some(self.memory.budget()),
                receive_budget: self.config.receive_budget.clone(),
            },
        );
        let member = Member::of_server(connection, counted);
        self.connections.insert(handle, member);
        self.handshaking.insert(handle);
        // Until the client has seen our choice, it uses its own.
        self.routes
            .apply(handle, Routing::AddCid(dcid, PathId::ZERO));
        self.touch(handle);
        Some(handle)
    }
}
