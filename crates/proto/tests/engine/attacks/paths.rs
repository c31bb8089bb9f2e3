//! Paths opened, abandoned and spoofed (rows 1 to 7, 23, 25 and 26).

use super::{BOTH, ONE, ZERO, assert_closed};
use crate::raw::{Packet, RawPeer, Received, Setup, encode, new_cid, route};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::datagram::Tuple;
use anabranch_proto::event::Level;
use anabranch_proto::event::{Event, PathNotice};
use anabranch_proto::path::PathOptions;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::{PathId, Side, TransportErrorCode as Code};
use std::time::Duration;

const TWO: PathId = PathId(2);

/// A first packet on a path, without an answer to any challenge. Returns its size.
fn knock(peer: &mut RawPeer, path: PathId, tuple: Tuple, size: usize) -> usize {
    let mut packet = Packet::one_rtt(path, encode(&[Frame::PathChallenge { data: [3; 8] }]));
    packet.size = size;
    let bytes = peer.seal(&packet);
    peer.deliver(tuple, &bytes);
    bytes.len()
}

fn few_paths() -> Setup {
    Setup {
        transport: TransportConfig {
            max_paths: 4,
            ..TransportConfig::default()
        },
        params: |params| params.initial_max_path_id = Some(PathId(u32::MAX)),
        ..Setup::default()
    }
}

/// Row 1.
#[test]
fn many_paths_opened_at_once_take_no_more_than_the_limit() {
    let mut peer = RawPeer::client(few_paths()).establish();
    for id in 1..4 {
        peer.issue(PathId(id), 0);
        knock(&mut peer, PathId(id), route(Side::Server, id as u16), 1200);
    }
    assert_eq!(peer.paths().len(), 4);
    peer.assert_alive();
    peer.frames(ZERO, &[new_cid(PathId(4), 0, 0)]);
    assert_closed(&peer, Code::PROTOCOL_VIOLATION);
}

/// Row 2.
#[test]
fn a_peer_that_allows_four_billion_paths_gets_connection_ids_for_few() {
    for victim in BOTH {
        let mut peer = if victim.is_server() {
            RawPeer::client(few_paths())
        } else {
            RawPeer::server(few_paths())
        }
        .establish();
        let limit = PathId(u32::MAX);
        for _ in 0..10 {
            peer.frames(ZERO, &[Frame::MaxPathId { limit }]);
            peer.ack_all();
        }
        peer.wait(Duration::from_secs(5));
        assert!(peer.remote_cids.len() <= 8, "{:?}", peer.remote_cids);
        assert!(peer.remote_cids.keys().all(|(path, _)| path.0 < 4));
        peer.assert_alive();
    }
}

/// Row 3.
#[test]
fn path_ids_are_replaced_no_faster_than_their_state_goes() {
    let raised = |frame: &Frame<'_>| matches!(frame, Frame::MaxPathId { .. });
    let largest = |peer: &RawPeer| {
        let frames = peer.inbox.iter().flat_map(Received::frames);
        let limits = frames.into_iter().filter_map(|frame| match frame {
            Frame::MaxPathId { limit } => Some(limit.0),
            _ => None,
        });
        limits.max()
    };
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        let mut next = 1;
        for _round in 0..30 {
            peer.inbox.clear();
            let limit = PathId(next + 6);
            peer.frames(ZERO, &[Frame::MaxPathId { limit }]);
            for id in next..next + 7 {
                let path = PathId(id);
                peer.frames(ZERO, &[Frame::PathAbandon { path, code: 0 }]);
            }
            assert_eq!(peer.count(raised), 0, "not before the paths are forgotten");
            assert!(peer.paths().len() <= 8);
            next += 7;
            for _ in 0..100 {
                peer.ack_all();
                peer.wait(Duration::from_millis(30));
            }
            assert_eq!(largest(&peer), Some(next + 6), "one for each forgotten");
        }
        // Connection IDs of forgotten paths are not handed out again.
        assert!(peer.remote_cids.len() <= 30 * 7 + 10);
        peer.assert_alive();
    }
}

/// Row 4.
#[test]
fn a_new_path_is_sent_three_times_what_came_from_it_and_only_validation() {
    for size in [0, 60, 300, 1200] {
        let mut peer = RawPeer::connected_client();
        peer.issue(ONE, 0);
        peer.provoke(200_000);
        let spoofed = route(Side::Server, 66);
        let mut received = 0;
        for _ in 0..3 {
            received += knock(&mut peer, ONE, spoofed, size);
            peer.wait(Duration::from_millis(700));
            let sent = peer.bytes_to(spoofed);
            assert!(sent <= 3 * received, "{sent} bytes for {received}");
        }
        peer.wait(Duration::from_secs(2));
        assert!(peer.bytes_to(spoofed) > 0);
        assert!(peer.bytes_to(spoofed) <= 3 * received);
        for packet in peer.inbox.iter().filter(|packet| packet.tuple == spoofed) {
            assert!(packet.frames().iter().all(|frame| matches!(
                frame,
                Frame::PathChallenge { .. }
                    | Frame::PathResponse { .. }
                    | Frame::Ack(_)
                    | Frame::Padding { .. }
            )));
        }
    }
}

/// Row 4: a small exchange proves the address, but data waits for the size.
#[test]
fn a_path_proven_by_small_packets_has_to_pass_large_ones_too() {
    let mut peer = RawPeer::connected_client();
    peer.issue(ONE, 0);
    peer.inbox.clear();
    let there = route(Side::Server, 1);
    knock(&mut peer, ONE, there, 60);
    let first = peer.inbox.iter().find(|packet| packet.tuple == there);
    assert!(first.expect("an answer").datagram < 1200);
    peer.answer_challenges_where(|tuple| tuple == there);
    assert!(!peer.stats(ONE).validated);
    let large = |packet: &&Received| {
        packet.tuple == there
            && packet.datagram >= 1200
            && packet.has(|frame| matches!(frame, Frame::PathChallenge { .. }))
    };
    assert!(peer.inbox.iter().any(|packet| large(&packet)));
    peer.answer_challenges_where(|tuple| tuple == there);
    assert!(peer.stats(ONE).validated);
}

/// Row 5.
#[test]
fn many_paths_opened_towards_one_victim_do_not_amplify() {
    let mut peer = RawPeer::connected_client();
    peer.provoke(200_000);
    let mut received = 0;
    let target = |port: u16| Tuple {
        remote: format!("192.0.2.1:{port}").parse().expect("an address"),
        ..route(Side::Server, 0)
    };
    for id in 1..8 {
        peer.issue(PathId(id), 0);
        received += knock(&mut peer, PathId(id), target(id as u16), 0);
    }
    peer.wait(Duration::from_secs(5));
    let sent: usize = (1..8).map(|port| peer.bytes_to(target(port))).sum();
    assert!(sent <= 3 * received, "{sent} bytes for {received}");
    assert_eq!(peer.ended(), None);
}

/// Row 5: the same by moving one path around.
#[test]
fn a_path_that_moves_again_and_again_does_not_amplify() {
    let mut peer = RawPeer::connected_client();
    peer.provoke(200_000);
    for n in 1..100 {
        let tuple = route(Side::Server, n);
        let mut packet = Packet::one_rtt(ZERO, encode(&[Frame::Ping]));
        packet.tuple = Some(tuple);
        let bytes = peer.seal(&packet);
        peer.deliver(tuple, &bytes);
        assert!(peer.bytes_to(tuple) <= 3 * bytes.len(), "move {n}");
    }
    peer.wait(Duration::from_secs(1));
    for n in 1..100 {
        let sent = peer.bytes_to(route(Side::Server, n));
        assert!(sent <= 3 * 40, "{sent} bytes to address {n}");
    }
}

/// Row 6.
#[test]
fn a_path_beside_a_validated_one_is_validated_itself() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    peer.issue(TWO, 0);
    peer.provoke(200_000);
    peer.inbox.clear();
    knock(&mut peer, TWO, there, 1200);
    let challenged = peer.inbox.iter().any(|packet| {
        packet.path == TWO && packet.has(|frame| matches!(frame, Frame::PathChallenge { .. }))
    });
    assert!(challenged);
    assert!(!peer.stats(TWO).validated);
    let data = |frame: &Frame<'_>| matches!(frame, Frame::Stream(_));
    peer.wait(Duration::from_millis(500));
    assert!(
        !peer
            .inbox
            .iter()
            .any(|packet| packet.path == TWO && packet.has(data))
    );
}

/// Row 6: the answer of one path is no proof of another.
#[test]
fn a_challenge_of_one_path_is_not_answered_by_another() {
    let mut peer = RawPeer::connected_client();
    peer.issue(ONE, 0);
    peer.inbox.clear();
    knock(&mut peer, ONE, route(Side::Server, 1), 1200);
    let challenges: Vec<[u8; 8]> = peer
        .inbox
        .iter()
        .flat_map(Received::frames)
        .filter_map(|frame| match frame {
            Frame::PathChallenge { data } => Some(data),
            _ => None,
        })
        .collect();
    assert!(!challenges.is_empty());
    for data in challenges {
        peer.frames(ZERO, &[Frame::PathResponse { data }]);
    }
    assert!(!peer.stats(ONE).validated);
}

/// Row 7: what comes from an address the client does not know as its server's is dropped.
#[test]
fn a_client_reads_nothing_from_addresses_it_does_not_know() {
    let mut peer = RawPeer::connected_server();
    let elsewhere = Tuple {
        remote: "192.0.2.9:53".parse().expect("an address"),
        ..peer.tuple
    };
    let first = peer.next_pn(Level::OneRtt, ZERO);
    let dropped = |peer: &mut RawPeer| {
        let victim = peer.connection().expect("the victim");
        victim.stats().packets_dropped
    };
    let before = dropped(&mut peer);
    for n in 0..20 {
        let frames = [Frame::Ping, Frame::PathChallenge { data: [n; 8] }];
        let mut packet = Packet::one_rtt(ZERO, encode(&frames));
        packet.tuple = Some(elsewhere);
        packet.size = 1200;
        peer.send(packet);
    }
    peer.wait(Duration::from_secs(2));
    assert_eq!(dropped(&mut peer), before + 20);
    let acked = |frame: &Frame<'_>| matches!(frame, Frame::Ack(ack) if ack.largest >= first);
    assert_eq!(peer.count(acked), 0);
    assert_eq!(peer.bytes_to(elsewhere), 0);
    peer.assert_alive();
}

/// Row 7: another address of the server is known, and yet no path goes there unless the client
/// moves it.
#[test]
fn a_client_sends_only_where_it_chose_to() {
    let mut peer = RawPeer::connected_server();
    peer.issue(ONE, 0);
    let other = Tuple {
        remote: "192.0.2.9:4433".parse().expect("an address"),
        ..route(Side::Client, 1)
    };
    let now = peer.now;
    let victim = peer.connection().expect("the victim");
    let opened = victim.open_path(now, other, PathOptions::default());
    assert_eq!(opened, Ok(ONE));
    peer.receive();
    peer.answer_challenges_where(|tuple| tuple == other);
    assert!(peer.stats(ONE).validated);
    peer.provoke(50_000);
    // Until both paths have nothing left to send, to repeat or to probe.
    for _ in 0..100 {
        peer.ack_all();
        peer.wait(Duration::from_millis(50));
    }
    peer.inbox.clear();
    let (own, sent) = (peer.tuple, peer.bytes_to(other));
    for n in 0..20 {
        let frames = [Frame::Ping, Frame::PathChallenge { data: [n; 8] }];
        let mut packet = Packet::one_rtt(ZERO, encode(&frames));
        packet.tuple = Some(Tuple {
            remote: other.remote,
            ..own
        });
        packet.size = 1200;
        peer.send(packet);
    }
    peer.wait(Duration::from_millis(50));
    let of_zero = peer.inbox.iter().filter(|packet| packet.path == ZERO);
    assert!(of_zero.clone().count() > 0);
    assert!(of_zero.clone().all(|packet| packet.tuple == own));
    assert_eq!(
        peer.count(|frame| matches!(frame, Frame::PathResponse { .. })),
        0
    );
    assert_eq!(
        (peer.stats(ZERO).tuple, peer.stats(ONE).tuple),
        (own, other)
    );
    assert_eq!(peer.bytes_to(other), sent);
    peer.assert_alive();
}

/// Without a spare the client could not move the path to another address (RFC 9000, section 9.5).
#[test]
fn a_server_gives_a_spare_connection_id_for_each_path_its_client_opened() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    for _ in 0..20 {
        peer.ack_all();
        peer.wait(Duration::from_millis(100));
    }
    for path in [ZERO, ONE] {
        let issued = peer.remote_cids.keys().filter(|(of, _)| *of == path);
        assert_eq!(issued.count(), 2, "path {path}");
    }
}

/// Row 23.
#[test]
fn nobody_without_the_keys_abandons_a_path() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    for path in [ZERO, ONE] {
        let abandon = encode(&[Frame::PathAbandon { path, code: 0 }]);
        let mut bytes = peer.seal(&Packet::one_rtt(path, abandon));
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let tuple = peer.tuple;
        peer.deliver(tuple, &bytes);
    }
    assert_eq!(peer.paths(), [ZERO, ONE]);
    peer.assert_alive();
}

/// Row 23.
#[test]
fn a_late_abandon_does_not_touch_the_paths_that_are_left() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    let abandon = Frame::PathAbandon {
        path: ZERO,
        code: 0,
    };
    let late = peer.seal(&Packet::one_rtt(
        ONE,
        encode(std::slice::from_ref(&abandon)),
    ));
    peer.tuple = there;
    peer.frames(ONE, &[abandon]);
    peer.wait(Duration::from_secs(5));
    peer.deliver(there, &late);
    peer.frames(ONE, &[Frame::Ping, Frame::Ping]);
    assert_eq!(peer.ended(), None);
    assert_eq!(peer.paths(), [ONE]);
    peer.frames(ONE, &[Frame::PathAbandon { path: ONE, code: 0 }]);
    assert_closed(&peer, Code::NO_VIABLE_PATH);
}

/// Row 25.
#[test]
fn a_path_is_forgotten_although_the_peer_never_agrees() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    let now = peer.now;
    let code = Code::APPLICATION_ABANDON_PATH;
    let victim = peer.connection().expect("the victim");
    victim.abandon_path(now, ONE, code).expect("an open path");
    peer.receive();
    // The peer has it, and says nothing.
    peer.ack_all();
    peer.wait(Duration::from_secs(5));
    let forgotten = Event::Path(PathNotice::Discarded { id: ONE });
    assert!(peer.events.contains(&forgotten));
    assert_eq!(peer.paths(), [ZERO]);
    peer.assert_alive();
}

/// Row 26.
#[test]
fn what_a_silent_path_holds_travels_on_another() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    peer.ack_all();
    peer.inbox.clear();
    let length = 200_000;
    peer.provoke(length);
    let mut used = false;
    for _ in 0..400 {
        used |= peer.inbox.iter().any(|packet| {
            packet.path == ONE && packet.has(|frame| matches!(frame, Frame::Stream(_)))
        });
        peer.ack_path(ZERO, 0);
        peer.wait(Duration::from_millis(10));
    }
    assert!(used, "the path was used before it fell silent");
    let mut arrived = vec![false; length];
    for packet in peer.inbox.iter().filter(|packet| packet.path == ZERO) {
        for frame in packet.frames() {
            if let Frame::Stream(stream) = frame {
                let start = stream.offset as usize;
                arrived[start..start + stream.data.len()].fill(true);
            }
        }
    }
    assert!(arrived.into_iter().all(|byte| byte));
    let doubted = Event::Path(PathNotice::Doubted { id: ONE });
    assert!(peer.events.contains(&doubted));
}

/// Row 18: what was sent on a path before the peer gave it up is still under way then, however long
/// ago the victim did.
#[test]
fn late_packets_of_a_path_the_peer_gives_up_late_are_read_and_acknowledged() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    let now = peer.now;
    let victim = peer.connection().expect("the victim");
    victim.abandon_path(now, ONE, 0).expect("an open path");
    peer.receive();
    let (path, code) = (ONE, 0);
    peer.wait(Duration::from_secs(10));
    peer.frames(ZERO, &[Frame::PathAbandon { path, code }]);
    peer.ack_all();
    peer.wait(Duration::from_millis(50));
    peer.inbox.clear();
    peer.frames(ONE, &[Frame::Ping]);
    peer.wait(Duration::from_millis(50));
    let late = |frame: &Frame<'_>| matches!(frame, Frame::Ack(ack) if ack.path == ONE);
    assert!(peer.count(late) > 0, "{:?}", peer.events);
    assert_eq!(peer.unopened.len(), 0, "answered with a reset");
    peer.wait(Duration::from_secs(10));
    let gone = Event::Path(PathNotice::Discarded { id: ONE });
    assert!(peer.events.contains(&gone));
}

/// A server issues connection IDs for an ID as soon as it allows it itself; the packet that says so
/// may be lost.
#[test]
fn a_connection_id_that_comes_before_its_path_is_allowed_is_kept() {
    let setup = Setup {
        params: |params| params.initial_max_path_id = Some(PathId(0)),
        ..few_paths()
    };
    let mut peer = RawPeer::server(setup).establish();
    peer.frames(ZERO, &[new_cid(ONE, 0, 0)]);
    peer.frames(ZERO, &[Frame::MaxPathId { limit: ONE }]);
    let now = peer.now;
    let client = peer.connection().expect("a connection");
    let opened = client.open_path(now, route(Side::Client, 1), PathOptions::default());
    assert_eq!(opened, Ok(ONE));
}

/// The packet that opens a path overtook the connection ID to answer with.
#[test]
fn a_path_is_answered_when_its_connection_id_comes() {
    let mut peer = RawPeer::connected_client();
    peer.adopt(ONE, 0);
    let tuple = route(Side::Server, 1);
    knock(&mut peer, ONE, tuple, 1200);
    peer.wait(Duration::from_millis(300));
    assert_eq!(peer.bytes_to(tuple), 0, "there is nothing to answer with");
    peer.frames(ZERO, &[new_cid(ONE, 0, 0)]);
    let answer = Frame::PathResponse { data: [3; 8] };
    assert_eq!(peer.count(|frame| *frame == answer), 1);
    peer.answer_challenges();
    assert!(peer.stats(ONE).validated);
}

/// Row 3: what waits for a connection ID is bounded in number and in time.
#[test]
fn paths_that_get_no_connection_id_are_given_up() {
    let mut peer = RawPeer::client(few_paths()).establish();
    for id in 1..4 {
        knock(&mut peer, PathId(id), route(Side::Server, id as u16), 1200);
    }
    assert_eq!(peer.paths().len(), 4);
    peer.wait(Duration::from_secs(5));
    assert_eq!(peer.paths(), [ZERO]);
    assert!(peer.count(|frame| matches!(frame, Frame::PathAbandon { .. })) >= 3);
    peer.assert_alive();
}
