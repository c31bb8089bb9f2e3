//! A peer that obeys nothing but a script.
//!
//! [`RawPeer`] does a handshake with a real [`Endpoint`], the victim, and then sends whatever it is
//! told, in any packet, on any path, with any connection ID and packet number; what the victim
//! sends is opened and kept. It is made of the codec and the packet protection alone, so it can do
//! what a `Connection` never would.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

mod packet;

pub use packet::{Packet, Received};

use crate::pair::tls_pair;
use anabranch_proto::config::{ClientConfig, EndpointConfig, ServerConfig, TransportConfig};
use anabranch_proto::connection::{Connection, PathStats};
use anabranch_proto::datagram::{SocketId, Tuple};
use anabranch_proto::error::ConnectionError;
use anabranch_proto::event::Event;
use anabranch_proto::event::Level;
use anabranch_proto::internals::{Frames, Handshake};
use anabranch_proto::resumption::Resume;
use anabranch_proto::time::Instant;
use anabranch_proto::tls;
use anabranch_proto::wire::cursor::Reader;
use anabranch_proto::wire::frame::{self, ConnectionClose, Form, Frame, NewConnectionId};
use anabranch_proto::wire::header::{self, Header};
use anabranch_proto::wire::params::TransportParameters;
use anabranch_proto::wire::{
    ConnectionId, Dir, PathId, ResetToken, Side, TransportErrorCode as Code,
};
use anabranch_proto::{Endpoint, Handle};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a datagram takes from one end to the other.
pub const DELAY: Duration = Duration::from_millis(10);

/// The connection ID to which a scripted client sends its first packet.
pub const ORIGINAL_DCID: [u8; 8] = *b"original";

/// What a scripted peer and its victim are like.
pub struct Setup {
    /// How the victim behaves.
    pub transport: TransportConfig,
    /// Changes the victim's other settings, if it is a server.
    pub server: fn(&mut ServerConfig),
    /// The scripted peer's connection ID in the handshake.
    pub cid: ConnectionId,
    /// Changes the scripted peer's transport parameters.
    pub params: fn(&mut TransportParameters),
    /// Appended to its encoded transport parameters.
    pub extra_params: Vec<u8>,
    /// The token in its Initial packets.
    pub token: Vec<u8>,
    /// What a scripted client resumes, and the TLS settings of both that go with it.
    pub resume: Option<(Resume, tls::ClientTls, tls::ServerTls)>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            transport: TransportConfig::default(),
            server: |_| {},
            cid: cid(PathId::ZERO, 0),
            params: |_| {},
            extra_params: Vec::new(),
            token: Vec::new(),
            resume: None,
        }
    }
}

/// One pair of TLS settings for all: keys take longer to make than a handshake.
pub fn tls_configs() -> (tls::ClientTls, tls::ServerTls) {
    static CONFIGS: OnceLock<(tls::ClientTls, tls::ServerTls)> = OnceLock::new();
    CONFIGS.get_or_init(tls_pair).clone()
}

/// The connection ID a scripted peer issues under this path and sequence number.
pub fn cid(path: PathId, sequence: u64) -> ConnectionId {
    let bytes = [0xc1, 0xd0, path.0 as u8, sequence as u8, 1, 2, 3, 4];
    ConnectionId::new(&bytes).expect("eight bytes")
}

/// The stateless reset token of [`cid`].
pub fn token(path: PathId, sequence: u64) -> ResetToken {
    let mut bytes = [0x70; 16];
    (bytes[0], bytes[1]) = (path.0 as u8, sequence as u8);
    ResetToken(bytes)
}

/// A frame that issues [`cid`].
pub fn new_cid(path: PathId, sequence: u64, retire_prior_to: u64) -> Frame<'static> {
    Frame::NewConnectionId(NewConnectionId {
        path,
        sequence,
        retire_prior_to,
        cid: cid(path, sequence),
        reset_token: token(path, sequence),
    })
}

/// The `n`-th route between the two, as the victim sees it.
pub fn route(victim: Side, n: u16) -> Tuple {
    let remote: SocketAddr = if victim.is_server() {
        format!("10.0.{n}.1:1000").parse().expect("an address")
    } else {
        "10.1.0.1:4433".parse().expect("an address")
    };
    let socket = if victim.is_server() { 0 } else { n };
    Tuple {
        socket: SocketId(u32::from(socket)),
        local: None,
        remote,
    }
}

/// A scripted peer, and the real endpoint it plays with.
pub struct RawPeer {
    pub now: Instant,
    /// The real endpoint.
    pub victim: Endpoint,
    pub handle: Option<Handle>,
    /// What the victim told its application.
    pub events: Vec<Event>,
    /// What the victim sent, opened; tests take it.
    pub inbox: Vec<Received>,
    /// Sizes of the victim's datagrams, by destination.
    pub sizes: Vec<(Tuple, usize)>,
    /// Bytes handed to the victim, by route.
    delivered: BTreeMap<Tuple, usize>,
    /// First bytes of the victim's datagrams that hold a 1-RTT packet.
    pub first_bytes: Vec<u8>,
    /// Datagrams the victim sent that held nothing that could be opened.
    pub unopened: Vec<Vec<u8>>,
    /// Destination connection ID and token of the victim's Initial packets.
    pub raw_initials: Vec<(ConnectionId, Vec<u8>)>,
    /// Where packets go unless they say otherwise.
    pub tuple: Tuple,
    /// Connection IDs the victim issued.
    pub remote_cids: BTreeMap<(PathId, u64), (ConnectionId, Option<ResetToken>)>,
    /// The peer's own side.
    pub side: Side,
    pub handshake: Handshake,
    pub setup: Setup,
    /// Our connection IDs, and whose packets they name.
    local_cids: BTreeMap<ConnectionId, PathId>,
    next_pn: BTreeMap<(Level, PathId), u64>,
    received: BTreeMap<(Level, PathId), u64>,
    /// Numbers of the 1-RTT packets received.
    seen: BTreeMap<PathId, BTreeSet<u64>>,
}

impl RawPeer {
    /// A scripted client and a real server; nothing was sent yet.
    pub fn client(setup: Setup) -> Self {
        let (resume, client_tls, server_tls) = if let Some((resume, client, server)) = &setup.resume
        {
            (Some(resume), client.clone(), server.clone())
        } else {
            let (client, server) = tls_configs();
            (None, client, server)
        };
        let mut config = ServerConfig::new(server_tls);
        config.transport = Arc::new(setup.transport.clone());
        (setup.server)(&mut config);
        let mut victim = Endpoint::new(EndpointConfig::default(), [2; 32]);
        victim.set_server(Some(Arc::new(config)));
        let original = ConnectionId::new(&ORIGINAL_DCID).expect("eight bytes");
        let params = setup.encode_params(Side::Client, None);
        let handshake = Handshake::client(&client_tls, "server.test", params, &original, resume);
        let handshake = handshake.expect("a client's handshake");
        let mut peer = Self::new(setup, Side::Client, victim, handshake);
        let first = (original, None);
        peer.remote_cids.insert((PathId::ZERO, 0), first);
        peer
    }

    /// A scripted server and a real client, whose first Initial packet has been received.
    pub fn server(setup: Setup) -> Self {
        Self::server_named(setup, None)
    }

    /// A scripted server which claims that it sent a Retry with this connection ID.
    pub fn server_named(setup: Setup, retry: Option<ConnectionId>) -> Self {
        let (client_tls, server_tls) = tls_configs();
        let mut config = ClientConfig::new(client_tls);
        config.transport = Arc::new(setup.transport.clone());
        let mut victim = Endpoint::new(EndpointConfig::default(), [1; 32]);
        let now = Instant::from_nanos(1_000_000_000);
        let handle = victim
            .connect(now, config, route(Side::Client, 0), "server.test")
            .expect("a connection attempt");
        let original = victim
            .connection(handle)
            .expect("the client")
            .original_dcid();
        let params = setup.encode_params(Side::Server, Some((original, retry)));
        let handshake = Handshake::server(&server_tls, params, &original);
        let handshake = handshake.expect("a server's handshake");
        let mut peer = Self::new(setup, Side::Server, victim, handshake);
        peer.handle = Some(handle);
        peer.local_cids.insert(original, PathId::ZERO);
        peer
    }

    fn new(setup: Setup, side: Side, victim: Endpoint, handshake: Handshake) -> Self {
        Self {
            now: Instant::from_nanos(1_000_000_000),
            victim,
            handle: None,
            events: Vec::new(),
            inbox: Vec::new(),
            sizes: Vec::new(),
            unopened: Vec::new(),
            first_bytes: Vec::new(),
            delivered: BTreeMap::new(),
            raw_initials: Vec::new(),
            tuple: route(side.peer(), 0),
            remote_cids: BTreeMap::new(),
            side,
            handshake,
            local_cids: BTreeMap::from([(setup.cid, PathId::ZERO)]),
            next_pn: BTreeMap::new(),
            received: BTreeMap::new(),
            seen: BTreeMap::new(),
            setup,
        }
    }

    /// A scripted client that has finished the handshake with a real server.
    pub fn connected_client() -> Self {
        Self::client(Setup::default()).establish()
    }

    /// A scripted server that has finished the handshake with a real client.
    pub fn connected_server() -> Self {
        Self::server(Setup::default()).establish()
    }

    /// One of the two above: the peer of a victim of this side.
    pub fn against(victim: Side) -> Self {
        if victim.is_server() {
            Self::connected_client()
        } else {
            Self::connected_server()
        }
    }

    /// Finishes the handshake; the victim has confirmed it, and its connection IDs are known.
    pub fn establish(mut self) -> Self {
        self.shake();
        assert!(
            self.handshake.is_complete(),
            "no handshake: {:?}",
            self.events
        );
        self.handshake.set_confirmed();
        if self.side.is_server() {
            self.frames(PathId::ZERO, &[Frame::HandshakeDone]);
        }
        // The victim acknowledges what it has now, and not with what a test does first.
        self.wait(Duration::from_millis(30));
        self.ack_all();
        // Some of what it does next waited for that: a server probes for larger packets.
        self.ack_all();
        self.inbox.clear();
        self
    }

    /// Exchanges CRYPTO data until neither side has more to say.
    pub fn shake(&mut self) {
        for _ in 0..8 {
            self.send_crypto();
            self.receive();
        }
    }

    /// Sends what TLS has to say.
    pub fn send_crypto(&mut self) {
        for level in [Level::Initial, Level::Handshake, Level::OneRtt] {
            self.send_crypto_at(level);
        }
    }

    /// Sends what TLS has to say at one level.
    pub fn send_crypto_at(&mut self, level: Level) {
        while self.handshake.has_crypto(level) && self.handshake.has_keys(level) {
            let mut payload = Vec::new();
            let mut frames = Frames::new(&mut payload, 1000);
            self.handshake.write_crypto(level, &mut frames);
            self.send(Packet::new(level, payload));
        }
    }

    /// Goes as far as both sides have Handshake keys and no further.
    pub fn half_way(mut self) -> Self {
        self.receive();
        self.send_crypto_at(Level::Initial);
        assert!(self.handshake.has_keys(Level::Handshake));
        self.inbox.clear();
        self
    }

    /// Packets to this connection ID belong to path 0 from now on.
    pub fn answer_to(&mut self, cid: ConnectionId) {
        self.local_cids.insert(cid, PathId::ZERO);
    }

    /// Whether the victim sent a Handshake packet.
    pub fn victim_has_handshake_keys(&self) -> bool {
        let mut levels = self.inbox.iter().map(|received| received.level);
        levels.any(|level| level == Level::Handshake)
    }

    /// Changes keys after the packet numbers of path 0 were forgotten, so that lower ones can be
    /// sealed under the new keys.
    pub fn update_after_forgetting(&mut self) {
        let before = self.next_pn(Level::OneRtt, PathId::ZERO);
        let mut packet = Packet::one_rtt(PathId::ZERO, encode(&[Frame::Ping]));
        packet.pn = Some(0);
        // Sealed for the sake of the count, never sent.
        self.seal(&packet);
        self.update_keys();
        self.handshake.forget_path(PathId::ZERO);
        self.next_pn.insert((Level::OneRtt, PathId::ZERO), before);
    }

    /// Changes to the next keys, whether the victim has acknowledged anything or not.
    pub fn update_keys(&mut self) {
        self.handshake.on_acked(PathId::ZERO, u64::MAX);
        self.handshake
            .update_keys(self.now, Duration::ZERO)
            .expect("the victim is said to have acknowledged everything");
    }

    /// The real connection.
    pub fn connection(&mut self) -> Option<&mut Connection> {
        self.victim.connection_mut(self.handle?)
    }

    /// Hands a datagram to the victim and takes its answers.
    pub fn deliver(&mut self, tuple: Tuple, bytes: &[u8]) {
        self.now += DELAY;
        *self.delivered.entry(tuple).or_default() += bytes.len();
        let mut bytes = bytes.to_vec();
        self.victim
            .handle_datagram(self.now, tuple, None, &mut bytes);
        self.receive();
    }

    /// Seals and sends a packet. Client Initials are padded to what they must be.
    pub fn send(&mut self, mut packet: Packet) {
        if packet.level == Level::Initial {
            packet.size = packet.size.max(1200);
        }
        let tuple = packet.tuple.unwrap_or(self.tuple);
        let bytes = self.seal(&packet);
        self.deliver(tuple, &bytes);
    }

    /// Sends a 1-RTT packet with these bytes for frames.
    pub fn bytes(&mut self, path: PathId, payload: &[u8]) {
        self.send(Packet::one_rtt(path, payload.to_vec()));
    }

    /// Sends a 1-RTT packet with these frames, in their multipath form if they have one.
    pub fn frames(&mut self, path: PathId, frames: &[Frame<'_>]) {
        self.send(Packet::one_rtt(path, encode(frames)));
    }

    /// Acknowledges everything received on all paths, and lets the victim answer.
    pub fn ack_all(&mut self) {
        let paths: Vec<PathId> = self.seen.keys().copied().collect();
        for path in paths {
            self.ack_path(path, 0);
        }
    }

    /// Acknowledges everything received on one path, and claims to have waited this long: in units
    /// of 8 microseconds.
    pub fn ack_path(&mut self, path: PathId, delay: u64) {
        let multipath = self
            .connection()
            .is_some_and(|victim| victim.has_multipath());
        let form = if multipath {
            Form::Multipath
        } else {
            Form::Plain
        };
        let Some(seen) = self.seen.get(&path) else {
            return;
        };
        let ranges = merge(seen).into_iter();
        let mut payload = Vec::new();
        frame::put_ack(&mut payload, form, path, ranges, 64, delay, None, 1100)
            .expect("an acknowledgement of a few ranges fits");
        self.bytes(PathId::ZERO, &payload);
    }

    /// Numbers of the packets received on a path, ascending.
    pub fn seen(&self, path: PathId) -> Vec<u64> {
        let seen = self.seen.get(&path);
        seen.into_iter().flatten().copied().collect()
    }

    /// The paths the victim has.
    pub fn paths(&mut self) -> Vec<PathId> {
        let victim = self.connection().expect("the victim");
        victim.paths().collect()
    }

    /// What the victim says of a path.
    pub fn stats(&mut self, path: PathId) -> PathStats {
        let victim = self.connection().expect("the victim");
        victim.path_stats(path).expect("an open path")
    }

    /// Lets the victim send this many bytes on a stream.
    pub fn provoke(&mut self, length: usize) {
        let victim = self.connection().expect("the victim");
        let id = victim.open(Dir::Uni).expect("a stream");
        let mut data = Bytes::from(vec![0x5a; length]);
        victim.write(id, &mut data).expect("room for the data");
        assert!(data.is_empty());
        self.receive();
    }

    /// Lets time pass, with every time-out of the victim on the way.
    pub fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        self.receive();
        for round in 0.. {
            assert!(round < 5000, "the victim wakes up without end");
            match self.victim.next_timeout().filter(|at| *at <= end) {
                Some(at) => {
                    self.now = self.now.max(at);
                    self.victim.handle_timeout(self.now);
                    self.receive();
                }
                None => break,
            }
        }
        self.now = end;
    }

    /// Takes the victim's datagrams and events.
    pub fn receive(&mut self) {
        let mut buf = Vec::new();
        for round in 0.. {
            assert!(round < 10_000, "the victim sends without end");
            buf.clear();
            let Some(transmit) = self.victim.poll_transmit(self.now, 10, &mut buf) else {
                break;
            };
            let size = transmit.segment_size.unwrap_or(buf.len());
            for datagram in buf.chunks(size) {
                self.sizes.push((transmit.tuple, datagram.len()));
                self.open_datagram(transmit.tuple, datagram);
            }
        }
        while let Some((handle, event)) = self.victim.poll_event() {
            if event == Event::Handshaking {
                self.handle = Some(handle);
            }
            self.events.push(event);
        }
    }

    /// Gives the victim a connection ID and this peer the use of it.
    pub fn issue(&mut self, path: PathId, sequence: u64) {
        self.adopt(path, sequence);
        self.frames(PathId::ZERO, &[new_cid(path, sequence, 0)]);
    }

    /// Packets to this connection ID of ours belong to `path` from now on.
    pub fn adopt(&mut self, path: PathId, sequence: u64) {
        self.local_cids.insert(cid(path, sequence), path);
    }

    /// A connection ID of the victim for `path`: the oldest it issued.
    pub fn remote_cid(&self, path: PathId) -> ConnectionId {
        let mut of_path = self.remote_cids.range((path, 0)..=(path, u64::MAX));
        let (_, (cid, _)) = of_path.next().expect("the victim issued a connection ID");
        *cid
    }

    /// Opens a path on another route and validates it in both directions (scripted clients).
    pub fn open_path(&mut self, path: PathId, n: u16) -> Tuple {
        self.issue(path, 0);
        let tuple = route(self.side.peer(), n);
        let challenge = Frame::PathChallenge { data: [7; 8] };
        let mut packet = Packet::one_rtt(path, encode(&[challenge]));
        packet.tuple = Some(tuple);
        packet.size = 1200;
        self.send(packet);
        self.answer_challenges();
        tuple
    }

    /// Answers every challenge received so far, where it came from.
    pub fn answer_challenges(&mut self) {
        self.answer_challenges_where(|_| true);
    }

    /// Answers the challenges that came by routes of this kind, where they came from.
    pub fn answer_challenges_where(&mut self, wanted: impl Fn(Tuple) -> bool) {
        let mut answers = Vec::new();
        for received in self.inbox.iter().filter(|r| wanted(r.tuple)) {
            for frame in received.frames() {
                if let Frame::PathChallenge { data } = frame {
                    answers.push((received.path, received.tuple, data));
                }
            }
        }
        for (path, tuple, data) in answers {
            let payload = encode(&[Frame::PathResponse { data }]);
            let mut packet = Packet::one_rtt(path, payload);
            packet.tuple = Some(tuple);
            packet.size = 1200;
            self.send(packet);
        }
    }

    /// The first `CONNECTION_CLOSE` received: code and frame type.
    pub fn close(&self) -> Option<(u64, u64)> {
        self.inbox.iter().find_map(|received| {
            received.frames().into_iter().find_map(|frame| match frame {
                Frame::ConnectionClose(ConnectionClose {
                    code, frame_type, ..
                }) => Some((code, frame_type)),
                _ => None,
            })
        })
    }

    /// Why the victim's connection ended, if it did.
    pub fn ended(&self) -> Option<&ConnectionError> {
        self.events.iter().find_map(|event| match event {
            Event::Closed(error) => Some(error),
            _ => None,
        })
    }

    /// The frames received so far that `wanted` picks.
    pub fn count(&self, wanted: impl Fn(&Frame<'_>) -> bool) -> usize {
        let frames = self.inbox.iter().flat_map(Received::frames);
        frames.filter(|frame| wanted(frame)).count()
    }

    /// Bytes handed to the victim by this route so far.
    pub fn bytes_from(&self, tuple: Tuple) -> usize {
        self.delivered.get(&tuple).copied().unwrap_or(0)
    }

    /// Bytes the victim sent to this route so far.
    pub fn bytes_to(&self, tuple: Tuple) -> usize {
        let to = self.sizes.iter().filter(|(to, _)| *to == tuple);
        to.map(|(_, size)| size).sum()
    }

    /// Asserts that the victim still serves this connection.
    #[track_caller]
    pub fn assert_alive(&mut self) {
        assert_eq!(self.ended(), None);
        self.inbox.clear();
        self.frames(PathId::ZERO, &[Frame::Ping, Frame::Ping]);
        self.wait(Duration::from_millis(50));
        assert_eq!(self.ended(), None);
        assert!(
            self.count(|frame| matches!(frame, Frame::Ack(_))) > 0,
            "the victim does not answer any more"
        );
    }

    fn open_datagram(&mut self, tuple: Tuple, datagram: &[u8]) {
        let cid_len = self.setup.cid.len();
        let mut rest = datagram;
        let mut opened = false;
        self.first_bytes
            .extend(datagram.first().filter(|first| **first & 0x80 == 0));
        while !rest.is_empty() {
            let Ok(header) = header::parse(rest, cid_len) else {
                break;
            };
            let length = match &header {
                Header::Initial { packet_len, .. }
                | Header::Long { packet_len, .. }
                | Header::Short { packet_len, .. } => *packet_len,
                _ => break,
            };
            if let Header::Initial { dcid, token, .. } = &header {
                self.raw_initials.push((*dcid, token.to_vec()));
            }
            let (packet, tail) = rest.split_at(length);
            opened |= self.open_packet(tuple, packet, datagram.len());
            rest = tail;
        }
        if !opened {
            self.unopened.push(datagram.to_vec());
        }
    }
}

impl Setup {
    fn encode_params(
        &self,
        side: Side,
        server: Option<(ConnectionId, Option<ConnectionId>)>,
    ) -> Vec<u8> {
        let mut params = TransportParameters {
            initial_source_cid: Some(self.cid),
            initial_max_path_id: (!self.cid.is_empty()).then_some(PathId(7)),
            active_connection_id_limit: 4,
            max_idle_timeout_ms: 30_000,
            initial_max_data: 1 << 20,
            initial_max_stream_data_bidi_local: 1 << 20,
            initial_max_stream_data_bidi_remote: 1 << 20,
            initial_max_stream_data_uni: 1 << 20,
            initial_max_streams_bidi: 10,
            initial_max_streams_uni: 10,
            max_datagram_frame_size: 1000,
            ..TransportParameters::default()
        };
        if let Some((original, retry)) = server {
            params.original_dcid = Some(original);
            params.retry_source_cid = retry;
            params.reset_token = Some(token(PathId::ZERO, 0));
        }
        (self.params)(&mut params);
        let mut bytes = Vec::new();
        params.encode(&mut bytes, side);
        bytes.extend_from_slice(&self.extra_params);
        bytes
    }
}

/// Asserts that the victim closed with this code: to its peer and to its application.
#[track_caller]
pub fn assert_closed(peer: &RawPeer, code: Code) {
    match peer.ended() {
        Some(ConnectionError::Transport(error)) => assert_eq!(error.code, code, "{error}"),
        other => panic!("the victim should have closed with {code}: {other:?}"),
    }
    let (sent, _) = peer.close().expect("CONNECTION_CLOSE reaches the peer");
    assert_eq!(Code(sent), code);
}

/// Frames as bytes, in their multipath form if they have one.
pub fn encode(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        frame.encode(&mut bytes, Form::Multipath);
    }
    bytes
}

/// Frames as bytes, in the form of RFC 9000.
pub fn encode_plain(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        frame.encode(&mut bytes, Form::Plain);
    }
    bytes
}

/// Packet numbers as ranges, descending.
fn merge(seen: &BTreeSet<u64>) -> Vec<RangeInclusive<u64>> {
    let mut merged: Vec<RangeInclusive<u64>> = Vec::new();
    for pn in seen.iter().rev() {
        match merged.last_mut() {
            Some(last) if pn + 1 == *last.start() => *last = *pn..=*last.end(),
            _ => merged.push(*pn..=*pn),
        }
    }
    merged
}

/// The frames of a payload that decodes.
pub fn decode_all(payload: &[u8]) -> Vec<Frame<'_>> {
    let mut reader = Reader::new(payload);
    let mut frames = Vec::new();
    while !reader.is_empty() {
        let (_, frame) = frame::decode(&mut reader).expect("the victim sends valid frames");
        frames.push(frame);
    }
    frames
}
