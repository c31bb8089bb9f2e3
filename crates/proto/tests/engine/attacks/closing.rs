//! Packets on paths that are being closed: they are read and acknowledged, and that is all.

use super::{ONE, ZERO};
use crate::pair::watch::path_of;
use crate::raw::{Packet, RawPeer, encode, new_cid, route};
use anabranch_proto::datagram::Tuple;
use anabranch_proto::event::{Event, PathNotice};
use anabranch_proto::wire::Side;
use anabranch_proto::wire::frame::{Frame, PathStatus};
use std::time::Duration;

const ABANDON: Frame<'static> = Frame::PathAbandon { path: ONE, code: 0 };

/// What the application was told of path 1 after it was abandoned.
fn told_afterwards(peer: &RawPeer) -> Vec<PathNotice> {
    let of_path = |event: &Event| match event {
        Event::Path(notice) if path_of(notice) == Some(ONE) => Some(*notice),
        _ => None,
    };
    let told: Vec<_> = peer.events.iter().filter_map(of_path).collect();
    let is_end = |notice: &PathNotice| matches!(notice, PathNotice::Abandoned { .. });
    let end = told.iter().position(is_end).expect("it was abandoned");
    told[end + 1..].to_vec()
}

fn send_from(peer: &mut RawPeer, tuple: Tuple, frames: &[Frame<'_>]) {
    let mut packet = Packet::one_rtt(ONE, encode(frames));
    packet.tuple = Some(tuple);
    packet.size = 1200;
    peer.send(packet);
}

/// The move put the token of a connection ID into the table that nobody took out again: it outlived
/// the connection.
#[test]
fn a_path_that_is_closing_moves_nowhere_and_leaves_nothing_behind() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    peer.adopt(ONE, 1);
    peer.frames(ZERO, &[new_cid(ONE, 1, 0)]);
    peer.ack_all();
    peer.frames(ZERO, &[ABANDON]);
    peer.inbox.clear();
    let elsewhere = route(Side::Server, 66);
    send_from(&mut peer, elsewhere, &[Frame::Ping]);
    peer.wait(Duration::from_millis(50));
    assert_eq!(peer.bytes_to(elsewhere), 0);
    let late = |frame: &Frame<'_>| matches!(frame, Frame::Ack(ack) if ack.path == ONE);
    assert!(peer.count(late) > 0, "it is acknowledged, on another path");
    for _ in 0..50 {
        peer.ack_all();
        peer.wait(Duration::from_millis(100));
    }
    let discarded = PathNotice::Discarded { id: ONE };
    assert_eq!(told_afterwards(&peer), [discarded]);
    let now = peer.now;
    let victim = peer.connection().expect("the victim");
    victim.close(now, 0, b"");
    peer.receive();
    // The endpoint checks that nothing is routed to a connection that is gone.
    peer.wait(Duration::from_secs(10));
    assert_eq!(peer.victim.connections().count(), 0);
}

#[test]
fn a_path_whose_proof_comes_after_its_end_is_not_opened() {
    let mut peer = RawPeer::connected_client();
    peer.issue(ONE, 0);
    let tuple = route(Side::Server, 1);
    send_from(&mut peer, tuple, &[Frame::PathChallenge { data: [7; 8] }]);
    peer.frames(ZERO, &[ABANDON]);
    peer.answer_challenges_where(|from| from == tuple);
    peer.wait(Duration::from_secs(5));
    assert_eq!(told_afterwards(&peer), [PathNotice::Discarded { id: ONE }]);
}

#[test]
fn nothing_that_comes_on_a_closing_path_brings_it_back() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    peer.ack_all();
    let now = peer.now;
    let victim = peer.connection().expect("the victim");
    victim.abandon_path(now, ONE, 0).expect("an open path");
    peer.receive();
    peer.inbox.clear();
    let sent = peer.bytes_to(there);
    let status = PathStatus::Backup;
    let (path, sequence) = (ONE, 9);
    for n in 0..20 {
        let frames = [
            Frame::PathChallenge { data: [n; 8] },
            Frame::PathResponse { data: [n; 8] },
            Frame::PathStatus {
                path,
                sequence,
                status,
            },
            Frame::Ping,
        ];
        let from = if n % 2 == 0 {
            there
        } else {
            route(Side::Server, 70)
        };
        send_from(&mut peer, from, &frames);
        peer.frames(ZERO, &[new_cid(ONE, u64::from(n) + 1, 0)]);
    }
    // Lone PINGs: on an open path two of them ask for a detour of acknowledgements.
    for _ in 0..3 {
        peer.frames(ONE, &[Frame::Ping]);
    }
    peer.wait(Duration::from_secs(5));
    assert_eq!(peer.bytes_to(there), sent, "nothing is sent on it");
    let answered = |frame: &Frame<'_>| matches!(frame, Frame::PathResponse { .. });
    assert_eq!(peer.count(answered), 0);
    assert!(
        told_afterwards(&peer)
            .iter()
            .all(|notice| matches!(notice, PathNotice::Discarded { .. }))
    );
    assert_eq!(peer.paths(), [ZERO]);
    peer.assert_alive();
}
