//! Sessions that are resumed, and data before the end of the handshake (RFC 9001, section 4.6).

use crate::pair::{Pair, Way, provider};
use crate::raw::{Setup, decode_all};
use anabranch_proto::config::{ClientConfig, RetryPolicy, ServerConfig, TransportConfig};
use anabranch_proto::error::{ConnectionError, TransportError};
use anabranch_proto::event::Level;
use anabranch_proto::internals::{Frames, Handshake};
use anabranch_proto::resumption::{MAX_STATES, Resume, ResumptionState};
use anabranch_proto::time::Instant;
use anabranch_proto::tls::{
    self, ClientAuth, Fingerprint, Identity, KeyPair, ServerResumption, TimeProvider, UnixTime,
};
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::header::{self, Header, LongType};
use anabranch_proto::wire::params::TransportParameters;
use anabranch_proto::wire::{
    ConnectionId, Dir, PathId, Side, StreamId, TransportErrorCode, VERSION_1,
};
use anabranch_proto::{Endpoint, Event};
use bytes::Bytes;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::kx_group::SECP256R1;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A wall clock that tests set.
#[derive(Debug, Default)]
struct Wall(AtomicU64);

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = 1_700_000_000 + self.0.load(Ordering::Relaxed);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// A server and its clients, over several connections.
struct House {
    wall: Arc<Wall>,
    server: ServerConfig,
    client: ClientConfig,
}

fn key(seed: u8) -> KeyPair {
    KeyPair::generate(&provider(), [seed; 32]).expect("a key")
}

fn client_tls(pin: Fingerprint, identity: Option<u8>) -> tls::ClientTls {
    let builder = tls::ClientTls::pinned(provider(), pin).alpn(&[b"test"]);
    let builder = match identity {
        Some(seed) => builder.identity(Identity::RawKey(key(seed))),
        None => builder,
    };
    builder.resumption(true).build().expect("a client")
}

impl House {
    fn new() -> Self {
        Self::with(ClientAuth::None, None, true)
    }

    fn with(auth: ClientAuth, identity: Option<u8>, early_data: bool) -> Self {
        Self::over(provider(), auth, identity, early_data)
    }

    /// A server that takes no key share of the kind that clients send first.
    fn particular() -> Self {
        let mut particular = CryptoProvider::clone(&provider());
        particular.kx_groups = vec![SECP256R1];
        Self::over(Arc::new(particular), ClientAuth::None, None, true)
    }

    fn over(
        crypto: Arc<CryptoProvider>,
        auth: ClientAuth,
        identity: Option<u8>,
        early_data: bool,
    ) -> Self {
        let wall = Arc::new(Wall::default());
        let server = tls::ServerTls::with_raw_key(crypto, &key(7))
            .alpn(&[b"test"])
            .client_auth(auth)
            .resumption(ServerResumption {
                clock: Arc::clone(&wall) as Arc<dyn TimeProvider>,
                early_data,
            });
        Self {
            wall,
            server: ServerConfig::new(server.build().expect("a server")),
            client: ClientConfig::new(client_tls(key(7).fingerprint(), identity)),
        }
    }

    fn connect(&self, resume: Option<Resume>) -> Pair {
        let client = ClientConfig {
            resume,
            ..self.client.clone()
        };
        Pair::with_configs(vec![Way::new(0)], client, self.server.clone())
    }

    /// What a first connection leaves behind.
    fn visit(&self) -> ResumptionState {
        let mut pair = self.connect(None);
        pair.connect();
        pair.run_for(Duration::from_millis(100));
        assert!(!pair.client_conn().is_resumed());
        let told = pair.client_events.iter();
        assert!(told.clone().any(|(_, event)| *event == Event::Resumable));
        let state = pair.client_conn().take_resumption().expect("a ticket");
        ResumptionState::decode(&state.encode()).expect("it survives being stored")
    }
}

/// A scripted client that resumes a connection to its victim, and may send early data.
pub(crate) fn resuming() -> Setup {
    let house = House::new();
    let resume = early(&house.visit());
    Setup {
        resume: Some((resume, house.client.tls, house.server.tls)),
        ..Setup::default()
    }
}

/// Why the client's connection ended by an error of the protocol.
fn broken_off(pair: &mut Pair) -> &TransportError {
    pair.run_for(Duration::from_millis(1));
    let mut events = pair.client_events.iter();
    let error = events.find_map(|(_, event)| match event {
        Event::Closed(ConnectionError::Transport(error)) => Some(error),
        _ => None,
    });
    error.expect("the client broke it off")
}

fn early(state: &ResumptionState) -> Resume {
    Resume {
        state: state.clone(),
        age: Duration::ZERO,
        early_data: true,
    }
}

/// Writes a whole stream at once.
fn write(pair: &mut Pair, bytes: &[u8]) -> StreamId {
    let id = pair.client_conn().open(Dir::Bi).expect("a stream");
    let mut data = Bytes::copy_from_slice(bytes);
    while !data.is_empty() {
        pair.client_conn().write(id, &mut data).expect("credit");
    }
    pair.client_conn().finish(id).expect("an open stream");
    id
}

fn told(pair: &Pair, event: &Event) -> bool {
    let events = pair.client_events.iter();
    events.map(|(_, told)| told).any(|told| told == event)
}

/// Runs until the server has the whole stream; returns how long it took until the first of it came.
fn arrives(pair: &mut Pair, id: StreamId, bytes: &[u8]) -> Duration {
    let began = pair.now;
    let done = pair.run_until(Duration::from_secs(5), |pair| pair.finished.contains(&id));
    assert!(done, "{:?} {:?}", pair.client_events, pair.server_events);
    assert_eq!(pair.received[&id], bytes);
    let mut events = pair.server_events.iter();
    let opened = events.find(|(_, event)| matches!(event, Event::Stream(_)));
    opened.expect("a stream was opened").0.since(began)
}

/// Asks for `length` bytes, which the server sends as soon as it is asked; returns how long that
/// takes.
fn fetch(pair: &mut Pair, length: usize) -> Duration {
    let began = pair.now;
    let id = write(pair, b"GET /");
    let asked = pair.run_until(Duration::from_secs(1), |pair| {
        let handle = pair.server.connections().next().map(|(handle, _)| handle);
        let Some(server) = handle.and_then(|handle| pair.server.connection_mut(handle)) else {
            return false;
        };
        let is_asked = server.accept(Dir::Bi) == Some(id);
        if is_asked {
            let mut answer = Bytes::from(vec![1; length]);
            server.write(id, &mut answer).expect("credit");
            server.finish(id).expect("an open stream");
        }
        is_asked
    });
    assert!(asked);
    let mut got = 0;
    let whole = pair.run_until(Duration::from_secs(1), |pair| {
        while let Ok(Some(bytes)) = pair.client_conn().read(id, 1 << 16) {
            got += bytes.len();
        }
        got == length
    });
    assert!(whole);
    pair.now.since(began)
}

#[test]
fn a_resuming_client_is_heard_half_a_round_trip_after_its_first_packet() {
    let house = House::new();
    let state = house.visit();
    let mut pair = house.connect(Some(early(&state)));
    assert!(pair.client_conn().may_send_early_data());
    let id = write(&mut pair, b"GET /");
    assert_eq!(arrives(&mut pair, id, b"GET /"), Duration::from_millis(10));
    pair.connect();
    assert!(pair.client_conn().is_resumed() && pair.server_conn().is_resumed());
    assert!(told(&pair, &Event::EarlyDataAccepted));
    assert_eq!(pair.client_conn().early_data_accepted(), Some(true));
    // More than the early data's limits allowed goes on by the rules of the new connection.
    pair.upload(300_000, Duration::from_secs(5));
}

#[test]
fn the_first_answer_comes_one_round_trip_after_the_first_packet() {
    let house = House::new();
    let state = house.visit();
    let mut pair = house.connect(Some(early(&state)));
    assert_eq!(fetch(&mut pair, 3), Duration::from_millis(20));
}

/// Without a token a server sends three times what it got, and the rest after a round trip.
#[test]
fn each_state_of_a_connection_proves_the_address() {
    let mut pair = House::new().connect(None);
    pair.connect();
    pair.run_for(Duration::from_millis(100));
    let states: Vec<_> = std::iter::from_fn(|| pair.client_conn().take_resumption()).collect();
    assert_eq!(states.len(), MAX_STATES);
    assert!(states.iter().all(ResumptionState::has_token));
    let tokens: BTreeSet<_> = states.iter().map(ResumptionState::encode).collect();
    assert_eq!(tokens.len(), MAX_STATES, "each is another one");
}

/// Such answers end before new tickets come.
#[test]
fn a_series_of_short_answers_takes_one_round_trip_each() {
    let house = House::new();
    let mut way = Way::new(0);
    way.delay = Duration::from_millis(100);
    let (client, server) = (house.client.clone(), house.server.clone());
    let mut pair = Pair::with_configs(vec![way], client, server);
    pair.connect();
    assert_eq!(fetch(&mut pair, 8_000), Duration::from_millis(200));
    let states: Vec<_> = std::iter::from_fn(|| pair.client_conn().take_resumption()).collect();
    for state in states.iter().take(6) {
        pair.come_again(ClientConfig {
            resume: Some(early(state)),
            ..house.client.clone()
        });
        assert_eq!(fetch(&mut pair, 8_000), Duration::from_millis(200));
        assert_eq!(pair.client_conn().early_data_accepted(), Some(true));
    }
    assert!(states.len() >= 6);
}

#[test]
fn more_than_a_window_of_early_data_arrives_whole() {
    let house = House::new();
    let state = house.visit();
    let mut pair = house.connect(Some(early(&state)));
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    let id = write(&mut pair, &bytes);
    arrives(&mut pair, id, &bytes);
}

#[test]
fn lost_early_packets_are_sent_again() {
    let house = House::new();
    let state = house.visit();
    let mut pair = house.connect(Some(early(&state)));
    pair.ways[0].loss = 300;
    let bytes = vec![7; 20_000];
    let id = write(&mut pair, &bytes);
    arrives(&mut pair, id, &bytes);
}

#[test]
fn a_ticket_is_accepted_once_and_data_sent_with_it_again_arrives_later() {
    let house = House::new();
    let state = house.visit();
    let mut first = house.connect(Some(early(&state)));
    let id = write(&mut first, b"once");
    arrives(&mut first, id, b"once");
    // An attacker, or an application that breaks the rule, comes with the same ticket.
    let mut second = house.connect(Some(early(&state)));
    let id = write(&mut second, b"twice");
    assert_eq!(
        arrives(&mut second, id, b"twice"),
        Duration::from_millis(30)
    );
    assert!(second.server_conn().is_established());
    assert!(!second.client_conn().is_resumed());
    assert!(told(&second, &Event::EarlyDataRejected));
    assert_eq!(second.client_conn().early_data_accepted(), Some(false));
}

#[test]
fn rejected_data_of_many_streams_arrives_once_each() {
    let house = House::new();
    let state = house.visit();
    let mut first = house.connect(Some(early(&state)));
    first.connect();
    let mut second = house.connect(Some(early(&state)));
    let streams: Vec<(StreamId, Vec<u8>)> = (0..20u8)
        .map(|index| {
            let bytes = vec![index; 3_000 * usize::from(index)];
            (write(&mut second, &bytes), bytes)
        })
        .collect();
    let done = second.run_until(Duration::from_secs(5), |pair| {
        streams.iter().all(|(id, _)| pair.finished.contains(id))
    });
    assert!(done);
    for (id, bytes) in streams {
        assert_eq!(second.received.get(&id).map_or(&[][..], |it| it), bytes);
    }
}

#[test]
fn a_server_that_reads_no_early_data_resumes_all_the_same() {
    let house = House::with(ClientAuth::None, None, false);
    let state = house.visit();
    let mut pair = house.connect(Some(early(&state)));
    assert!(!pair.client_conn().may_send_early_data());
    pair.connect();
    assert!(pair.client_conn().is_resumed());
    assert_eq!(pair.client_conn().early_data_accepted(), None);
}

#[test]
fn a_client_that_wants_no_early_data_resumes_all_the_same() {
    let house = House::new();
    let state = house.visit();
    let mut resume = early(&state);
    resume.early_data = false;
    let mut pair = house.connect(Some(resume));
    assert!(!pair.client_conn().may_send_early_data());
    pair.connect();
    assert!(pair.client_conn().is_resumed());
}

#[test]
fn a_ticket_older_than_its_client_says_is_resumed_without_its_early_data() {
    let house = House::new();
    let state = house.visit();
    house.wall.0.store(3600, Ordering::Relaxed);
    let mut pair = house.connect(Some(early(&state)));
    let id = write(&mut pair, b"late");
    assert_eq!(arrives(&mut pair, id, b"late"), Duration::from_millis(30));
    assert!(told(&pair, &Event::EarlyDataRejected));
}

#[test]
fn the_age_of_a_ticket_is_told() {
    let house = House::new();
    let state = house.visit();
    house.wall.0.store(3600, Ordering::Relaxed);
    let mut resume = early(&state);
    resume.age = Duration::from_secs(3600);
    let mut pair = house.connect(Some(resume));
    let id = write(&mut pair, b"an hour");
    assert_eq!(
        arrives(&mut pair, id, b"an hour"),
        Duration::from_millis(10)
    );
}

#[test]
fn a_ticket_past_its_lifetime_is_not_offered() {
    let house = House::new();
    let state = house.visit();
    let mut resume = early(&state);
    resume.age = state.lifetime() + Duration::from_secs(1);
    let mut pair = house.connect(Some(resume));
    assert!(!pair.client_conn().may_send_early_data());
    pair.connect();
    assert!(!pair.client_conn().is_resumed());
}

#[test]
fn a_ticket_of_a_pinned_server_is_of_no_use_under_another_pin() {
    let house = House::new();
    let state = house.visit();
    let mut other = House::new();
    other.server = house.server.clone();
    other.client = ClientConfig::new(client_tls(key(8).fingerprint(), None));
    assert!(!state.fits(&other.client.tls, "server.test"));
    assert!(!state.fits(&house.client.tls, "other.test"));
    let mut pair = other.connect(Some(early(&state)));
    assert!(!pair.client_conn().may_send_early_data());
    let failed = pair.run_until(Duration::from_secs(5), |pair| {
        pair.client_conn().is_closed()
    });
    assert!(failed, "the server is another than the pinned one");
    let error = broken_off(&mut pair);
    assert_eq!(error.code, TransportErrorCode::crypto(46), "{error}");
    assert!(error.reason.contains("pin"), "{error}");
}

#[test]
fn a_client_known_by_its_key_is_known_when_it_resumes() {
    let auth = ClientAuth::Pinned(vec![key(9).fingerprint()]);
    let house = House::with(auth, Some(9), true);
    let state = house.visit();
    let mut pair = house.connect(Some(early(&state)));
    let id = write(&mut pair, b"it is me");
    assert_eq!(
        arrives(&mut pair, id, b"it is me"),
        Duration::from_millis(10)
    );
    let known = pair.server_conn().peer_identity();
    assert_eq!(known, Some(key(9).spki_der().to_vec()));
    pair.connect();
    let server = pair.client_conn().peer_identity();
    assert_eq!(server, Some(key(7).spki_der().to_vec()));
    // Nobody else can use what it kept.
    let stranger = client_tls(key(7).fingerprint(), Some(10));
    assert!(!state.fits(&stranger, "server.test"));
}

#[test]
fn a_retry_does_not_lose_early_data() {
    let mut house = House::new();
    house.server.retry = RetryPolicy::Always;
    let state = house.visit();
    // The token of the first visit would spare the client the Retry.
    house.client.token = vec![1; 16];
    let mut pair = house.connect(Some(early(&state)));
    let id = write(&mut pair, b"after all");
    let took = arrives(&mut pair, id, b"after all");
    assert_eq!(took, Duration::from_millis(30));
    pair.connect();
    assert!(told(&pair, &Event::EarlyDataAccepted));
}

/// The datagrams that an endpoint has to send now.
fn datagrams(endpoint: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut buf = Vec::new();
    while endpoint.poll_transmit(now, 1, &mut buf).is_some() {
        all.push(std::mem::take(&mut buf));
    }
    // Whoever drains an endpoint asks for this too; from then on answers find their connection.
    endpoint.next_timeout();
    all
}

/// Destination and type of each packet with a long header, and its token.
fn long_headers(datagrams: &[Vec<u8>]) -> Vec<(LongType, ConnectionId, Vec<u8>)> {
    let mut found = Vec::new();
    for datagram in datagrams {
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let length = match header::parse(rest, 8) {
                Ok(Header::Initial {
                    dcid,
                    token,
                    packet_len,
                    ..
                }) => {
                    found.push((LongType::Initial, dcid, token.to_vec()));
                    packet_len
                }
                Ok(Header::Long {
                    kind,
                    dcid,
                    packet_len,
                    ..
                }) => {
                    found.push((kind, dcid, Vec::new()));
                    packet_len
                }
                other => panic!("{other:?}"),
            };
            rest = &rest[length..];
        }
    }
    found
}

/// A client that resumes, with early data to send, and nobody to talk to.
fn alone(house: &House, bytes: &[u8]) -> Pair {
    let state = house.visit();
    let mut pair = house.connect(Some(early(&state)));
    write(&mut pair, bytes);
    pair
}

#[test]
fn after_a_retry_early_data_goes_to_the_new_connection_id_under_new_numbers() {
    let house = House::new();
    let mut pair = alone(&house, b"after all");
    let seen = pair.watch(false);
    let now = pair.now;
    let first = datagrams(&mut pair.client, now);
    let headers = long_headers(&first);
    assert!(headers.iter().any(|(kind, ..)| *kind == LongType::ZeroRtt));
    let mut server = house.server.clone();
    server.retry = RetryPolicy::Always;
    pair.server.set_server(Some(Arc::new(server)));
    let (at_server, at_client) = (pair.ways[0].server, pair.ways[0].client);
    for mut datagram in first {
        pair.server
            .handle_datagram(now, at_server, None, &mut datagram);
    }
    let mut answers = datagrams(&mut pair.server, now);
    assert_eq!(answers.len(), 1, "0-RTT packets are answered by nothing");
    let Ok(Header::Retry { scid, token, .. }) = header::parse(&answers[0], 8) else {
        panic!("no Retry");
    };
    let token = token.to_vec();
    pair.client
        .handle_datagram(now, at_client, None, &mut answers[0]);
    let again = datagrams(&mut pair.client, now);
    let headers = long_headers(&again);
    for kind in [LongType::Initial, LongType::ZeroRtt] {
        assert!(headers.iter().any(|header| header.0 == kind), "{kind:?}");
    }
    for (kind, dcid, told) in headers {
        assert_eq!(dcid, scid, "{kind:?}");
        assert_eq!(told == token, kind == LongType::Initial);
    }
    // The watch has seen that no packet number was used twice.
    assert!(seen.lock().expect("no test thread panicked").sent[&PathId::ZERO] >= 4);
}

#[test]
fn early_data_of_a_client_that_is_asked_for_another_key_share_arrives_all_the_same() {
    let house = House::particular();
    let state = house.visit();
    let mut pair = house.connect(Some(early(&state)));
    assert!(pair.client_conn().may_send_early_data());
    let bytes = vec![3; 20_000];
    let id = write(&mut pair, &bytes);
    // One round trip more than a whole handshake takes.
    assert_eq!(arrives(&mut pair, id, &bytes), Duration::from_millis(50));
    assert!(told(&pair, &Event::EarlyDataRejected));
    assert!(!told(&pair, &Event::EarlyDataAccepted));
    assert_eq!(pair.client_conn().early_data_accepted(), Some(false));
    assert!(!pair.client_conn().may_send_early_data());
    pair.upload(100_000, Duration::from_secs(5));
}

#[test]
fn a_client_with_early_data_leaves_a_server_without_its_version() {
    let house = House::new();
    let mut pair = alone(&house, b"never");
    let now = pair.now;
    let first = datagrams(&mut pair.client, now);
    let Ok(Header::Initial { dcid, scid, .. }) = header::parse(&first[0], 8) else {
        panic!("no Initial");
    };
    let at_client = pair.ways[0].client;
    let versions = |versions: &[u32]| {
        let mut answer = Vec::new();
        let (to, from) = (scid.as_slice(), dcid.as_slice());
        header::put_version_negotiation(&mut answer, to, from, versions, 0);
        answer
    };
    // A list with the version in use is no answer.
    let mut stray = versions(&[0x1a2a_3a4a, VERSION_1]);
    pair.client
        .handle_datagram(now, at_client, None, &mut stray);
    assert!(pair.client_conn().may_send_early_data());
    let mut answer = versions(&[0x1a2a_3a4a]);
    pair.client
        .handle_datagram(now, at_client, None, &mut answer);
    let ends = std::iter::from_fn(|| pair.client.poll_event());
    let ends: Vec<_> = ends.map(|(_, event)| event).collect();
    let left = Event::Closed(ConnectionError::VersionMismatch);
    assert!(
        ends.contains(&left) && ends.contains(&Event::Drained),
        "{ends:?}"
    );
    assert!(datagrams(&mut pair.client, now).is_empty());
}

#[test]
fn a_server_that_allows_less_than_before_does_not_resume() {
    let mut house = House::new();
    let state = house.visit();
    let mut transport = TransportConfig::default();
    transport.streams.stream_receive_window = 1_000;
    house.server.transport = Arc::new(transport);
    let mut pair = house.connect(Some(early(&state)));
    let bytes = vec![5; 40_000];
    let id = write(&mut pair, &bytes);
    arrives(&mut pair, id, &bytes);
    assert!(told(&pair, &Event::EarlyDataRejected));
    assert!(!pair.client_conn().is_resumed());
}

#[test]
fn a_server_that_allows_fewer_streams_than_were_opened_is_left() {
    let mut house = House::new();
    let state = house.visit();
    let mut transport = TransportConfig::default();
    transport.streams.max_streams_bidi = 1;
    house.server.transport = Arc::new(transport);
    let mut pair = house.connect(Some(early(&state)));
    write(&mut pair, b"one");
    write(&mut pair, b"two");
    let left = pair.run_until(Duration::from_secs(5), |pair| {
        pair.client_conn().is_closed()
    });
    assert!(left);
    let error = broken_off(&mut pair);
    assert_eq!(error.code, TransportErrorCode::INTERNAL_ERROR);
    assert_eq!(
        error.reason,
        "the server allows fewer streams than it did before"
    );
}

/// Hands what one side says at a level to the other: one CRYPTO frame within `limit` bytes.
fn hand_over_some(from: &mut Handshake, to: &mut Handshake, level: Level, limit: usize) {
    let mut bytes = Vec::new();
    from.write_crypto(level, &mut Frames::new(&mut bytes, limit));
    for frame in decode_all(&bytes) {
        if let Frame::Crypto { offset, data } = frame {
            to.on_crypto(level, offset, data).expect("what TLS says");
        }
    }
}

fn hand_over(from: &mut Handshake, to: &mut Handshake, level: Level) {
    while from.has_crypto(level) {
        hand_over_some(from, to, level, 1000);
    }
}

#[test]
fn early_data_goes_on_until_the_answer_is_whole_or_a_refusal() {
    let house = House::new();
    let state = house.visit();
    let dcid = ConnectionId::new(&[1; 8]).expect("eight bytes");
    let params = |side| {
        let params = TransportParameters {
            initial_max_data: 1 << 40,
            initial_max_stream_data_bidi_local: 1 << 40,
            initial_max_stream_data_bidi_remote: 1 << 40,
            initial_max_stream_data_uni: 1 << 40,
            initial_max_streams_bidi: 1 << 30,
            initial_max_streams_uni: 1 << 30,
            active_connection_id_limit: 1000,
            max_datagram_frame_size: 1 << 20,
            ..TransportParameters::default()
        };
        let mut bytes = Vec::new();
        params.encode(&mut bytes, side);
        bytes
    };
    for (tls, reads) in [(&house.server.tls, true), (&House::new().server.tls, false)] {
        let resume = early(&state);
        let ours = params(Side::Client);
        let tls_client = &house.client.tls;
        let client = Handshake::client(tls_client, "server.test", ours, &dcid, Some(&resume));
        let server = Handshake::server(tls, params(Side::Server), &dcid);
        let (mut client, mut server) = (client.expect("a client"), server.expect("a server"));
        hand_over(&mut client, &mut server, Level::Initial);
        assert!(client.has_keys(Level::ZeroRtt));
        // The rest of the answer is late.
        hand_over(&mut server, &mut client, Level::Initial);
        assert!(client.has_keys(Level::Handshake) && client.has_keys(Level::ZeroRtt));
        if !reads {
            // The server's extensions are there, what proves its identity is not.
            hand_over_some(&mut server, &mut client, Level::Handshake, 200);
            assert!(!client.has_keys(Level::OneRtt) && !client.has_keys(Level::ZeroRtt));
        }
        hand_over(&mut server, &mut client, Level::Handshake);
        assert!(client.has_keys(Level::OneRtt) && !client.has_keys(Level::ZeroRtt));
        assert_eq!(client.is_early_data_accepted(), reads);
    }
}

#[test]
fn multipath_is_negotiated_anew_and_paths_open_after_early_data() {
    let house = House::new();
    let state = house.visit();
    let client = ClientConfig {
        resume: Some(early(&state)),
        ..house.client.clone()
    };
    let ways = vec![Way::new(0), Way::new(1)];
    let mut pair = Pair::with_configs(ways, client, house.server.clone());
    assert!(!pair.client_conn().has_multipath());
    let id = write(&mut pair, b"early");
    arrives(&mut pair, id, b"early");
    pair.connect();
    assert!(pair.client_conn().has_multipath());
    assert_eq!(pair.open_all().len(), 2);
}

#[test]
fn each_connection_leaves_a_state_for_the_next() {
    let house = House::new();
    let mut state = house.visit();
    for round in 0..5u8 {
        let mut pair = house.connect(Some(early(&state)));
        let id = write(&mut pair, &[round]);
        assert_eq!(arrives(&mut pair, id, &[round]), Duration::from_millis(10));
        pair.connect();
        pair.run_for(Duration::from_millis(100));
        state = pair.client_conn().take_resumption().expect("a ticket");
    }
}
