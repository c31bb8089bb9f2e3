//! Frames and datagrams in masses (rows 15 to 18 and 45).

use super::{BOTH, ONE, ZERO, assert_closed};
use crate::raw::{Packet, RawPeer, Setup, encode, new_cid, route};
use anabranch_proto::Endpoint;
use anabranch_proto::config::{EndpointConfig, TransportConfig};
use anabranch_proto::event::Level;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::frame::{Frame, PathStatus};
use anabranch_proto::wire::{Dir, PathId, Side, TransportErrorCode as Code};
use std::time::Duration;

/// A peer that has acknowledged all that the victim has to say at first.
fn settled(victim: Side) -> RawPeer {
    let mut peer = RawPeer::against(victim);
    peer.wait(Duration::from_secs(1));
    peer.ack_all();
    peer
}

/// Row 15.
#[test]
fn a_flood_of_challenges_gets_few_answers_and_all_to_where_it_came_from() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    peer.inbox.clear();
    for round in 0..20_u8 {
        let challenges: Vec<_> = (0..100)
            .map(|n| Frame::PathChallenge {
                data: [n, round, 0, 0, 0, 0, 0, 9],
            })
            .collect();
        let mut packet = Packet::one_rtt(ONE, encode(&challenges));
        packet.tuple = Some(there);
        peer.send(packet);
    }
    let answered = |frame: &Frame<'_>| matches!(frame, Frame::PathResponse { .. });
    let answers = peer.count(answered);
    assert!((20..=80).contains(&answers), "{answers} answers to 2000");
    for packet in peer.inbox.iter().filter(|packet| packet.has(answered)) {
        assert_eq!((packet.path, packet.tuple), (ONE, there));
    }
    peer.assert_alive();
}

/// Row 15: what was answered is kept until it is acknowledged.
#[test]
fn who_acknowledges_no_answer_gets_no_more_of_them() {
    for victim in BOTH {
        let mut peer = settled(victim);
        let answers_to = |peer: &mut RawPeer, round: u8| {
            peer.inbox.clear();
            for n in 0..200 {
                let data = [n, round, 0, 0, 0, 0, 0, 9];
                peer.frames(ZERO, &[Frame::PathChallenge { data }]);
            }
            peer.count(|frame| matches!(frame, Frame::PathResponse { .. }))
        };
        let first = answers_to(&mut peer, 1);
        assert!((10..=40).contains(&first), "{first} answers to 200");
        let second = answers_to(&mut peer, 2);
        assert!(second <= 4, "{second} answers to 200 more");
        assert!(peer.stats(ZERO).bytes_in_flight < 80_000);
        peer.ack_all();
        assert!(answers_to(&mut peer, 3) >= 10, "it goes on");
        peer.assert_alive();
    }
}

/// Row 15: of acknowledgements, too, some ask to be acknowledged.
#[test]
fn who_acknowledges_nothing_makes_nobody_keep_more_and_more() {
    for victim in BOTH {
        let mut peer = settled(victim);
        let kept = |peer: &mut RawPeer| {
            for _ in 0..20_000 {
                peer.frames(ZERO, &[Frame::Ping, Frame::ImmediateAck]);
            }
            peer.stats(ZERO).bytes_in_flight
        };
        let before = kept(&mut peer);
        assert!(before < 40_000, "{before}");
        assert!(kept(&mut peer) <= before + 4_000, "{before} and more");
        peer.assert_alive();
    }
}

/// Row 16: the replacements are kept until they are acknowledged.
#[test]
fn who_acknowledges_no_replacement_of_connection_ids_gets_no_more_of_them() {
    for victim in BOTH {
        let mut peer = settled(victim);
        let issued = |peer: &RawPeer| {
            let known = peer.remote_cids.keys().filter(|(path, _)| *path == ONE);
            known.map(|(_, sequence)| sequence + 1).max().unwrap_or(0)
        };
        let mut retired = 0;
        for _ in 0..1000 {
            if retired < issued(&peer) {
                let (path, sequence) = (ONE, retired);
                peer.frames(ZERO, &[Frame::RetireConnectionId { path, sequence }]);
                retired += 1;
            } else {
                peer.frames(ZERO, &[Frame::Ping]);
            }
        }
        assert!((10..300).contains(&retired), "{retired} were replaced");
        assert!(peer.stats(ZERO).bytes_in_flight < 80_000);
        let before = retired;
        peer.ack_all();
        assert!(issued(&peer) > before, "it goes on");
        peer.assert_alive();
    }
}

/// Row 16.
#[test]
fn connection_ids_that_retire_each_other_without_end_are_refused() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        for n in 1..100 {
            peer.frames(ZERO, &[new_cid(ONE, n, n)]);
            if peer.ended().is_some() {
                assert!(n < 40, "refused after {n}");
                break;
            }
        }
        assert_closed(&peer, Code::CONNECTION_ID_LIMIT_ERROR);
    }
}

/// Row 16: the same with gaps, to grow what is remembered of sequence numbers.
#[test]
fn connection_ids_with_scattered_numbers_are_refused() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        for n in 1..200 {
            peer.frames(ZERO, &[new_cid(ONE, 2 * n, 2 * n)]);
            peer.ack_all();
            if peer.ended().is_some() {
                assert!(n < 60, "refused after {n}");
                break;
            }
        }
        assert_closed(&peer, Code::CONNECTION_ID_LIMIT_ERROR);
    }
}

/// Row 16: what the peer retires is replaced, one for one.
#[test]
fn connection_ids_retired_in_masses_are_replaced_one_for_one() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        for sequence in 0..200 {
            let path = ONE;
            peer.frames(ZERO, &[Frame::RetireConnectionId { path, sequence }]);
            peer.ack_all();
        }
        let issued = peer.remote_cids.keys().filter(|(path, _)| *path == ONE);
        assert_eq!(issued.count(), 201);
        peer.assert_alive();
    }
}

/// Row 16: many retirements in a packet, of connection IDs that would be issued on the way.
#[test]
fn a_connection_id_is_not_retired_before_it_was_sent() {
    for victim in BOTH {
        let mut peer = settled(victim);
        let known = peer.remote_cids.keys().filter(|(path, _)| *path == ONE);
        let next = known.map(|(_, sequence)| sequence + 1).max().unwrap_or(0);
        let retire = |sequence| Frame::RetireConnectionId {
            path: ONE,
            sequence,
        };
        // What is known may go, and is replaced.
        let frames: Vec<_> = (0..next).map(retire).collect();
        peer.frames(ZERO, &frames);
        peer.assert_alive();
        let issued = peer.remote_cids.keys().filter(|(path, _)| *path == ONE);
        assert_eq!(issued.count() as u64, 2 * next);
        // What comes next may not, not even behind what makes it come.
        let frames: Vec<_> = (next..next + 150).map(retire).collect();
        peer.frames(ZERO, &frames);
        assert_closed(&peer, Code::PROTOCOL_VIOLATION);
        let issued = peer.remote_cids.keys().filter(|(path, _)| *path == ONE);
        assert!((issued.count() as u64) <= 3 * next, "few were issued");
    }
}

/// Row 17.
#[test]
fn hints_and_statuses_in_masses_are_acknowledged_and_nothing_else() {
    for victim in BOTH {
        let mut peer = settled(victim);
        peer.wait(Duration::from_secs(1));
        peer.ack_all();
        peer.inbox.clear();
        for n in 0..200_u64 {
            let mut frames = vec![
                Frame::PathsBlocked { limit: PathId(7) },
                Frame::PathsBlocked { limit: ZERO },
                Frame::DataBlocked { limit: n },
                Frame::StreamsBlocked {
                    dir: Dir::Uni,
                    limit: n,
                },
            ];
            for path in (1..8).map(PathId) {
                frames.push(Frame::PathCidsBlocked {
                    path,
                    next_sequence: 1,
                });
                frames.push(Frame::PathStatus {
                    path,
                    sequence: n,
                    status: PathStatus::Backup,
                });
            }
            peer.frames(ZERO, &frames);
        }
        let idle = |frame: &Frame<'_>| {
            matches!(frame, Frame::Ack(_) | Frame::Ping | Frame::Padding { .. })
        };
        let others = peer.count(|frame| !idle(frame));
        assert_eq!(others, 0);
        assert!(peer.inbox.len() <= 201, "{} packets", peer.inbox.len());
        peer.assert_alive();
    }
}

/// Row 17: limits that rise step by step cost nothing either.
#[test]
fn limits_raised_in_tiny_steps_are_not_answered() {
    let mut peer = RawPeer::connected_client();
    peer.wait(Duration::from_secs(1));
    peer.ack_all();
    peer.inbox.clear();
    for n in 0..500 {
        let frames = [
            Frame::MaxPathId {
                limit: PathId(8 + n as u32),
            },
            Frame::MaxData { limit: n },
            Frame::MaxStreams {
                dir: Dir::Bi,
                limit: n,
            },
        ];
        peer.frames(ZERO, &frames);
    }
    assert!(peer.remote_cids.len() <= 10);
    assert!(peer.inbox.len() <= 501);
    peer.assert_alive();
}

fn stray(size: usize) -> Vec<u8> {
    let mut bytes = vec![0x45; size];
    bytes[1..9].copy_from_slice(b"nobody's");
    bytes
}

/// Row 18.
#[test]
fn resets_are_sent_at_a_bounded_rate() {
    let mut peer = RawPeer::connected_client();
    peer.unopened.clear();
    let tuple = peer.tuple;
    for _ in 0..20 {
        for _ in 0..100 {
            let mut bytes = stray(100);
            peer.victim
                .handle_datagram(peer.now, tuple, None, &mut bytes);
        }
        peer.receive();
    }
    let most = EndpointConfig::default().max_stateless_per_second as usize;
    assert!((1..=most).contains(&peer.unopened.len()));
}

/// Row 18.
#[test]
fn two_endpoints_do_not_reset_each_other_for_ever() {
    let now = Instant::from_nanos(1_000_000_000);
    let mut ends = [[1; 32], [2; 32]].map(|seed| Endpoint::new(EndpointConfig::default(), seed));
    let tuple = route(Side::Server, 1);
    let mut bytes = stray(1200);
    for round in 0.. {
        assert!(round < 30, "the loop does not end");
        let end = &mut ends[round % 2];
        let size = bytes.len();
        end.handle_datagram(now, tuple, None, &mut bytes);
        bytes.clear();
        if end.poll_transmit(now, 1, &mut bytes).is_none() {
            break;
        }
        assert!(bytes.len() < size);
    }
}

/// Row 18: a reset says nothing about whether a connection exists.
#[test]
fn damaged_packets_of_a_live_connection_are_not_reset() {
    let mut peer = RawPeer::connected_client();
    peer.unopened.clear();
    for size in [21, 30, 60, 1200] {
        let mut bytes = vec![0x47; size];
        bytes[1..9].copy_from_slice(peer.remote_cid(ZERO).as_slice());
        let tuple = peer.tuple;
        peer.deliver(tuple, &bytes);
    }
    assert_eq!(peer.unopened.len(), 0);
    peer.assert_alive();
}

/// A handshake under way is no place to store things.
#[test]
fn packets_before_their_keys_are_kept_in_small_numbers() {
    let mut peer = RawPeer::client(Setup::default()).half_way();
    let dcid = peer.remote_cid(ZERO);
    let tuple = peer.tuple;
    for n in 0..1000_u16 {
        let mut bytes = vec![0x45; 1200];
        bytes[1..9].copy_from_slice(dcid.as_slice());
        bytes[20..22].copy_from_slice(&n.to_be_bytes());
        peer.deliver(tuple, &bytes);
    }
    let dropped = |peer: &mut RawPeer| {
        let victim = peer.connection().expect("the victim");
        victim.stats().packets_dropped
    };
    assert_eq!(dropped(&mut peer), 1000 - 16);
    // What was kept is tried once the keys are there, and is no use.
    let mut peer = peer.establish();
    peer.assert_alive();
    assert_eq!(dropped(&mut peer), 1000);
}

/// Row 45.
#[test]
fn connection_ids_for_a_client_that_falls_silent_are_few_and_go_with_it() {
    const PATHS: u32 = 6;
    let mut peer = RawPeer::client(Setup {
        transport: TransportConfig {
            max_paths: PATHS,
            ..TransportConfig::default()
        },
        // Limits of a client that wants all it can get.
        params: |params| {
            params.initial_max_path_id = Some(PathId(1000));
            params.active_connection_id_limit = 1000;
        },
        ..Setup::default()
    });
    peer.send_crypto_at(Level::Initial);
    // One for each path, of which the first has a spare, and the one that the client invented.
    let most = PATHS as usize + 2;
    let routes = peer.victim.route_count();
    assert_eq!(routes, most);
    let tuple = peer.tuple;
    let mut ended = false;
    for _ in 0..60 {
        peer.wait(Duration::from_secs(1));
        ended |= peer.victim.connections().count() == 0;
        let routes = peer.victim.route_count();
        assert_eq!(routes, if ended { 0 } else { most });
        let (to, from) = (peer.bytes_to(tuple), peer.bytes_from(tuple));
        assert!(to <= 3 * from, "{to} bytes for {from}");
    }
    assert!(ended);
    let issued = |frame: &Frame<'_>| matches!(frame, Frame::NewConnectionId(_));
    assert!(peer.count(issued) > 0, "some fit behind the handshake");
}
