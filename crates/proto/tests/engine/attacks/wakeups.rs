//! What a peer leaves undone must cost the victim no time: it sleeps until something changes.

use super::{ONE, ZERO};
use crate::raw::{ORIGINAL_DCID, Packet, RawPeer, Setup, encode, new_cid, route};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::event::Level;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::{ConnectionId, Side};
use std::time::Duration;

/// An acknowledgement that is due, but for whose address no bytes are left to send.
#[test]
fn an_acknowledgement_that_may_not_be_sent_yet_wakes_nobody_up() {
    let mut peer = RawPeer::client(Setup::default());
    peer.send_crypto_at(Level::Initial);
    // Probes use up what the first datagram earned.
    peer.wait(Duration::from_secs(10));
    let mut ping = Packet::new(Level::Initial, encode(&[Frame::Ping]));
    ping.tuple = Some(route(Side::Server, 1));
    ping.dcid = ConnectionId::new(&ORIGINAL_DCID);
    peer.send(ping);
    peer.wait(Duration::from_secs(5));
    assert_eq!(peer.ended(), None);
}

/// The peer takes back every connection ID of a path on which an answer is awaited.
fn without_cids(keep_alive: Option<Duration>) -> RawPeer {
    let mut peer = RawPeer::client(Setup {
        transport: TransportConfig {
            keep_alive,
            ..TransportConfig::default()
        },
        ..Setup::default()
    })
    .establish();
    peer.open_path(ONE, 1);
    peer.ack_all();
    // Two moves use up connection IDs in an order that leaves the highest number spent.
    peer.adopt(ONE, 9);
    peer.frames(ZERO, &[new_cid(ONE, 9, 0)]);
    move_to(&mut peer, 2);
    peer.adopt(ONE, 5);
    peer.frames(ZERO, &[new_cid(ONE, 5, 0)]);
    move_to(&mut peer, 3);
    peer.ack_all();
    peer.frames(ZERO, &[new_cid(ONE, 9, 9)]);
    peer
}

fn move_to(peer: &mut RawPeer, n: u16) {
    let mut packet = Packet::one_rtt(ONE, encode(&[Frame::Ping]));
    packet.tuple = Some(route(Side::Server, n));
    packet.size = 1200;
    peer.send(packet);
    peer.answer_challenges();
}

#[test]
fn a_path_whose_connection_ids_were_all_taken_back_stops_neither_others_nor_time() {
    for keep_alive in [None, Some(Duration::from_millis(200))] {
        let mut peer = without_cids(keep_alive);
        peer.inbox.clear();
        peer.sizes.clear();
        // An answer is owed on it, and a question waits.
        let mut packet = Packet::one_rtt(ONE, encode(&[Frame::PathChallenge { data: [3; 8] }]));
        packet.tuple = Some(route(Side::Server, 3));
        peer.send(packet);
        let answered = |frame: &Frame<'_>| matches!(frame, Frame::PathResponse { .. });
        assert_eq!(peer.count(answered), 0, "there is no connection ID left");
        peer.provoke(20_000);
        assert!(peer.count(|f| matches!(f, Frame::Stream(_))) > 0, "starved");
        peer.wait(Duration::from_secs(2));
        assert_eq!(peer.ended(), None);
        // One more, and the path is back.
        peer.adopt(ONE, 10);
        peer.frames(ZERO, &[new_cid(ONE, 10, 9)]);
        assert_eq!(peer.count(answered), 1);
    }
}
