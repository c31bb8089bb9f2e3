//! Probe time-outs: when they may be armed, and how they back off (RFC 9002, section 6.2).

use crate::raw::{RawPeer, Received, Setup, route};
use anabranch_proto::event::Level;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::{PathId, Side};
use std::time::Duration;

const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);

/// RFC 9002, section 6.2.1.
#[test]
fn a_client_probes_with_no_data_before_the_handshake_is_confirmed() {
    let mut peer = RawPeer::server(Setup::default());
    peer.shake();
    assert!(peer.handshake.is_complete());
    peer.provoke(500);
    let sent = |peer: &RawPeer| {
        let data = peer.inbox.iter();
        data.filter(|packet| packet.level == Level::OneRtt).count()
    };
    let before = sent(&peer);
    assert!(before > 0, "data itself need not wait");
    peer.wait(Duration::from_secs(5));
    assert_eq!(sent(&peer), before);
    peer.handshake.set_confirmed();
    peer.frames(ZERO, &[Frame::HandshakeDone]);
    peer.wait(Duration::from_secs(5));
    assert!(sent(&peer) > before, "from here on");
}

/// RFC 9002, section 6.2.1: each probe time-out is twice as long as the one before.
#[test]
fn a_path_that_no_other_stands_in_for_is_probed_ever_more_seldom() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    for _ in 0..20 {
        peer.ack_all();
        peer.wait(Duration::from_millis(100));
    }
    peer.inbox.clear();
    peer.provoke(500);
    peer.wait(Duration::from_secs(25));
    assert_eq!(peer.ended(), None);
    let probes = |path: PathId, peer: &RawPeer| {
        let asks = |frame: &Frame<'_>| matches!(frame, Frame::PathChallenge { .. });
        let of_path = peer.inbox.iter().filter(|packet| packet.path == path);
        of_path.filter(|packet| !packet.has(asks)).count()
    };
    // One of the two is doubted and asked twice a second, by a lone PING each time; the other one
    // is all that is left, and is not.
    let counts = [probes(ZERO, &peer), probes(ONE, &peer)];
    let least = counts.iter().min().expect("two paths");
    assert!((3..=2 * 12).contains(least), "{counts:?}");
    let size = |packet: &Received| packet.path == ONE && packet.tuple == route(Side::Server, 1);
    assert!(peer.inbox.iter().any(size));
}

/// RFC 9002, section 5.2.
#[test]
fn min_rtt_starts_again_after_persistent_congestion() {
    let mut peer = RawPeer::connected_client();
    for _ in 0..5 {
        peer.ack_all();
        peer.wait(Duration::from_millis(50));
    }
    assert!(peer.stats(ZERO).min_rtt <= Duration::from_millis(20));
    peer.provoke(2_000);
    // Everything is lost for several seconds, and the path is slower when it comes back.
    peer.wait(Duration::from_secs(6));
    let victim = peer.connection().expect("the victim");
    victim.ping(ZERO).expect("an open path");
    peer.receive();
    peer.now += Duration::from_millis(400);
    let last = peer.seen(ZERO).last().copied().expect("packets");
    let mut ack = Vec::new();
    let form = anabranch_proto::wire::frame::Form::Multipath;
    let newest = std::iter::once(last..=last);
    anabranch_proto::wire::frame::put_ack(&mut ack, form, ZERO, newest, 1, 0, None, 1000)
        .expect("room");
    peer.bytes(ZERO, &ack);
    let stats = peer.stats(ZERO);
    assert!(stats.counters.lost_packets > 3, "{stats:?}");
    assert!(stats.min_rtt >= Duration::from_millis(400), "{stats:?}");
}
