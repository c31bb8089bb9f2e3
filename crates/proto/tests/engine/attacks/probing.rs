//! Packets that only ask about an address, and packets from where a path must not go (rows 8, 15
//! and 27): nothing moves but what should.

use super::{ONE, ZERO};
use crate::raw::{Packet, RawPeer, Received, Setup, encode, encode_plain, new_cid, route};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::datagram::Tuple;
use anabranch_proto::event::{Event, PathNotice};
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::{ConnectionId, Side};
use std::time::Duration;

const ASKED: [u8; 8] = *b"anyone??";

/// A client of a real server, both without the multipath extension.
fn single(cids: u64) -> RawPeer {
    let mut peer = RawPeer::client(Setup {
        transport: TransportConfig {
            max_paths: 0,
            active_connection_id_limit: 8,
            ..TransportConfig::default()
        },
        params: |params| params.initial_max_path_id = None,
        ..Setup::default()
    })
    .establish();
    for sequence in 1..=cids {
        peer.adopt(ZERO, sequence);
        let frame = encode_plain(&[new_cid(ZERO, sequence, 0)]);
        peer.bytes(ZERO, &frame);
    }
    peer.ack_all();
    peer.inbox.clear();
    peer.sizes.clear();
    peer
}

fn send_from(peer: &mut RawPeer, tuple: Tuple, payload: Vec<u8>, size: usize) -> usize {
    let mut packet = Packet::one_rtt(ZERO, payload);
    packet.size = size;
    let bytes = peer.seal(&packet);
    peer.deliver(tuple, &bytes);
    bytes.len()
}

fn probe(peer: &mut RawPeer, tuple: Tuple) {
    let frames = [Frame::PathChallenge { data: ASKED }];
    send_from(peer, tuple, encode(&frames), 1200);
}

fn is_response(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::PathResponse { data } if *data == ASKED)
}

fn answers_at(peer: &RawPeer, tuple: Tuple) -> Vec<Received> {
    let there = peer.inbox.iter().filter(|packet| packet.tuple == tuple);
    there
        .filter(|packet| packet.has(is_response))
        .cloned()
        .collect()
}

/// Destinations of the victim's packets to an address.
fn cids_at(peer: &RawPeer, tuple: Tuple) -> Vec<ConnectionId> {
    let there = peer.inbox.iter().filter(|packet| packet.tuple == tuple);
    let mut cids: Vec<ConnectionId> = there.map(|packet| packet.dcid).collect();
    cids.sort_unstable();
    cids.dedup();
    cids
}

/// Row 15, and RFC 9000, section 9.1.
#[test]
fn a_probe_is_answered_where_it_came_from_and_moves_nothing() {
    let mut peer = single(1);
    let (home, elsewhere) = (peer.tuple, route(Side::Server, 66));
    probe(&mut peer, elsewhere);
    let answers = answers_at(&peer, elsewhere);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].datagram, 1200);
    let only_validation =
        |frame: &Frame<'_>| matches!(frame, Frame::PathResponse { .. } | Frame::Padding { .. });
    assert!(answers[0].frames().iter().all(only_validation));
    assert_eq!(peer.stats(ZERO).tuple, home);
    peer.provoke(20_000);
    peer.wait(Duration::from_secs(3));
    assert_eq!(peer.stats(ZERO).tuple, home);
    assert_eq!(peer.bytes_to(elsewhere), 1200);
    let asked = |frame: &Frame<'_>| matches!(frame, Frame::PathChallenge { .. });
    assert_eq!(peer.count(asked), 0, "nothing moved, so nothing is asked");
    peer.assert_alive();
}

/// RFC 9000, section 9.3: what moves a path is any frame that is not for probing.
#[test]
fn frames_for_probing_do_not_move_a_path_and_any_other_does() {
    let probing = [
        encode_plain(&[new_cid(ZERO, 2, 0)]),
        encode(&[Frame::PathResponse { data: ASKED }]),
        vec![0; 40],
    ];
    let moving = [
        encode(&[Frame::Ping]),
        encode(&[Frame::PathChallenge { data: ASKED }, Frame::Ping]),
        encode(&[Frame::MaxData { limit: 1 << 30 }]),
    ];
    let elsewhere = route(Side::Server, 66);
    for payload in probing {
        let mut peer = single(1);
        send_from(&mut peer, elsewhere, payload, 0);
        assert_eq!(peer.stats(ZERO).tuple, peer.tuple);
        peer.assert_alive();
    }
    for payload in moving {
        let mut peer = single(1);
        send_from(&mut peer, elsewhere, payload, 0);
        assert_eq!(peer.stats(ZERO).tuple, elsewhere);
    }
}

/// Row 19: no two addresses see one connection ID while there are enough of them.
#[test]
fn every_address_that_probes_is_answered_under_a_connection_id_of_its_own() {
    let mut peer = single(3);
    let (home, first, second) = (peer.tuple, route(Side::Server, 61), route(Side::Server, 62));
    peer.frames(ZERO, &[Frame::Ping, Frame::Ping]);
    peer.wait(Duration::from_millis(50));
    probe(&mut peer, first);
    probe(&mut peer, first);
    probe(&mut peer, second);
    let mut seen = Vec::new();
    for tuple in [home, first, second] {
        let cids = cids_at(&peer, tuple);
        assert_eq!(cids.len(), 1, "{tuple:?}");
        assert!(!seen.contains(&cids[0]));
        seen.push(cids[0]);
    }
    // It moves to where it probed, under the connection ID seen there already.
    peer.inbox.clear();
    send_from(&mut peer, second, encode(&[Frame::Ping]), 1200);
    assert_eq!(cids_at(&peer, second), seen[2..]);
    peer.assert_alive();
}

/// Row 19: moving elsewhere than probed does not take the connection ID along.
#[test]
fn a_connection_id_shown_to_one_address_is_not_used_at_another() {
    let mut peer = single(3);
    let (probed, moved) = (route(Side::Server, 61), route(Side::Server, 62));
    probe(&mut peer, probed);
    send_from(&mut peer, moved, encode(&[Frame::Ping]), 1200);
    let (at_probed, at_moved) = (cids_at(&peer, probed), cids_at(&peer, moved));
    assert_eq!((at_probed.len(), at_moved.len()), (1, 1));
    assert_ne!(at_probed, at_moved);
}

/// Rows 4 and 15.
#[test]
fn probes_from_many_addresses_do_not_amplify() {
    for size in [0, 100, 1200] {
        let mut peer = single(1);
        for n in 1..50 {
            let challenges: Vec<_> = (0..30)
                .map(|m| Frame::PathChallenge {
                    data: [n, m, 0, 0, 0, 0, 0, 9],
                })
                .collect();
            let tuple = route(Side::Server, u16::from(n));
            let sent = send_from(&mut peer, tuple, encode(&challenges), size);
            assert!(peer.bytes_to(tuple) > 0);
            assert!(peer.bytes_to(tuple) <= 3 * sent, "{sent} bytes");
        }
        let answered = |frame: &Frame<'_>| matches!(frame, Frame::PathResponse { .. });
        assert!(peer.count(answered) <= 4 * 49);
        peer.assert_alive();
    }
}

/// Row 8: an attacker that rewrites the source of a probe is answered once, and that is all.
#[test]
fn a_probe_with_a_rewritten_source_leaves_rtt_and_window_alone() {
    let mut peer = single(1);
    peer.frames(ZERO, &[Frame::Ping, Frame::Ping]);
    peer.ack_all();
    let before = peer.stats(ZERO);
    probe(&mut peer, route(Side::Server, 66));
    // The answer is acknowledged a second later, from home.
    peer.wait(Duration::from_secs(1));
    peer.ack_all();
    let after = peer.stats(ZERO);
    assert_eq!(after.latest_rtt, before.latest_rtt);
    assert_eq!(after.congestion_window, before.congestion_window);
    assert_eq!(after.bytes_in_flight, before.bytes_in_flight);
}

fn moves(peer: &RawPeer) -> usize {
    let moved = |event: &&Event| matches!(event, Event::Path(PathNotice::Moved { .. }));
    peer.events.iter().filter(moved).count()
}

/// Row 27.
#[test]
fn a_peer_that_shows_a_new_address_with_every_packet_is_followed_now_and_then() {
    for multipath in [false, true] {
        let mut peer = if multipath {
            RawPeer::connected_client()
        } else {
            single(1)
        };
        let home = peer.tuple;
        for n in 1..100 {
            let ping = encode(&[Frame::Ping]);
            send_from(&mut peer, route(Side::Server, n), ping, 0);
        }
        // 99 packets, 10 ms apart.
        assert!((5..=10).contains(&moves(&peer)), "{} moves", moves(&peer));
        // What does not move the path is acknowledged all the same.
        assert_eq!(peer.ended(), None);
        // The way home is always open.
        send_from(&mut peer, home, encode(&[Frame::Ping]), 0);
        assert_eq!(peer.stats(ZERO).tuple, home);
        peer.wait(Duration::from_secs(2));
        let again = route(Side::Server, 200);
        send_from(&mut peer, again, encode(&[Frame::Ping]), 0);
        assert_eq!(peer.stats(ZERO).tuple, again);
    }
}

fn unmoving() -> RawPeer {
    RawPeer::client(Setup {
        transport: TransportConfig {
            migration: false,
            ..TransportConfig::default()
        },
        ..Setup::default()
    })
    .establish()
}

/// RFC 9000, section 9: a server that forbids migration drops what comes from elsewhere.
#[test]
fn packets_from_elsewhere_have_no_effect_where_migration_is_forbidden() {
    let mut peer = unmoving();
    let there = peer.open_path(ONE, 1);
    peer.ack_all();
    let (home, elsewhere) = (peer.tuple, route(Side::Server, 66));
    peer.wait(Duration::from_secs(1));
    peer.inbox.clear();
    for (path, own) in [(ZERO, home), (ONE, there)] {
        for n in 0..10 {
            let frames = [
                Frame::Ping,
                Frame::PathChallenge { data: [n; 8] },
                Frame::PathAbandon { path: ONE, code: 0 },
            ];
            let bytes = peer.seal(&Packet::one_rtt(path, encode(&frames)));
            peer.deliver(elsewhere, &bytes);
        }
        assert_eq!(peer.stats(path).tuple, own);
        assert!(peer.stats(path).validated);
    }
    assert_eq!(peer.bytes_to(elsewhere), 0);
    let said = |frame: &Frame<'_>| matches!(frame, Frame::Ack(_) | Frame::PathResponse { .. });
    assert_eq!(peer.count(said), 0, "nothing is said to it");
    assert_eq!(peer.unopened.len(), 0, "no reset either");
    assert_eq!(peer.paths(), [ZERO, ONE]);
    peer.assert_alive();
    // What was dropped was not read: it may come again from where the path is.
    let bytes = peer.seal(&Packet::one_rtt(ONE, encode(&[Frame::Ping, Frame::Ping])));
    peer.deliver(elsewhere, &bytes);
    peer.inbox.clear();
    peer.deliver(there, &bytes);
    peer.wait(Duration::from_millis(50));
    let acked = |frame: &Frame<'_>| matches!(frame, Frame::Ack(ack) if ack.path == ONE);
    assert!(peer.count(acked) > 0);
}

/// The rule is about addresses of an open path: further paths are the extension's affair.
#[test]
fn a_path_is_opened_from_another_address_where_migration_is_forbidden() {
    let mut peer = unmoving();
    peer.open_path(ONE, 1);
    assert!(peer.stats(ONE).validated);
    peer.assert_alive();
}
