//! Version negotiation, Retry and tokens.

use super::{ZERO, assert_closed};
use crate::raw::{ORIGINAL_DCID, Packet, RawPeer, Setup, encode, route};
use anabranch_proto::config::RetryPolicy;
use anabranch_proto::error::ConnectionError;
use anabranch_proto::event::Level;
use anabranch_proto::internals::retry_integrity_tag;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::header::{self, Header};
use anabranch_proto::wire::{ConnectionId, Side, TransportErrorCode as Code, VERSION_1};
use std::time::Duration;

const OTHER_VERSION: u32 = 0x6b33_43cf;

fn retry_cid() -> ConnectionId {
    ConnectionId::new(b"retried!").expect("eight bytes")
}

/// A real client whose first packet arrived, and its two connection IDs.
fn begun(retry: Option<ConnectionId>) -> (RawPeer, ConnectionId, ConnectionId) {
    let mut peer = RawPeer::server_named(Setup::default(), retry);
    peer.receive();
    let original = peer.connection().expect("the client").original_dcid();
    let scid = peer.remote_cid(ZERO);
    (peer, original, scid)
}

fn negotiation(dcid: &ConnectionId, scid: &ConnectionId, versions: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    header::put_version_negotiation(&mut bytes, dcid.as_slice(), scid.as_slice(), versions, 0);
    bytes
}

fn hand_over(peer: &mut RawPeer, bytes: &[u8]) {
    let tuple = peer.tuple;
    peer.deliver(tuple, bytes);
}

#[test]
fn a_server_without_our_version_ends_the_attempt() {
    let (mut peer, original, scid) = begun(None);
    hand_over(&mut peer, &negotiation(&scid, &original, &[OTHER_VERSION]));
    assert_eq!(peer.ended(), Some(&ConnectionError::VersionMismatch));
    assert_eq!(peer.close(), None);
}

#[test]
fn version_negotiation_that_cannot_be_an_answer_is_ignored() {
    let (mut peer, original, scid) = begun(None);
    let forged = [
        negotiation(&scid, &original, &[OTHER_VERSION, VERSION_1]),
        negotiation(&scid, &retry_cid(), &[OTHER_VERSION]),
        negotiation(&scid, &original, &[]),
        [&negotiation(&scid, &original, &[])[..], &[0x6b, 0x33]].concat(),
    ];
    for bytes in forged {
        hand_over(&mut peer, &bytes);
        assert_eq!(peer.ended(), None);
    }
    let mut peer = peer.establish();
    hand_over(&mut peer, &negotiation(&scid, &original, &[OTHER_VERSION]));
    peer.assert_alive();
}

#[test]
fn version_negotiation_after_another_packet_is_ignored() {
    let (mut peer, original, scid) = begun(None);
    peer.send_crypto_at(Level::Initial);
    hand_over(&mut peer, &negotiation(&scid, &original, &[OTHER_VERSION]));
    assert_eq!(peer.ended(), None);
    let (mut peer, original, scid) = begun(Some(retry_cid()));
    retry(&mut peer, &original, &scid, b"token");
    hand_over(&mut peer, &negotiation(&scid, &original, &[OTHER_VERSION]));
    assert_eq!(peer.ended(), None);
}

#[test]
fn an_unknown_version_is_answered_with_ours_if_the_datagram_is_full_size() {
    let mut peer = RawPeer::client(Setup::default());
    let mut bytes = vec![0_u8; 1200];
    bytes[0] = 0xc0;
    bytes[1..5].copy_from_slice(&OTHER_VERSION.to_be_bytes());
    bytes[5] = 8;
    bytes[6..14].copy_from_slice(&ORIGINAL_DCID);
    bytes[14] = 4;
    bytes[15..19].copy_from_slice(b"mine");
    hand_over(&mut peer, &bytes[..1199]);
    assert_eq!(peer.unopened.len(), 0);
    hand_over(&mut peer, &bytes);
    let answer = peer.unopened.pop().expect("an answer");
    let Ok(Header::VersionNegotiation {
        dcid,
        scid,
        versions,
    }) = header::parse(&answer, 8)
    else {
        panic!("not a version negotiation: {answer:?}");
    };
    assert_eq!((dcid, scid), (&b"mine"[..], &ORIGINAL_DCID[..]));
    assert_eq!(versions, VERSION_1.to_be_bytes());
    assert_eq!(peer.handle, None);
}

fn retry_packet(
    original: &ConnectionId,
    dcid: &ConnectionId,
    scid: &ConnectionId,
    token: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    header::put_retry(&mut bytes, dcid, scid, token);
    let tag = retry_integrity_tag(original, &bytes);
    bytes.extend_from_slice(&tag);
    bytes
}

/// Sends the client a Retry and takes its next Initial.
fn retry(peer: &mut RawPeer, original: &ConnectionId, scid: &ConnectionId, token: &[u8]) {
    peer.handshake.on_retry(&retry_cid());
    peer.answer_to(retry_cid());
    let bytes = retry_packet(original, scid, &retry_cid(), token);
    peer.inbox.clear();
    hand_over(peer, &bytes);
}

#[test]
fn a_client_follows_a_genuine_retry_once() {
    let (mut peer, original, scid) = begun(Some(retry_cid()));
    peer.raw_initials.clear();
    retry(&mut peer, &original, &scid, b"the token");
    let tokens: Vec<_> = peer.raw_initials.drain(..).collect();
    assert!(!tokens.is_empty());
    for (dcid, token) in tokens {
        assert_eq!((dcid, &token[..]), (retry_cid(), &b"the token"[..]));
    }
    // A second one changes nothing.
    let again = ConnectionId::new(b"again...").expect("eight bytes");
    hand_over(
        &mut peer,
        &retry_packet(&original, &scid, &again, b"other token"),
    );
    let mut peer = peer.establish();
    peer.assert_alive();
}

#[test]
fn a_retry_that_is_not_genuine_is_ignored() {
    let (mut peer, original, scid) = begun(None);
    let mut damaged = retry_packet(&original, &scid, &retry_cid(), b"token");
    *damaged.last_mut().expect("a tag") ^= 1;
    let forged = [
        damaged,
        // The tag covers the client's first destination connection ID.
        retry_packet(&scid, &scid, &retry_cid(), b"token"),
        // RFC 9000, section 17.2.5.2: an unchanged connection ID, and no token.
        retry_packet(&original, &scid, &original, b"token"),
        retry_packet(&original, &scid, &retry_cid(), b""),
    ];
    for bytes in forged {
        peer.raw_initials.clear();
        hand_over(&mut peer, &bytes);
        assert_eq!(peer.raw_initials.len(), 0);
    }
    peer.establish().assert_alive();
}

#[test]
fn a_retry_after_the_servers_first_packet_is_ignored() {
    let (mut peer, original, scid) = begun(None);
    peer.send_crypto_at(Level::Initial);
    let late = retry_packet(&original, &scid, &retry_cid(), b"token");
    hand_over(&mut peer, &late);
    peer.establish().assert_alive();
}

#[test]
fn a_retry_that_the_parameters_deny_is_an_error_and_so_is_the_reverse() {
    let (mut peer, original, scid) = begun(None);
    retry(&mut peer, &original, &scid, b"token");
    peer.shake();
    assert_closed(&peer, Code::TRANSPORT_PARAMETER_ERROR);
    let (mut peer, _, _) = begun(Some(retry_cid()));
    peer.shake();
    assert_closed(&peer, Code::TRANSPORT_PARAMETER_ERROR);
}

/// A scripted client that was told to retry, and the token it was given.
fn told_to_retry() -> (RawPeer, Vec<u8>) {
    let mut peer = RawPeer::client(Setup {
        server: |config| config.retry = RetryPolicy::Always,
        ..Setup::default()
    });
    peer.send_crypto_at(Level::Initial);
    let answer = peer.unopened.pop().expect("an answer");
    let Ok(Header::Retry { scid, token, .. }) = header::parse(&answer, 8) else {
        panic!("not a Retry: {answer:?}");
    };
    assert_eq!(peer.handle, None, "no state is kept");
    assert!(answer.len() < 1200);
    peer.handshake.on_retry(&scid);
    peer.remote_cids.insert((ZERO, 0), (scid, None));
    (peer, token.to_vec())
}

#[test]
fn a_client_that_returns_the_token_is_served() {
    let (mut peer, token) = told_to_retry();
    peer.setup.token = token;
    peer.establish().assert_alive();
}

#[test]
fn a_token_that_is_not_genuine_is_refused_without_state() {
    let spoil: [fn(&mut RawPeer, &mut Vec<u8>); 4] = [
        |_, token| *token.last_mut().expect("a token") ^= 1,
        |_, token| token.truncate(token.len() / 2),
        |peer, _| peer.tuple = route(Side::Server, 9),
        |peer, _| peer.now += Duration::from_secs(3600),
    ];
    for spoil in spoil {
        let (mut peer, mut token) = told_to_retry();
        spoil(&mut peer, &mut token);
        peer.setup.token = token;
        peer.send_crypto_at(Level::Initial);
        let (code, _) = peer.close().expect("CONNECTION_CLOSE");
        assert_eq!(Code(code), Code::INVALID_TOKEN);
        assert_eq!(peer.handle, None);
    }
}

#[test]
fn a_token_for_another_connection_id_is_refused() {
    let (mut peer, token) = told_to_retry();
    peer.setup.token = token;
    let other = ConnectionId::new(b"other id").expect("eight bytes");
    peer.handshake.on_retry(&other);
    peer.remote_cids.insert((ZERO, 0), (other, None));
    peer.send_crypto_at(Level::Initial);
    let (code, _) = peer.close().expect("CONNECTION_CLOSE");
    assert_eq!(Code(code), Code::INVALID_TOKEN);
}

#[test]
fn a_token_nobody_knows_is_no_reason_to_refuse() {
    let mut peer = RawPeer::client(Setup {
        token: b"from another server".to_vec(),
        ..Setup::default()
    });
    peer.shake();
    assert!(peer.handshake.is_complete());
}

#[test]
fn a_server_never_sends_a_token_in_an_initial() {
    let (mut peer, _, _) = begun(None);
    peer.setup.token = b"token".to_vec();
    peer.send_crypto_at(Level::Initial);
    peer.send(Packet::new(Level::Initial, encode(&[Frame::HandshakeDone])));
    assert_eq!(peer.ended(), None, "the packets are dropped");
    assert!(!peer.victim_has_handshake_keys());
}
