//! The error rules of RFC 10069.

use super::{BOTH, ZERO, assert_breach, assert_bytes, assert_closed, assert_harmless};
use crate::raw::{RawPeer, Received, Setup, cid, encode, new_cid, token};
use anabranch_proto::connection::OpenPathError;
use anabranch_proto::path::PathOptions;
use anabranch_proto::wire::frame::{Frame, NewConnectionId, PathStatus};
use anabranch_proto::wire::{PathId, Side, TransportErrorCode as Code};

const ONE: PathId = PathId(1);
/// The largest path ID the victim allows by default.
const LIMIT: PathId = PathId(7);
const BEYOND: PathId = PathId(8);

fn status(path: PathId, sequence: u64, status: PathStatus) -> Frame<'static> {
    Frame::PathStatus {
        path,
        sequence,
        status,
    }
}

/// One frame of each type that names a path.
fn naming(path: PathId) -> Vec<Vec<u8>> {
    let id = path.0 as u8;
    vec![
        vec![0x3e, id, 0, 0, 0, 0],
        vec![0x3f, id, 0, 0, 0, 0, 0, 0, 0],
        encode(&[Frame::PathAbandon { path, code: 0 }]),
        encode(&[status(path, 0, PathStatus::Backup)]),
        encode(&[status(path, 0, PathStatus::Available)]),
        encode(&[new_cid(path, 0, 0)]),
        encode(&[Frame::RetireConnectionId { path, sequence: 0 }]),
        encode(&[Frame::PathCidsBlocked {
            path,
            next_sequence: 0,
        }]),
    ]
}

#[test]
fn a_path_above_the_announced_limit_is_a_violation_whatever_names_it() {
    for victim in BOTH {
        for payload in naming(BEYOND) {
            assert_bytes(victim, &payload, Code::PROTOCOL_VIOLATION);
        }
        let blocked = Frame::PathsBlocked { limit: BEYOND };
        assert_breach(victim, &[blocked], Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn the_largest_announced_path_may_be_named() {
    for victim in BOTH {
        assert_harmless(
            victim,
            &[
                status(LIMIT, 0, PathStatus::Backup),
                new_cid(LIMIT, 0, 0),
                Frame::PathsBlocked { limit: LIMIT },
                Frame::PathsBlocked { limit: ONE },
                Frame::PathAbandon {
                    path: LIMIT,
                    code: 0,
                },
            ],
        );
    }
}

#[test]
fn path_ids_of_more_than_32_bits_are_violations() {
    let large = [0xc0, 0, 0, 1, 0, 0, 0, 0];
    for victim in BOTH {
        for kind in 0x75..=0x7c {
            let mut payload = vec![0x7e, kind];
            payload.extend(large);
            payload.extend([0; 40]);
            assert_bytes(victim, &payload, Code::PROTOCOL_VIOLATION);
        }
        let ack = [&[0x3e][..], &large, &[0, 0, 0, 0]].concat();
        assert_bytes(victim, &ack, Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn max_path_id_below_the_initial_limit_is_a_violation() {
    for victim in BOTH {
        // The scripted peer announced 7.
        let below = Frame::MaxPathId { limit: PathId(6) };
        assert_breach(victim, &[below], Code::PROTOCOL_VIOLATION);
        let same = Frame::MaxPathId { limit: PathId(7) };
        assert_harmless(victim, std::slice::from_ref(&same));
        let raised = Frame::MaxPathId {
            limit: PathId(u32::MAX),
        };
        // What was sent before a raise may arrive after it.
        assert_harmless(victim, &[raised, same]);
    }
}

#[test]
fn an_acknowledgement_of_packets_never_sent_on_a_path_is_a_violation() {
    for victim in BOTH {
        let far = [0x3e, 0, 0x80, 0x10, 0, 0, 0, 0, 0];
        assert_bytes(victim, &far, Code::PROTOCOL_VIOLATION);
        // Nothing was sent on a path that was never opened.
        assert_bytes(victim, &[0x3e, 1, 0, 0, 0, 0], Code::PROTOCOL_VIOLATION);
    }
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    peer.bytes(ZERO, &[0x3e, 1, 0x80, 0x10, 0, 0, 0, 0, 0]);
    assert_closed(&peer, Code::PROTOCOL_VIOLATION);
}

#[test]
fn an_acknowledgement_for_a_path_that_is_gone_is_ignored() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    peer.frames(ZERO, &[Frame::PathAbandon { path: ONE, code: 0 }]);
    peer.bytes(ZERO, &[0x3e, 1, 0, 0, 0, 0]);
    peer.assert_alive();
    peer.wait(std::time::Duration::from_secs(20));
    peer.bytes(ZERO, &[0x3e, 1, 0, 0, 0, 0]);
    peer.assert_alive();
}

#[test]
fn path_cids_blocked_beyond_what_was_issued_is_a_violation() {
    for victim in BOTH {
        let blocked = |next_sequence| Frame::PathCidsBlocked {
            path: ONE,
            next_sequence,
        };
        // One connection ID was issued for the unused path.
        assert_harmless(victim, &[blocked(0), blocked(1)]);
        assert_breach(victim, &[blocked(2)], Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn a_connection_id_never_issued_on_a_path_cannot_be_retired() {
    for victim in BOTH {
        let retire = |sequence| Frame::RetireConnectionId {
            path: ONE,
            sequence,
        };
        assert_harmless(victim, &[retire(0)]);
        assert_breach(victim, &[retire(9)], Code::PROTOCOL_VIOLATION);
    }
}

#[test]
fn a_retired_connection_id_is_replaced() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        let retire = Frame::RetireConnectionId {
            path: ONE,
            sequence: 0,
        };
        peer.frames(ZERO, &[retire]);
        assert!(peer.remote_cids.contains_key(&(ONE, 1)));
    }
}

#[test]
fn a_connection_id_belongs_to_one_path() {
    for victim in BOTH {
        let stolen = Frame::NewConnectionId(NewConnectionId {
            path: PathId(2),
            sequence: 0,
            retire_prior_to: 0,
            cid: cid(ONE, 0),
            reset_token: token(PathId(2), 0),
        });
        let code = Code::PROTOCOL_VIOLATION;
        assert_breach(victim, &[new_cid(ONE, 0, 0), stolen], code);
    }
}

#[test]
fn the_limit_on_connection_ids_counts_for_each_path() {
    for victim in BOTH {
        let frames: Vec<_> = (1..=7)
            .flat_map(|path| (0..4).map(move |n| new_cid(PathId(path), n, 0)))
            .collect();
        assert_harmless(victim, &frames);
        let five: Vec<_> = (0..5).map(|n| new_cid(ONE, n, 0)).collect();
        assert_breach(victim, &five, Code::CONNECTION_ID_LIMIT_ERROR);
    }
}

#[test]
fn retire_prior_to_does_not_touch_other_paths() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        peer.frames(ZERO, &[new_cid(ZERO, 1, 0), new_cid(PathId(2), 5, 5)]);
        peer.assert_alive();
        let retired = |frame: &Frame<'_>| matches!(frame, Frame::RetireConnectionId { .. });
        assert_eq!(peer.count(retired), 0);
    }
}

#[test]
fn an_old_status_does_not_replace_a_newer_one() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    let statuses = [
        status(ONE, 5, PathStatus::Backup),
        status(ONE, 4, PathStatus::Available),
        status(ONE, 5, PathStatus::Available),
    ];
    peer.frames(ZERO, &statuses);
    let stats = peer.connection().and_then(|victim| victim.path_stats(ONE));
    assert_eq!(stats.expect("an open path").status, PathStatus::Backup);
    peer.frames(ZERO, &[status(ONE, 6, PathStatus::Available)]);
    let stats = peer.connection().and_then(|victim| victim.path_stats(ONE));
    assert_eq!(stats.expect("an open path").status, PathStatus::Available);
}

#[test]
fn a_status_for_an_unused_path_is_kept_until_it_opens() {
    let mut peer = RawPeer::connected_client();
    peer.frames(ZERO, &[status(ONE, 0, PathStatus::Backup)]);
    peer.open_path(ONE, 1);
    let stats = peer.connection().and_then(|victim| victim.path_stats(ONE));
    assert_eq!(stats.expect("an open path").status, PathStatus::Backup);
}

#[test]
fn multipath_frames_without_the_extension_are_encoding_errors() {
    let off = Setup {
        params: |params| params.initial_max_path_id = None,
        ..Setup::default()
    };
    for payload in naming(ZERO) {
        let setup = Setup {
            params: off.params,
            ..Setup::default()
        };
        let mut peer = RawPeer::client(setup).establish();
        peer.bytes(ZERO, &payload);
        assert_closed(&peer, Code::FRAME_ENCODING_ERROR);
    }
}

#[test]
fn a_server_that_withholds_the_extension_gets_none_of_it() {
    let setup = Setup {
        params: |params| params.initial_max_path_id = None,
        ..Setup::default()
    };
    let mut peer = RawPeer::server(setup).establish();
    let (now, tuple) = (peer.now, crate::raw::route(Side::Client, 1));
    let victim = peer.connection().expect("the client");
    assert!(!victim.has_multipath());
    let opened = victim.open_path(now, tuple, PathOptions::default());
    assert!(
        matches!(opened, Err(OpenPathError::NoMultipath)),
        "{opened:?}"
    );
    peer.frames(ZERO, &[Frame::Ping, Frame::Ping]);
    peer.wait(std::time::Duration::from_secs(1));
    let types = peer.inbox.iter().flat_map(Received::types);
    assert!(types.into_iter().all(|kind| !kind.is_multipath()));
    for payload in naming(ZERO) {
        let setup = Setup {
            params: |params| params.initial_max_path_id = None,
            ..Setup::default()
        };
        let mut peer = RawPeer::server(setup).establish();
        peer.bytes(ZERO, &payload);
        assert_closed(&peer, Code::FRAME_ENCODING_ERROR);
    }
}

#[test]
fn every_path_abandon_is_answered_once() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        let abandon = Frame::PathAbandon {
            path: PathId(3),
            code: 0x3e,
        };
        peer.frames(ZERO, std::slice::from_ref(&abandon));
        peer.frames(ZERO, &[abandon]);
        peer.ack_all();
        peer.wait(std::time::Duration::from_secs(1));
        let answered =
            |frame: &Frame<'_>| matches!(frame, Frame::PathAbandon { path, .. } if path.0 == 3);
        assert_eq!(peer.count(answered), 1);
        peer.assert_alive();
    }
}

#[test]
fn abandoning_the_last_path_ends_the_connection() {
    for victim in BOTH {
        let abandon = Frame::PathAbandon {
            path: ZERO,
            code: 0,
        };
        assert_breach(victim, &[abandon], Code::NO_VIABLE_PATH);
    }
}

#[test]
fn a_server_that_opens_a_path_is_ignored() {
    let mut peer = RawPeer::connected_server();
    peer.issue(ONE, 0);
    peer.inbox.clear();
    peer.frames(ONE, &[Frame::PathChallenge { data: [1; 8] }]);
    assert_eq!(
        peer.connection().map(|victim| victim.paths().count()),
        Some(1)
    );
    assert_eq!(peer.inbox.len(), 0);
    peer.assert_alive();
}
