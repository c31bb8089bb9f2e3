//! Packets that arrive from elsewhere (rows 8 to 10).

use super::{ONE, ZERO};
use crate::raw::{Packet, RawPeer, Received, Setup, encode, new_cid, route};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::{PathId, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn ping(peer: &mut RawPeer, path: PathId) -> Vec<u8> {
    peer.seal(&Packet::one_rtt(path, encode(&[Frame::Ping])))
}

/// Row 8.
#[test]
fn a_rewritten_source_moves_the_path_only_until_validation_fails() {
    let mut peer = RawPeer::connected_client();
    let (home, elsewhere) = (peer.tuple, route(Side::Server, 66));
    let bytes = ping(&mut peer, ZERO);
    peer.deliver(elsewhere, &bytes);
    // Both ends are asked, and neither answers.
    for tuple in [home, elsewhere] {
        assert!(peer.inbox.iter().any(|packet| {
            packet.tuple == tuple
                && packet.has(|frame| matches!(frame, Frame::PathChallenge { .. }))
        }));
    }
    peer.wait(Duration::from_secs(5));
    assert_eq!(peer.stats(ZERO).tuple, home);
    peer.assert_alive();
}

/// Row 8.
#[test]
fn the_true_peer_takes_its_path_back_with_its_next_packet() {
    let mut peer = RawPeer::connected_client();
    let (home, elsewhere) = (peer.tuple, route(Side::Server, 66));
    let bytes = ping(&mut peer, ZERO);
    peer.deliver(elsewhere, &bytes);
    assert_eq!(peer.stats(ZERO).tuple, elsewhere);
    peer.answer_challenges_where(|tuple| tuple == home);
    assert_eq!(peer.stats(ZERO).tuple, home);
    peer.assert_alive();
    peer.wait(Duration::from_secs(5));
    assert_eq!(peer.stats(ZERO).tuple, home);
}

/// Row 8.
#[test]
fn old_and_repeated_packets_from_elsewhere_move_nothing() {
    let mut peer = RawPeer::connected_client();
    let (home, elsewhere) = (peer.tuple, route(Side::Server, 66));
    let old = ping(&mut peer, ZERO);
    let new = ping(&mut peer, ZERO);
    peer.deliver(home, &new);
    for bytes in [&old, &old, &new] {
        peer.deliver(elsewhere, bytes);
        assert_eq!(peer.stats(ZERO).tuple, home);
    }
    assert_eq!(peer.bytes_to(elsewhere), 0);
}

/// Row 8: other paths are not the moved path's business.
#[test]
fn a_packet_of_one_path_moves_no_other() {
    let mut peer = RawPeer::connected_client();
    let (home, there) = (peer.tuple, peer.open_path(ONE, 1));
    let bytes = ping(&mut peer, ONE);
    peer.deliver(route(Side::Server, 66), &bytes);
    assert_eq!(peer.stats(ZERO).tuple, home);
    // A path on the tuple of another one is a path of its own.
    let bytes = ping(&mut peer, ONE);
    peer.deliver(home, &bytes);
    assert_eq!(peer.stats(ONE).tuple, home);
    assert_eq!(peer.stats(ZERO).tuple, home);
    assert_ne!(home, there);
}

/// Row 9: an attacker beside the path races copies of every packet.
#[test]
fn copies_that_overtake_their_originals_do_not_keep_the_path() {
    let mut peer = RawPeer::connected_client();
    let (home, attacker) = (peer.tuple, route(Side::Server, 66));
    for _ in 0..10 {
        let bytes = ping(&mut peer, ZERO);
        peer.deliver(attacker, &bytes);
        peer.deliver(home, &bytes);
        // The attacker cannot answer; the peer answers what reaches it at home.
        peer.answer_challenges_where(|tuple| tuple == home);
        peer.inbox.clear();
    }
    peer.wait(Duration::from_secs(5));
    assert_eq!(peer.stats(ZERO).tuple, home);
    peer.assert_alive();
}

/// Row 10.
#[test]
fn packet_numbers_go_on_when_a_path_moves_and_changes_connection_ids() {
    let mut peer = RawPeer::connected_client();
    let mut seen = BTreeSet::new();
    let mut last = None;
    peer.inbox.clear();
    for n in 1..4 {
        peer.adopt(ZERO, u64::from(n));
        peer.frames(ZERO, &[new_cid(ZERO, u64::from(n), 0)]);
        peer.tuple = route(Side::Server, n);
        peer.provoke(3000);
        peer.frames(ZERO, &[Frame::Ping, Frame::Ping]);
        peer.answer_challenges();
        peer.ack_all();
        for packet in peer.inbox.drain(..) {
            assert!(seen.insert((packet.path, packet.pn)), "{}", packet.pn);
            assert!(last < Some(packet.pn));
            last = Some(packet.pn);
        }
    }
    assert!(seen.len() > 10);
    peer.assert_alive();
}

/// Row 10.
#[test]
fn a_path_id_is_never_used_again() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    let late = ping(&mut peer, ONE);
    peer.frames(ZERO, &[Frame::PathAbandon { path: ONE, code: 0 }]);
    for _ in 0..50 {
        peer.ack_all();
        peer.wait(Duration::from_millis(100));
    }
    peer.inbox.clear();
    peer.frames(ZERO, &[new_cid(ONE, 7, 0)]);
    peer.deliver(there, &late);
    let bytes = ping(&mut peer, ONE);
    peer.deliver(there, &bytes);
    peer.wait(Duration::from_millis(500));
    assert_eq!(peer.paths(), [ZERO]);
    assert!(peer.inbox.iter().all(|packet| packet.path == ZERO));
    peer.assert_alive();
}

/// Row 8: a rewritten port costs nothing that was measured, whether validation fails or the true
/// peer speaks first.
#[test]
fn a_rewritten_port_leaves_rtt_window_and_mtu_as_they_were() {
    for returns in [false, true] {
        let mut peer = RawPeer::connected_client();
        peer.provoke(100_000);
        for _ in 0..30 {
            peer.ack_all();
            peer.wait(Duration::from_millis(20));
        }
        let (home, before) = (peer.tuple, peer.stats(ZERO));
        assert!(before.mtu > 1200 && before.congestion_window > 12_000);
        let mut elsewhere = home;
        elsewhere.remote.set_port(6666);
        let bytes = ping(&mut peer, ZERO);
        peer.deliver(elsewhere, &bytes);
        assert_eq!(peer.stats(ZERO).tuple, elsewhere);
        assert!(!peer.stats(ZERO).validated);
        if returns {
            peer.frames(ZERO, &[Frame::Ping]);
        } else {
            peer.wait(Duration::from_secs(5));
        }
        let after = peer.stats(ZERO);
        assert_eq!((after.tuple, after.validated), (home, true));
        assert_eq!(after.mtu, before.mtu);
        assert_eq!(after.congestion_window, before.congestion_window);
        assert_eq!(after.min_rtt, before.min_rtt);
        peer.assert_alive();
    }
}

/// Row 19, and RFC 9000, section 9.5: a route that is left keeps its connection ID until it is
/// clear which one stays.
#[test]
fn no_connection_id_is_ever_used_towards_two_addresses() {
    let mut peer = RawPeer::client(Setup {
        transport: TransportConfig {
            active_connection_id_limit: 8,
            ..TransportConfig::default()
        },
        ..Setup::default()
    })
    .establish();
    for sequence in 1..8 {
        peer.issue(ZERO, sequence);
    }
    let home = peer.tuple;
    let mut port = home;
    port.remote.set_port(6666);
    for (n, returns) in [(1, false), (2, true), (3, false)] {
        let elsewhere = if n == 3 { port } else { route(Side::Server, n) };
        let bytes = ping(&mut peer, ZERO);
        peer.deliver(elsewhere, &bytes);
        peer.provoke(2_000);
        if returns {
            peer.frames(ZERO, &[Frame::Ping]);
        } else {
            // Nobody answers there.
            peer.wait(Duration::from_secs(5));
        }
        assert_eq!(peer.stats(ZERO).tuple, home);
        peer.provoke(2_000);
        peer.ack_all();
    }
    // Twice in a row before anything is proven, and then for good.
    for n in [4, 5] {
        let bytes = ping(&mut peer, ZERO);
        peer.deliver(route(Side::Server, n), &bytes);
    }
    peer.tuple = route(Side::Server, 5);
    let there = peer.tuple;
    // The first proof is a small one: full-size packets are asked for after it.
    for _ in 0..2 {
        peer.answer_challenges_where(|tuple| tuple == there);
    }
    peer.provoke(2_000);
    assert!(peer.stats(ZERO).validated);
    let mut seen = BTreeMap::new();
    for packet in peer.inbox.iter().filter(|packet| packet.path == ZERO) {
        let before = *seen.entry(packet.dcid).or_insert(packet.tuple);
        assert_eq!(before, packet.tuple, "{:?} at both", packet.dcid);
    }
    assert!(seen.len() >= 6, "{seen:?}");
    // What is not needed any more is given back, and what may come back is not.
    peer.ack_all();
    let frames = peer.inbox.iter().flat_map(Received::frames);
    let retired = frames.into_iter().filter_map(|frame| match frame {
        Frame::RetireConnectionId { sequence, .. } => Some(sequence),
        _ => None,
    });
    let retired: BTreeSet<u64> = retired.collect();
    assert_eq!(Vec::from_iter(retired), [0, 1, 2, 3, 4]);
    peer.assert_alive();
}

/// Row 29: what the address of the handshake may be sent early, another one may not.
#[test]
fn no_data_goes_to_another_port_before_it_is_proven() {
    let mut peer = RawPeer::connected_client();
    let mut elsewhere = peer.tuple;
    elsewhere.remote.set_port(6666);
    let mut packet = Packet::one_rtt(ZERO, encode(&[Frame::Ping]));
    packet.tuple = Some(elsewhere);
    packet.size = 1200;
    peer.inbox.clear();
    peer.send(packet);
    assert!(!peer.stats(ZERO).validated);
    peer.provoke(50_000);
    let data = |packet: &&Received| packet.has(|frame| matches!(frame, Frame::Stream(_)));
    let sent = peer.inbox.iter().filter(|packet| packet.tuple == elsewhere);
    assert_eq!(sent.filter(data).count(), 0);
    peer.tuple = elsewhere;
    peer.answer_challenges_where(|tuple| tuple == elsewhere);
    peer.wait(Duration::from_millis(50));
    assert!(peer.inbox.iter().any(|packet| data(&packet)));
}
