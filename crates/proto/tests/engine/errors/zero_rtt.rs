//! What a client may not say before the handshake ends, and what becomes of it when it is repeated.

use super::{Code, ZERO};
use crate::raw::{Packet, RawPeer, assert_closed, encode, route};
use crate::resumption::resuming;
use anabranch_proto::event::Level;
use anabranch_proto::wire::Side;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::header::{self, LongType};
use std::time::Duration;

/// Sends these bytes in a 0-RTT packet behind the client's first message.
fn say_early(payload: &[u8]) -> RawPeer {
    let mut peer = RawPeer::client(resuming());
    let early = peer.seal(&Packet::new(Level::ZeroRtt, payload.to_vec()));
    peer.send_crypto_at(Level::Initial);
    peer.deliver(peer.tuple, &early);
    peer
}

#[test]
fn what_answers_or_belongs_to_an_extension_is_refused_in_0_rtt_packets() {
    let forbidden: [&[u8]; 16] = [
        // ACK, CRYPTO, NEW_TOKEN, RETIRE_CONNECTION_ID, PATH_RESPONSE, HANDSHAKE_DONE.
        &[0x02, 0, 0, 0, 0],
        &[0x06, 0, 1, 1],
        &[0x07, 1, 1],
        &[0x19, 0],
        &[0x1b, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1e],
        // IMMEDIATE_ACK, ACK_FREQUENCY, TIMESTAMP.
        &[0x1f],
        &[0x40, 0xaf, 0, 1, 25, 1],
        &[0x42, 0xf5, 1],
        // PATH_ACK, PATH_ABANDON, PATH_STATUS_BACKUP, PATH_RETIRE_CONNECTION_ID, MAX_PATH_ID,
        // PATHS_BLOCKED, PATH_CIDS_BLOCKED.
        &[0x3e, 0, 0, 0, 0, 0],
        &[0x7e, 0x75, 0, 0],
        &[0x7e, 0x76, 0, 0],
        &[0x7e, 0x79, 0, 0],
        &[0x7e, 0x7a, 7],
        &[0x7e, 0x7b, 0],
        &[0x7e, 0x7c, 0, 0],
    ];
    for payload in forbidden {
        let peer = say_early(payload);
        assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        let reason = peer.ended().map(ToString::to_string).unwrap_or_default();
        assert!(
            reason.contains("before the handshake ends"),
            "{payload:x?}: {reason}"
        );
    }
    let mut peer = say_early(&encode(&[Frame::Ping]));
    assert_eq!(peer.ended(), None);
    let stats = peer.connection().expect("the victim").stats();
    assert_eq!(stats.packets_dropped, 0, "it was read");
}

#[test]
fn a_challenge_in_a_repeated_0_rtt_packet_is_not_answered_elsewhere() {
    let mut peer = RawPeer::client(resuming());
    let mut packet = Packet::new(
        Level::ZeroRtt,
        encode(&[Frame::PathChallenge { data: [9; 8] }]),
    );
    packet.size = 1200;
    let early = peer.seal(&packet);
    let mut peer = peer.establish();
    let elsewhere = route(Side::Server, 1);
    peer.deliver(elsewhere, &early);
    peer.wait(Duration::from_millis(50));
    assert_eq!(peer.bytes_to(elsewhere), 0);
    peer.assert_alive();
}

#[test]
fn packets_of_0_rtt_after_the_handshake_are_dropped_and_not_kept() {
    let mut peer = RawPeer::connected_client();
    let dropped = |peer: &mut RawPeer| {
        let victim = peer.connection().expect("the victim");
        victim.stats().packets_dropped
    };
    let before = dropped(&mut peer);
    for number in 0..20 {
        let (dcid, scid) = (peer.remote_cid(ZERO), peer.setup.cid);
        let mut bytes = Vec::new();
        let long = header::put_long(&mut bytes, LongType::ZeroRtt, &dcid, &scid, &[], number, 4);
        bytes.extend([7; 60]);
        let end = bytes.len();
        long.set_length(&mut bytes, end);
        peer.deliver(peer.tuple, &bytes);
    }
    assert_eq!(dropped(&mut peer) - before, 20);
    peer.assert_alive();
}
