//! Packet protection and the level of frames (rows 11, 12 and 21).

use super::{BOTH, ONE, ZERO, assert_closed};
use crate::raw::{Packet, RawPeer, Setup, encode};
use anabranch_proto::event::Level;
use anabranch_proto::wire::TransportErrorCode as Code;
use anabranch_proto::wire::frame::Frame;

/// Row 11. The limits themselves are the business of `handshake::tests`.
#[test]
fn packets_that_fail_to_open_are_counted_over_all_paths() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    let home = peer.tuple;
    let before = peer.connection().expect("the victim").stats();
    for (path, tuple) in [(ZERO, home), (ONE, there)] {
        for _ in 0..10 {
            let mut bytes = peer.seal(&Packet::one_rtt(path, encode(&[Frame::Ping])));
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            peer.deliver(tuple, &bytes);
        }
    }
    let after = peer.connection().expect("the victim").stats();
    assert_eq!(after.failed_opens - before.failed_opens, 20);
    peer.assert_alive();
}

/// Row 12.
#[test]
fn a_forged_key_update_leaves_no_trace() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        // Genuine packets of the next phase, damaged on the way.
        let tuple = peer.tuple;
        let genuine = peer.seal(&Packet::one_rtt(ZERO, encode(&[Frame::Ping])));
        peer.update_keys();
        for at in 20..30 {
            let mut forged = peer.seal(&Packet::one_rtt(ZERO, vec![1; 40]));
            forged[at] ^= 0x80;
            peer.deliver(tuple, &forged);
        }
        let stats = peer.connection().expect("the victim").stats();
        assert_eq!(stats.keys_updated, 0);
        // The current phase still works, and so does the real update after it.
        peer.deliver(tuple, &genuine);
        peer.assert_alive();
        let stats = peer.connection().expect("the victim").stats();
        assert_eq!(stats.keys_updated, 1);
    }
}

/// Row 21.
#[test]
fn a_frame_of_the_extension_is_refused_early_without_being_read() {
    for victim in BOTH {
        for kind in [0x3e, 0x3f]
            .map(|kind| vec![kind])
            .into_iter()
            .chain((0x75..=0x7c).map(|kind| vec![0x7e, kind]))
        {
            let raw = |victim: anabranch_proto::wire::Side| {
                if victim.is_server() {
                    RawPeer::client(Setup::default())
                } else {
                    RawPeer::server(Setup::default())
                }
            };
            let mut peer = raw(victim).half_way();
            // Nothing follows the type, or nothing but ones.
            let mut payload = kind.clone();
            payload.extend([0xff; 6]);
            peer.send(Packet::new(Level::Handshake, payload.clone()));
            assert_closed(&peer, Code::PROTOCOL_VIOLATION);
            let mut peer = raw(victim);
            peer.receive();
            peer.send(Packet::new(Level::Initial, payload));
            assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        }
    }
}
