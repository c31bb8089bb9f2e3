//! Two handshakes that exchange CRYPTO frames in memory.

use super::tls::{
    ClientAuth, ClientTls, Fingerprint, Identity, KeyPair, ServerResumption, ServerTls, fixed,
};
use super::{Handshake, KeyUpdateRefused, Level, OpenError};
use crate::error::TransportError;
use crate::packet::Frames;
use crate::recovery::sent::SentFrame;
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use anabranch_wire::cursor::Reader;
use anabranch_wire::{ConnectionId, PathId, Side, TransportErrorCode};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{CipherSuite, KeyLog};
use std::sync::{Arc, Mutex};

pub(super) const LEVELS: [Level; 3] = [Level::Initial, Level::Handshake, Level::OneRtt];
const ALPN: &[&[u8]] = &[b"test"];

pub(super) fn unhex(text: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks(2).map(digits).collect()
}

pub(super) fn key_pair(seed: u8) -> KeyPair {
    KeyPair::generate(&fixed::provider(None), [seed; 32]).unwrap()
}

pub(super) fn server_config() -> ServerTls {
    let builder = ServerTls::with_raw_key(fixed::provider(None), &key_pair(1));
    builder.alpn(ALPN).build().unwrap()
}

pub(super) fn client_config() -> ClientTls {
    let builder = ClientTls::pinned(fixed::provider(None), key_pair(1).fingerprint());
    builder.alpn(ALPN).build().unwrap()
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) client: Handshake,
    pub(super) server: Handshake,
}

fn cid() -> ConnectionId {
    ConnectionId::new(&[7; 8]).unwrap()
}

impl Pair {
    pub(super) fn new(client: &ClientTls, server: &ServerTls) -> Self {
        Self {
            client: Handshake::client(client, "localhost", b"of client".to_vec(), &cid(), None)
                .unwrap(),
            server: Handshake::server(server, b"of server".to_vec(), &cid()).unwrap(),
        }
    }

    /// A pair that is through, confirmed on both sides.
    pub(super) fn complete() -> Self {
        let mut pair = Self::new(&client_config(), &server_config());
        pair.run().unwrap();
        pair.client.set_confirmed();
        pair.server.set_confirmed();
        pair
    }

    /// Exchanges CRYPTO frames until there are none; an error tells who found it.
    fn run(&mut self) -> Result<(), (Side, TransportError)> {
        loop {
            let up = deliver(&mut self.client, &mut self.server);
            let down = deliver(&mut self.server, &mut self.client);
            let any = up.map_err(|e| (Side::Server, e))? | down.map_err(|e| (Side::Client, e))?;
            if !any {
                return Ok(());
            }
        }
    }
}

/// CRYPTO frames of one packet as (offset, data).
fn frames(packet: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut reader = Reader::new(packet);
    let mut frames = Vec::new();
    while !reader.is_empty() {
        assert_eq!(reader.varint(), Ok(0x06));
        let offset = reader.varint().unwrap();
        frames.push((offset, reader.length_prefixed().unwrap().to_vec()));
    }
    frames
}

/// All CRYPTO frames that wait at one level, in packets of 300 bytes.
fn flight(from: &mut Handshake, level: Level) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let mut packet = Vec::new();
        let mut written = Frames::new(&mut packet, 300);
        if !from.write_crypto(level, &mut written) {
            return all;
        }
        assert!(!written.sent().is_empty());
        assert!(packet.len() <= 300);
        all.extend(frames(&packet));
    }
}

fn deliver(from: &mut Handshake, to: &mut Handshake) -> Result<bool, TransportError> {
    let mut any = false;
    for level in LEVELS {
        for (offset, data) in flight(from, level) {
            any = true;
            to.on_crypto(level, offset, &data)?;
        }
    }
    Ok(any)
}

/// A 1-RTT packet with an 8-byte connection ID and a 4-byte packet number.
pub(super) fn sealed(from: &mut Handshake, path: PathId, pn: u64) -> Vec<u8> {
    let mut packet = vec![0x43 | u8::from(from.key_phase()) << 2];
    packet.extend([7; 8]);
    packet.extend((pn as u32).to_be_bytes());
    packet.extend(b"payload");
    from.seal(Level::OneRtt, path, pn, &mut packet, 0, 9, 4)
        .unwrap();
    packet
}

pub(super) fn opened(
    to: &mut Handshake,
    now: Instant,
    path: PathId,
    mut packet: Vec<u8>,
) -> Result<(), OpenError> {
    let seen = to
        .unprotect(Level::OneRtt, &mut packet, 9)
        .ok_or(OpenError::Undecryptable)?;
    let payload = to.open(
        now,
        Level::OneRtt,
        path,
        seen.pn,
        seen.key_phase,
        &mut packet,
        13,
    )?;
    assert_eq!(&packet[payload], b"payload");
    Ok(())
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<(String, Vec<u8>)>>);

impl KeyLog for Log {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        self.0
            .lock()
            .unwrap()
            .push((label.to_owned(), secret.to_vec()));
    }
}

/// A client whose handshake is complete, and the secret its first 1-RTT keys derive from.
pub(super) fn client_with_logged_secret() -> (Handshake, Vec<u8>) {
    let log = Arc::new(Log::default());
    let provider = fixed::provider(Some(CipherSuite::TLS13_AES_128_GCM_SHA256));
    let client = ClientTls::pinned(provider, key_pair(1).fingerprint())
        .alpn(ALPN)
        .key_log(Arc::clone(&log) as Arc<_>)
        .build()
        .unwrap();
    let mut pair = Pair::new(&client, &server_config());
    pair.run().unwrap();
    let logged = log.0.lock().unwrap();
    let (_, secret) = logged
        .iter()
        .find(|(label, _)| label == "CLIENT_TRAFFIC_SECRET_0")
        .unwrap();
    (pair.client, secret.clone())
}

#[derive(Debug)]
struct Clock(u64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
    }
}

/// 2030, when certificates made by these tests are valid.
fn clock() -> Arc<dyn TimeProvider> {
    Arc::new(Clock(1_893_456_000))
}

/// A self-signed certificate and its key in PKCS#8.
fn self_signed() -> (Vec<u8>, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    (made.cert.der().to_vec(), made.signing_key.serialize_der())
}

/// An authority's certificate; a certificate it signed for `localhost`, and that one's key.
fn authority() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = params.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let leaf_key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap();
    (
        root.der().to_vec(),
        leaf.der().to_vec(),
        leaf_key.serialize_der(),
    )
}

fn assert_through(pair: &Pair) {
    for (this, other) in [(&pair.client, "of server"), (&pair.server, "of client")] {
        assert!(this.is_complete());
        assert!(!this.is_confirmed());
        assert_eq!(this.alpn(), Some(&b"test"[..]));
        assert_eq!(this.peer_params(), Some(other.as_bytes()));
        assert!(
            LEVELS
                .iter()
                .all(|level| this.has_keys(*level) && !this.has_crypto(*level))
        );
    }
    let export = |handshake: &Handshake| {
        let mut out = [0; 40];
        handshake
            .export_keying_material(&mut out, b"label", b"context")
            .unwrap();
        out
    };
    assert_eq!(export(&pair.client), export(&pair.server));
    assert_ne!(export(&pair.client), [0; 40]);
}

#[test]
fn a_pinned_raw_public_key_is_accepted() {
    let mut pair = Pair::new(&client_config(), &server_config());
    pair.run().unwrap();
    assert_through(&pair);
    assert_eq!(pair.client.peer_identity().unwrap(), key_pair(1).spki_der());
    assert_eq!(pair.server.peer_identity(), None);
    assert_eq!(pair.server.server_name(), Some("localhost"));
}

#[test]
fn a_pinned_certificate_is_accepted_from_a_server_that_also_shows_raw_keys() {
    let (certificate, key) = self_signed();
    let provider = fixed::provider(None);
    let server = ServerTls::with_certificates(provider, vec![certificate.clone()], &key)
        .unwrap()
        .alpn(ALPN)
        .build()
        .unwrap();
    let pin = Fingerprint::of_certificate(&certificate).unwrap();

    let by_certificate = ClientTls::pinned_certificate(fixed::provider(None), pin);
    let mut pair = Pair::new(&by_certificate.alpn(ALPN).build().unwrap(), &server);
    pair.run().unwrap();
    assert_through(&pair);
    assert_eq!(pair.client.peer_identity().unwrap(), certificate);

    let by_raw_key = ClientTls::pinned(fixed::provider(None), pin);
    let mut pair = Pair::new(&by_raw_key.alpn(ALPN).build().unwrap(), &server);
    pair.run().unwrap();
    assert_through(&pair);
    let spki = pair.client.peer_identity().unwrap();
    assert_eq!(Fingerprint::of_spki(&spki), pin);
}

#[test]
fn another_key_than_the_pinned_one_is_refused_with_an_alert_that_names_both() {
    let wrong = key_pair(2).fingerprint();
    let client = ClientTls::pinned(fixed::provider(None), wrong)
        .alpn(ALPN)
        .build()
        .unwrap();
    let (side, error) = Pair::new(&client, &server_config()).run().unwrap_err();
    assert_eq!(
        (side, error.code),
        (Side::Client, TransportErrorCode::crypto(46))
    );
    assert_eq!(error.frame_type, 0x06);
    assert!(error.reason.contains(&wrong.to_string()), "{error}");
    assert!(
        error
            .reason
            .contains(&key_pair(1).fingerprint().to_string()),
        "{error}"
    );
}

#[test]
fn a_client_that_wants_a_certificate_is_refused_by_a_server_without_one() {
    let pin = key_pair(1).fingerprint();
    let client = ClientTls::pinned_certificate(fixed::provider(None), pin);
    let client = client.alpn(ALPN).build().unwrap();
    let (side, error) = Pair::new(&client, &server_config()).run().unwrap_err();
    assert_eq!(
        (side, error.code),
        (Side::Server, TransportErrorCode::crypto(40))
    );
}

#[test]
fn no_application_protocol_in_common_is_error_0x178() {
    let pin = key_pair(1).fingerprint();
    let client = ClientTls::pinned(fixed::provider(None), pin).alpn(&[b"other"]);
    let mut pair = Pair::new(&client.build().unwrap(), &server_config());
    let (side, error) = pair.run().unwrap_err();
    assert_eq!((side, error.code.0), (Side::Server, 0x178));
}

#[test]
fn certificates_of_an_authority_identify_both_sides() {
    let (root, certificate, key) = authority();
    let server =
        ServerTls::with_certificates(fixed::provider(None), vec![certificate.clone()], &key)
            .unwrap()
            .alpn(ALPN)
            .client_auth(ClientAuth::Ca {
                roots: vec![root.clone()],
                clock: clock(),
            })
            .build()
            .unwrap();
    let client = || ClientTls::with_roots(fixed::provider(None), vec![root.clone()], clock());
    let key = KeyPair::from_pkcs8_der(&fixed::provider(None), &key).unwrap();
    let identity = Identity::Certificates {
        chain: vec![certificate.clone()],
        key,
    };

    let known = client().alpn(ALPN).identity(identity).build().unwrap();
    let mut pair = Pair::new(&known, &server);
    pair.run().unwrap();
    assert_through(&pair);
    assert_eq!(pair.server.peer_identity().unwrap(), certificate);

    let nameless = client().alpn(ALPN).build().unwrap();
    let (side, error) = Pair::new(&nameless, &server).run().unwrap_err();
    assert_eq!(
        (side, error.code),
        (Side::Server, TransportErrorCode::crypto(116))
    );
}

#[test]
fn configurations_of_the_tls_library_are_taken_as_they_are() {
    use rustls::version::TLS13;

    let (root, certificate, key) = authority();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.into()).unwrap();
    let client = |alpn: &[&[u8]]| {
        let builder = rustls::ClientConfig::builder_with_details(fixed::provider(None), clock());
        let mut tls = builder
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        tls.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        ClientTls::from_rustls(tls)
    };
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key);
    let mut server = rustls::ServerConfig::builder_with_details(fixed::provider(None), clock())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.into()], key.into())
        .unwrap();
    let nameless = ServerTls::from_rustls(server.clone());
    assert_eq!(nameless.unwrap_err(), super::tls::ConfigError::NoAlpn);
    server.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
    let server = ServerTls::from_rustls(server).unwrap();

    let mut pair = Pair::new(&client(ALPN).unwrap(), &server);
    pair.run().unwrap();
    assert_through(&pair);
    assert!(!pair.client.has_session());
    assert_eq!(client(&[]).unwrap_err(), super::tls::ConfigError::NoAlpn);
}

#[test]
fn clients_known_by_certificates_that_expire_get_no_tickets() {
    let (root, certificate, key) = authority();
    let by_certificate = ClientAuth::Ca {
        roots: vec![root.clone()],
        clock: clock(),
    };
    for (auth, resumes) in [(ClientAuth::None, true), (by_certificate, false)] {
        let chain = vec![certificate.clone()];
        let server = ServerTls::with_certificates(fixed::provider(None), chain.clone(), &key);
        let server = server.unwrap().alpn(ALPN).client_auth(auth);
        let server = server.resumption(ServerResumption {
            clock: clock(),
            early_data: true,
        });
        let key = KeyPair::from_pkcs8_der(&fixed::provider(None), &key).unwrap();
        let client = ClientTls::with_roots(fixed::provider(None), vec![root.clone()], clock())
            .alpn(ALPN)
            .identity(Identity::Certificates { chain, key })
            .resumption(true);
        let mut pair = Pair::new(&client.build().unwrap(), &server.build().unwrap());
        pair.run().unwrap();
        assert_eq!(pair.client.has_session(), resumes);
    }
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_refused() {
    let (root, certificate, key) = authority();
    let server = ServerTls::with_certificates(fixed::provider(None), vec![certificate], &key);
    let server = server.unwrap().alpn(ALPN).build().unwrap();
    let client = ClientTls::with_roots(fixed::provider(None), vec![root], Arc::new(Clock(1)));
    let client = client.alpn(ALPN).build().unwrap();
    let (side, error) = Pair::new(&client, &server).run().unwrap_err();
    assert_eq!(
        (side, error.code),
        (Side::Client, TransportErrorCode::crypto(45))
    );
}

#[test]
fn clients_are_admitted_by_pinned_keys() {
    let pins = vec![key_pair(5).fingerprint(), key_pair(6).fingerprint()];
    let server = ServerTls::with_raw_key(fixed::provider(None), &key_pair(1))
        .alpn(ALPN)
        .client_auth(ClientAuth::Pinned(pins))
        .build()
        .unwrap();
    let client = |key| {
        ClientTls::pinned(fixed::provider(None), key_pair(1).fingerprint())
            .alpn(ALPN)
            .identity(Identity::RawKey(key_pair(key)))
            .build()
            .unwrap()
    };
    let mut pair = Pair::new(&client(6), &server);
    pair.run().unwrap();
    assert_through(&pair);
    assert_eq!(pair.server.peer_identity().unwrap(), key_pair(6).spki_der());

    let (side, error) = Pair::new(&client(7), &server).run().unwrap_err();
    assert_eq!(
        (side, error.code),
        (Side::Server, TransportErrorCode::crypto(46))
    );
    // A server that does not ask does not mind the offer.
    let mut pair = Pair::new(&client(6), &server_config());
    pair.run().unwrap();
    assert_through(&pair);
}

#[test]
fn after_a_retry_the_client_hello_is_sent_again_under_other_keys() {
    let mut pair = Pair::new(&client_config(), &server_config());
    let first = flight(&mut pair.client, Level::Initial);
    assert!(!pair.client.has_crypto(Level::Initial));
    let retry_scid = ConnectionId::new(b"from retry").unwrap();
    pair.client.on_retry(&retry_scid);
    // The packet the server threw away may be declared lost now: nothing changes.
    pair.client.on_crypto_lost(Level::Initial, 0, 5);
    assert_eq!(flight(&mut pair.client, Level::Initial), first);
    pair.server = Handshake::server(&server_config(), b"of server".to_vec(), &retry_scid).unwrap();

    let mut packet = unhex("c00000000100000000000001");
    packet.extend([1; 40]);
    pair.client
        .seal(Level::Initial, PathId::ZERO, 1, &mut packet, 0, 11, 1)
        .unwrap();
    let mut unchanged = Handshake::server(&server_config(), Vec::new(), &cid()).unwrap();
    let open = |server: &mut Handshake| {
        let mut packet = packet.clone();
        let seen = server.unprotect(Level::Initial, &mut packet, 11).unwrap();
        let (pn, header) = (seen.pn, 11 + seen.pn_len);
        server.open(
            Instant::ZERO,
            Level::Initial,
            PathId::ZERO,
            pn,
            false,
            &mut packet,
            header,
        )
    };
    assert_eq!(open(&mut pair.server), Ok(12..52));
    assert_eq!(open(&mut unchanged), Err(OpenError::Undecryptable));
    for (offset, data) in first {
        pair.server
            .on_crypto(Level::Initial, offset, &data)
            .unwrap();
    }
    pair.run().unwrap();
    assert_through(&pair);
}

#[test]
fn crypto_frames_may_arrive_in_any_order_and_more_than_once() {
    let mut rng = Rng::from_seed([3; 32]);
    for _ in 0..20 {
        let mut pair = Pair::new(&client_config(), &server_config());
        for _ in 0..4 {
            for level in LEVELS {
                for upwards in [true, false] {
                    let Pair { client, server } = &mut pair;
                    let (from, to) = if upwards {
                        (client, server)
                    } else {
                        (server, client)
                    };
                    let mut pieces = Vec::new();
                    for (offset, data) in flight(from, level) {
                        for (index, byte) in data.chunks(40).enumerate() {
                            pieces.push((offset + 40 * index as u64, byte.to_vec()));
                        }
                    }
                    let copies: Vec<_> = pieces.iter().step_by(3).cloned().collect();
                    pieces.extend(copies);
                    while !pieces.is_empty() {
                        let at = rng.below(pieces.len() as u64) as usize;
                        let (offset, data) = pieces.swap_remove(at);
                        to.on_crypto(level, offset, &data).unwrap();
                    }
                }
            }
        }
        assert_through(&pair);
    }
}

#[test]
fn a_server_may_ask_for_another_client_hello() {
    use rustls::crypto::ring::kx_group::{SECP256R1, X25519};
    let mut groups = Arc::unwrap_or_clone(fixed::provider(None));
    groups.kx_groups = vec![SECP256R1, X25519];
    let client = ClientTls::pinned(Arc::new(groups.clone()), key_pair(1).fingerprint());
    groups.kx_groups = vec![X25519];
    let server = ServerTls::with_raw_key(Arc::new(groups), &key_pair(1));
    let (client, server) = (client.alpn(ALPN).build(), server.alpn(ALPN).build());
    let mut pair = Pair::new(&client.unwrap(), &server.unwrap());
    assert!(deliver(&mut pair.client, &mut pair.server).unwrap());
    assert!(
        !pair.server.has_keys(Level::Handshake),
        "the server wants another key share first"
    );
    pair.run().unwrap();
    assert_through(&pair);
}

#[test]
fn lost_crypto_is_sent_again_and_acknowledged_crypto_is_not() {
    let mut pair = Pair::new(&client_config(), &server_config());
    let mut packet = Vec::new();
    let mut written = Frames::new(&mut packet, 100);
    assert!(pair.client.write_crypto(Level::Initial, &mut written));
    let [SentFrame::Crypto { start: 0, length }] = written.sent()[..] else {
        panic!("{written:?}")
    };
    flight(&mut pair.client, Level::Initial);
    pair.client.on_crypto_acked(Level::Initial, 0, 10);
    pair.client.on_crypto_lost(Level::Initial, 0, length);
    assert!(pair.client.has_crypto(Level::Initial));
    let again = flight(&mut pair.client, Level::Initial);
    assert_eq!(again[0].0, 10);
    assert_eq!(again[0].1, frames(&packet)[0].1[10..]);
    assert_eq!(again.len(), 1);
}

#[test]
fn a_server_sends_1rtt_packets_before_it_is_complete_but_opens_none() {
    let mut pair = Pair::new(&client_config(), &server_config());
    deliver(&mut pair.client, &mut pair.server).unwrap();
    assert!(pair.server.has_keys(Level::OneRtt));
    assert!(!pair.server.is_complete() && !pair.server.can_open(Level::OneRtt));
    let early = sealed(&mut pair.server, PathId::ZERO, 0);
    deliver(&mut pair.server, &mut pair.client).unwrap();
    assert!(pair.client.is_complete());
    opened(&mut pair.client, Instant::ZERO, PathId::ZERO, early).unwrap();

    let packet = sealed(&mut pair.client, PathId::ZERO, 0);
    let refused = opened(
        &mut pair.server,
        Instant::ZERO,
        PathId::ZERO,
        packet.clone(),
    );
    assert_eq!(refused, Err(OpenError::Undecryptable));
    assert_eq!(pair.server.failed_opens(), 0);
    deliver(&mut pair.client, &mut pair.server).unwrap();
    opened(&mut pair.server, Instant::ZERO, PathId::ZERO, packet).unwrap();
}

#[test]
fn a_discarded_level_has_no_keys_and_takes_and_sends_no_crypto() {
    let mut pair = Pair::new(&client_config(), &server_config());
    pair.client.discard(Level::Initial);
    assert!(!pair.client.has_keys(Level::Initial) && !pair.client.has_crypto(Level::Initial));
    pair.client
        .on_crypto(Level::Initial, 0, b"whatever")
        .unwrap();
    pair.client.on_crypto_lost(Level::Initial, 0, 100);
    assert!(!pair.client.has_crypto(Level::Initial));
    let error = pair
        .client
        .seal(Level::Initial, PathId::ZERO, 0, &mut vec![0; 40], 0, 9, 1);
    assert_eq!(error.unwrap_err().code, TransportErrorCode::INTERNAL_ERROR);
}

#[test]
fn crypto_after_the_end_of_its_level_is_a_violation() {
    let mut pair = Pair::complete();
    pair.server
        .on_crypto(Level::Initial, 0, b"repeated")
        .unwrap();
    let error = pair
        .server
        .on_crypto(Level::Initial, 4000, b"more")
        .unwrap_err();
    assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
}

#[test]
fn crypto_that_waits_for_a_gap_when_its_level_ends_is_a_violation() {
    let mut pair = Pair::new(&client_config(), &server_config());
    pair.server
        .on_crypto(Level::Initial, 5000, b"stray")
        .unwrap();
    let error = deliver(&mut pair.client, &mut pair.server).unwrap_err();
    assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
}

#[test]
fn a_client_hello_that_claims_to_be_huge_is_refused() {
    let mut pair = Pair::new(&client_config(), &server_config());
    let error = pair
        .server
        .on_crypto(Level::Initial, 0, &[1, 0, 0x40, 0])
        .unwrap_err();
    assert_eq!(error.code, TransportErrorCode::CRYPTO_BUFFER_EXCEEDED);
}

#[test]
fn nonsense_in_place_of_tls_is_an_alert_and_never_a_panic() {
    let mut rng = Rng::from_seed([4; 32]);
    for round in 0..200 {
        let mut pair = Pair::new(&client_config(), &server_config());
        let mut hello: Vec<u8> = flight(&mut pair.client, Level::Initial)
            .into_iter()
            .flat_map(|(_, d)| d)
            .collect();
        if round % 4 == 0 {
            hello = vec![0; rng.below(300) as usize];
            rng.fill(&mut hello);
        } else {
            let at = rng.below(hello.len() as u64) as usize;
            hello[at] ^= 1 << rng.below(8);
        }
        if let Err(error) = pair.server.on_crypto(Level::Initial, 0, &hello) {
            let code = error.code.0;
            let known = TransportErrorCode::CRYPTO_BUFFER_EXCEEDED.0;
            assert!((0x100..0x200).contains(&code) || code == known, "{error}");
        }
        assert!(!pair.server.is_complete());
    }
}

#[test]
fn datagrams_cut_short_are_left_alone() {
    let mut pair = Pair::complete();
    let packet = sealed(&mut pair.client, PathId(1), 0);
    for length in 0..9 + 4 + 16 {
        let mut cut = packet[..length].to_vec();
        assert_eq!(pair.server.unprotect(Level::OneRtt, &mut cut, 9), None);
        assert_eq!(cut, packet[..length]);
        let now = Instant::ZERO;
        for header_len in [0, 9, 13, 40] {
            let result = pair.server.open(
                now,
                Level::OneRtt,
                PathId(1),
                0,
                false,
                &mut cut,
                header_len,
            );
            assert_eq!(result, Err(OpenError::Undecryptable));
        }
    }
    opened(&mut pair.server, Instant::ZERO, PathId(1), packet).unwrap();
}

#[test]
fn a_key_update_waits_for_the_handshake_to_be_confirmed() {
    let mut pair = Pair::new(&client_config(), &server_config());
    let refused = Err(KeyUpdateRefused::NotConfirmed);
    assert_eq!(
        pair.client.update_keys(Instant::ZERO, Duration::ZERO),
        refused
    );
    pair.run().unwrap();
    assert_eq!(
        pair.client.update_keys(Instant::ZERO, Duration::ZERO),
        refused
    );
}

#[test]
fn a_key_pair_survives_pem_and_a_fingerprint_its_text() {
    let provider = fixed::provider(None);
    let key = key_pair(9);
    let again = KeyPair::from_pem(&provider, &key.to_pem()).unwrap();
    assert_eq!(again.pkcs8_der(), key.pkcs8_der());
    let fingerprint = key.fingerprint();
    assert_eq!(again.fingerprint(), fingerprint);
    assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
    assert_eq!(
        fingerprint.to_string().to_uppercase().parse(),
        Ok(fingerprint)
    );
    for text in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
        assert!(text.parse::<Fingerprint>().is_err());
    }
    assert!(!format!("{key:?}").contains("9, 9"));
    assert!(rcgen::KeyPair::from_pem(&key.to_pem()).is_ok());
}

#[test]
fn a_configuration_that_cannot_work_is_refused_when_it_is_built() {
    use super::tls::ConfigError;
    let provider = || fixed::provider(None);
    let pin = key_pair(1).fingerprint();
    assert_eq!(
        ClientTls::pinned(provider(), pin).build().err(),
        Some(ConfigError::NoAlpn)
    );
    let no_pins = ServerTls::with_raw_key(provider(), &key_pair(1))
        .alpn(ALPN)
        .client_auth(ClientAuth::Pinned(Vec::new()));
    assert_eq!(no_pins.build().err(), Some(ConfigError::NoPin));
    let (certificate, _) = self_signed();
    let other = key_pair(1);
    let mismatch = ServerTls::with_certificates(provider(), vec![certificate], other.pkcs8_der());
    assert_eq!(
        mismatch.unwrap().alpn(ALPN).build().err(),
        Some(ConfigError::KeyMismatch)
    );
    let chacha = fixed::provider(Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256));
    let no_suite = ClientTls::pinned(chacha, pin).alpn(ALPN).build();
    assert_eq!(no_suite.err(), Some(ConfigError::NoInitialSuite));
    let bad_name = Handshake::client(&client_config(), "not a name", Vec::new(), &cid(), None);
    assert_eq!(
        bad_name.err(),
        Some(ConfigError::ServerName("not a name".into()))
    );
    assert!(client_config().supports_multipath() && server_config().supports_multipath());
}
