//! Data is missing and its sender says nothing: the receiver finds the dead path and takes it away.
//!
//! The sender is a script that leaves data on the path that lost it, as noq does.

use crate::raw::{RawPeer, Received, encode, route};
use anabranch_proto::event::{Event, PathNotice};
use anabranch_proto::path::PathState;
use anabranch_proto::wire::frame::{Frame, Stream};
use anabranch_proto::wire::{Dir, PathId, Side, StreamId};
use std::time::Duration;

const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);
const STEP: Duration = Duration::from_millis(20);
const DATA: [u8; 100] = [7; 100];

/// A scripted client with two paths that has nothing left to hear or to say.
fn peer() -> RawPeer {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    for _ in 0..20 {
        peer.wait(STEP);
        peer.ack_all();
    }
    peer.inbox.clear();
    peer
}

/// Sends a part of a stream on this path.
fn send(peer: &mut RawPeer, path: PathId, offset: u64) {
    let part = Frame::Stream(Stream {
        id: StreamId::new(Side::Client, Dir::Bi, 0),
        offset,
        data: &DATA,
        fin: false,
    });
    let mut packet = crate::raw::Packet::one_rtt(path, encode(&[part]));
    packet.tuple = Some(route(Side::Server, path.0 as u16));
    peer.send(packet);
}

/// A client whose first bytes were lost.
fn peer_with_gap(by: PathId) -> RawPeer {
    let mut peer = peer();
    send(&mut peer, by, DATA.len() as u64);
    peer
}

/// Path 0 is dead, and with it all acknowledgements; path 1 answers challenges.
fn answer_on_one(peer: &mut RawPeer) {
    peer.answer_challenges_where(|tuple| tuple == route(Side::Server, 1));
}

/// Path 1 is dead; acknowledgements come by path 0.
fn answer_on_zero(peer: &mut RawPeer) {
    peer.ack_path(ZERO, 0);
}

/// Lets time pass; after each step the script answers. The result is what was given up, and where
/// the peer was told.
fn abandoned(
    peer: &mut RawPeer,
    span: Duration,
    answer: impl Fn(&mut RawPeer),
) -> Vec<(PathId, PathId)> {
    let mut told = Vec::new();
    let end = peer.now + span;
    while peer.now < end {
        peer.wait(STEP);
        for received in &peer.inbox {
            let frames = received.frames().into_iter();
            told.extend(frames.filter_map(|frame| match frame {
                Frame::PathAbandon { path, .. } => Some((path, received.path)),
                _ => None,
            }));
        }
        answer(peer);
        peer.inbox.clear();
    }
    told
}

fn gave_up(peer: &RawPeer, path: PathId) -> bool {
    let is_it = |event: &Event| match event {
        Event::Path(PathNotice::Abandoned { id, by_peer, .. }) => *id == path && !by_peer,
        _ => false,
    };
    peer.events.iter().any(is_it)
}

#[test]
fn a_receiver_abandons_the_path_by_which_its_peer_acknowledges_when_data_is_missing() {
    let mut peer = peer_with_gap(ONE);
    let told = abandoned(&mut peer, Duration::from_secs(4), answer_on_one);
    assert_eq!(told.first(), Some(&(ZERO, ONE)), "{told:?}");
    assert!(gave_up(&peer, ZERO));
    assert_eq!(peer.paths(), [ONE]);
    assert_eq!(peer.ended(), None);
}

#[test]
fn a_receiver_abandons_a_dead_path_whose_data_does_not_come_by_the_other_one() {
    let mut peer = peer_with_gap(ZERO);
    let early = abandoned(&mut peer, Duration::from_secs(2), answer_on_zero);
    assert_eq!(early, [], "a peer gets time to notice by itself");
    assert_eq!(peer.stats(ONE).state, PathState::Doubtful);
    let told = abandoned(&mut peer, Duration::from_secs(3), answer_on_zero);
    assert_eq!(told.first(), Some(&(ONE, ZERO)), "{told:?}");
    assert_eq!(peer.paths(), [ZERO]);
    assert_eq!(peer.ended(), None);
}

#[test]
fn a_peer_that_mends_the_gap_keeps_its_doubted_path() {
    let mut peer = peer_with_gap(ZERO);
    abandoned(&mut peer, Duration::from_secs(2), answer_on_zero);
    send(&mut peer, ZERO, 0);
    let told = abandoned(&mut peer, Duration::from_secs(10), answer_on_zero);
    assert_eq!(told, []);
    assert_eq!(peer.stats(ONE).state, PathState::Doubtful);
}

#[test]
fn a_peer_that_still_sends_keeps_its_doubted_path() {
    let mut peer = peer_with_gap(ZERO);
    abandoned(&mut peer, Duration::from_secs(2), answer_on_zero);
    for part in 2..12 {
        send(&mut peer, ZERO, part * DATA.len() as u64);
        let told = abandoned(&mut peer, Duration::from_secs(1), answer_on_zero);
        assert_eq!(told, []);
    }
}

#[test]
fn a_receiver_abandons_no_path_while_all_of_them_are_silent() {
    let mut peer = peer_with_gap(ONE);
    let told = abandoned(&mut peer, Duration::from_secs(20), |_| {});
    assert_eq!(told, []);
    assert_eq!(peer.paths(), [ZERO, ONE]);
    // The first sign of life is no proof that nothing comes by the other path.
    let told = abandoned(&mut peer, Duration::from_secs(1), answer_on_zero);
    assert_eq!(told, []);
}

#[test]
fn paths_are_probed_for_a_gap_alone() {
    let ping = |received: &Received| received.has(|frame| matches!(frame, Frame::Ping));
    let mut peer = peer();
    send(&mut peer, ZERO, 0);
    peer.wait(Duration::from_secs(20));
    assert!(!peer.inbox.iter().any(ping), "nothing is missing");
    peer.inbox.clear();
    send(&mut peer, ZERO, 2 * DATA.len() as u64);
    peer.wait(Duration::from_secs(1));
    for path in [ZERO, ONE] {
        let here = |received: &Received| received.path == path && ping(received);
        assert!(peer.inbox.iter().any(here), "{path:?} is not probed");
    }
}
