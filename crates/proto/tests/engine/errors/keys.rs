//! Key updates and stateless resets.

use super::{BOTH, ZERO, assert_closed};
use crate::raw::{Packet, RawPeer, encode, new_cid, token};
use anabranch_proto::error::ConnectionError;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::{PathId, ResetToken, Side, TransportErrorCode as Code};
use std::time::Duration;

const ONE: PathId = PathId(1);

fn padding() -> Vec<u8> {
    encode(&[Frame::Padding { length: 4 }])
}

fn updates(peer: &mut RawPeer) -> u64 {
    let victim = peer.connection().expect("the victim");
    victim.stats().keys_updated
}

#[test]
fn a_key_update_of_the_peer_is_followed() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        peer.update_keys();
        peer.assert_alive();
        assert_eq!(updates(&mut peer), 1);
    }
}

#[test]
fn a_second_key_update_before_the_first_was_answered_is_an_error() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        peer.update_keys();
        peer.bytes(ZERO, &padding());
        assert_eq!(peer.ended(), None);
        peer.update_keys();
        peer.bytes(ZERO, &padding());
        // The victim's answer is under keys that the script has left behind: ask its application.
        match peer.ended() {
            Some(ConnectionError::Transport(error)) => {
                assert_eq!(error.code, Code::KEY_UPDATE_ERROR);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn old_keys_on_a_later_packet_are_an_error() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        let mut late = Packet::one_rtt(ZERO, padding());
        late.pn = Some(peer.next_pn(late.level, ZERO) + 100);
        let late = peer.seal(&late);
        peer.handshake.forget_path(ZERO);
        peer.update_after_forgetting();
        let mut early = Packet::one_rtt(ZERO, padding());
        early.pn = Some(peer.next_pn(early.level, ZERO) - 50);
        peer.send(early);
        assert_eq!(updates(&mut peer), 1);
        let tuple = peer.tuple;
        peer.deliver(tuple, &late);
        assert_closed(&peer, Code::KEY_UPDATE_ERROR);
    }
}

#[test]
fn old_keys_on_an_earlier_packet_are_late_and_legal() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        let late = peer.seal(&Packet::one_rtt(ZERO, padding()));
        peer.update_keys();
        peer.bytes(ZERO, &padding());
        let tuple = peer.tuple;
        peer.deliver(tuple, &late);
        peer.assert_alive();
        assert_eq!(updates(&mut peer), 1);
    }
}

#[test]
fn packet_numbers_of_one_path_do_not_judge_the_keys_of_another() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    // A high number under old keys on path 1, then a low one under new keys on path 0.
    let mut slow = Packet::one_rtt(ONE, padding());
    slow.pn = Some(5000);
    let slow = peer.seal(&slow);
    peer.update_keys();
    peer.bytes(ZERO, &padding());
    peer.deliver(there, &slow);
    peer.assert_alive();
    assert_eq!(updates(&mut peer), 1);
}

#[test]
fn a_flipped_key_phase_bit_changes_nothing() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        for _ in 0..100 {
            let mut packet = Packet::one_rtt(ZERO, encode(&[Frame::HandshakeDone]));
            packet.flip = 0x04;
            let mut bytes = peer.seal(&packet);
            *bytes.last_mut().expect("a tag") ^= 0x55;
            let tuple = peer.tuple;
            peer.deliver(tuple, &bytes);
        }
        peer.assert_alive();
        assert_eq!(updates(&mut peer), 0);
    }
}

/// A datagram that looks like a packet and ends in this token.
fn reset(ResetToken(token): ResetToken, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length - 16).map(|at| (at * 37 + 5) as u8).collect();
    bytes[0] = 0x40 | (bytes[0] & 0x3f);
    bytes.extend_from_slice(&token);
    bytes
}

#[test]
fn the_token_of_a_live_connection_id_ends_the_connection() {
    for length in [21, 25, 28, 29, 40, 100, 1200] {
        let mut peer = RawPeer::connected_server();
        let tuple = peer.tuple;
        peer.deliver(tuple, &reset(token(ZERO, 0), length));
        assert_eq!(
            peer.ended(),
            Some(&ConnectionError::Reset),
            "length {length}"
        );
        peer.wait(Duration::from_secs(1));
        assert_eq!(peer.close(), None, "nothing is sent any more");
    }
}

#[test]
fn a_reset_is_recognised_under_the_victims_own_connection_id_too() {
    // Whatever the random bytes before the token decrypt to.
    for salt in 0..=255_u8 {
        let mut peer = RawPeer::connected_server();
        let mut bytes = reset(token(ZERO, 0), 60);
        bytes[1..9].copy_from_slice(peer.remote_cid(ZERO).as_slice());
        bytes[9..20].fill(salt);
        let tuple = peer.tuple;
        peer.deliver(tuple, &bytes);
        assert_eq!(peer.ended(), Some(&ConnectionError::Reset), "salt {salt}");
    }
}

#[test]
fn the_token_of_any_path_ends_the_whole_connection() {
    let mut peer = RawPeer::connected_client();
    let tuple = peer.open_path(ONE, 1);
    peer.deliver(tuple, &reset(token(ONE, 0), 40));
    assert_eq!(peer.ended(), Some(&ConnectionError::Reset));
}

#[test]
fn a_reset_is_recognised_after_path_0_is_gone() {
    let mut peer = RawPeer::connected_client();
    let tuple = peer.open_path(ONE, 1);
    let abandon = Frame::PathAbandon {
        path: ZERO,
        code: 0,
    };
    peer.tuple = tuple;
    peer.frames(ONE, &[abandon]);
    peer.wait(Duration::from_secs(5));
    assert_eq!(peer.ended(), None);
    peer.deliver(tuple, &reset(token(ONE, 0), 40));
    assert_eq!(peer.ended(), Some(&ConnectionError::Reset));
}

#[test]
fn the_token_of_a_retired_connection_id_means_nothing() {
    // Retired by its successor.
    let mut peer = RawPeer::connected_server();
    peer.adopt(ZERO, 1);
    peer.frames(ZERO, &[new_cid(ZERO, 1, 1)]);
    let tuple = peer.tuple;
    peer.deliver(tuple, &reset(token(ZERO, 0), 40));
    peer.assert_alive();
    peer.deliver(tuple, &reset(token(ZERO, 1), 40));
    assert_eq!(peer.ended(), Some(&ConnectionError::Reset));

    // Retired with its path.
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    peer.frames(ZERO, &[Frame::PathAbandon { path: ONE, code: 0 }]);
    peer.deliver(there, &reset(token(ONE, 0), 40));
    peer.assert_alive();
}

/// RFC 9000, section 10.3.1.
#[test]
fn the_token_of_a_connection_id_that_was_not_used_yet_means_nothing() {
    for opened in [false, true] {
        let mut peer = RawPeer::connected_client();
        let tuple = peer.tuple;
        peer.issue(ONE, 0);
        peer.deliver(tuple, &reset(token(ONE, 0), 40));
        peer.assert_alive();
        if opened {
            peer.open_path(ONE, 1);
            peer.deliver(tuple, &reset(token(ONE, 0), 40));
            assert_eq!(peer.ended(), Some(&ConnectionError::Reset));
        }
    }
}

#[test]
fn tokens_follow_the_connection_id_when_a_path_moves() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    peer.adopt(ONE, 1);
    peer.frames(ZERO, &[new_cid(ONE, 1, 0)]);
    // The path moves, and the victim takes the other connection ID.
    let moved = crate::raw::route(Side::Server, 5);
    let mut packet = Packet::one_rtt(ONE, encode(&[Frame::Ping]));
    packet.tuple = Some(moved);
    packet.size = 1200;
    peer.send(packet);
    let retired =
        |frame: &Frame<'_>| matches!(frame, Frame::RetireConnectionId { path, .. } if *path == ONE);
    assert_eq!(peer.count(retired), 0, "the path may have to return");
    peer.answer_challenges_where(|tuple| tuple == moved);
    assert_eq!(peer.count(retired), 1);
    peer.deliver(there, &reset(token(ONE, 0), 40));
    peer.assert_alive();
    peer.deliver(there, &reset(token(ONE, 1), 40));
    assert_eq!(peer.ended(), Some(&ConnectionError::Reset));
}

#[test]
fn no_reset_is_sent_for_a_path_abandoned_lately() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    let late = peer.seal(&Packet::one_rtt(ONE, vec![1; 60]));
    peer.frames(ZERO, &[Frame::PathAbandon { path: ONE, code: 0 }]);
    peer.unopened.clear();
    peer.deliver(there, &late);
    peer.deliver(there, &[&late[..20], &[3; 60]].concat());
    assert_eq!(peer.unopened.len(), 0);
    peer.assert_alive();
}

#[test]
fn a_connection_nobody_knows_is_reset_by_a_shorter_datagram() {
    for size in [10, 21, 22, 30, 43, 100, 1200] {
        let mut peer = RawPeer::connected_client();
        let mut bytes = vec![0x45; size];
        bytes[1..9].copy_from_slice(b"nobody's");
        let tuple = peer.tuple;
        peer.unopened.clear();
        peer.deliver(tuple, &bytes);
        let resets = peer.unopened.len();
        assert_eq!(resets, usize::from(size > 21), "size {size}");
        for reset in &peer.unopened {
            assert!((21..size).contains(&reset.len()));
            assert_eq!(reset[0] & 0xc0, 0x40);
        }
    }
}
