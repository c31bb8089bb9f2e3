//! Lies in acknowledgements (rows 13, 14 and 22).

use super::{BOTH, ONE, ZERO, assert_closed};
use crate::raw::{Packet, RawPeer, encode};
use anabranch_proto::internals::MAX_REPORTED_RANGES;
use anabranch_proto::wire::frame::{Form, Frame, put_ack};
use anabranch_proto::wire::{PathId, TransportErrorCode as Code};
use std::time::Duration;

fn ack(path: PathId, first: u64, last: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    let ranges = std::iter::once(first..=last);
    put_ack(
        &mut payload,
        Form::Multipath,
        path,
        ranges,
        1,
        0,
        None,
        1000,
    )
    .expect("room");
    payload
}

/// Row 13.
#[test]
fn an_optimistic_acknowledgement_is_caught_on_every_path() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        let last = *peer.seen(ZERO).last().expect("packets");
        peer.bytes(ZERO, &ack(ZERO, last, last + 200));
        assert_closed(&peer, Code::PROTOCOL_VIOLATION);
    }
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    let last = *peer.seen(ONE).last().expect("packets");
    peer.bytes(ZERO, &ack(ONE, last, last + 200));
    assert_closed(&peer, Code::PROTOCOL_VIOLATION);
}

/// Row 13: a number that was skipped betrays who acknowledges what it did not receive.
#[test]
fn a_skipped_packet_number_must_not_be_acknowledged() {
    let mut peer = RawPeer::connected_client();
    let mut gap = None;
    for _ in 0..5000 {
        peer.frames(ZERO, &[Frame::Ping]);
        peer.inbox.clear();
        let seen = peer.seen(ZERO);
        gap = seen
            .windows(2)
            .find(|pair| pair[0] + 1 != pair[1])
            .map(|pair| pair[0] + 1);
        if gap.is_some() {
            break;
        }
    }
    let gap = gap.expect("a packet number is skipped now and then");
    peer.ack_all();
    assert_eq!(peer.ended(), None);
    peer.bytes(ZERO, &ack(ZERO, gap, gap));
    assert_closed(&peer, Code::PROTOCOL_VIOLATION);
}

/// Row 13: gaps cost the victim a bounded number of ranges.
#[test]
fn packet_numbers_full_of_gaps_are_remembered_in_few_ranges() {
    let mut peer = RawPeer::connected_client();
    let first = peer.next_pn(anabranch_proto::event::Level::OneRtt, ZERO);
    let mut most = 0;
    for n in 0..3000 {
        let mut packet = Packet::one_rtt(ZERO, encode(&[Frame::Ping]));
        packet.pn = Some(first + 2 * n);
        peer.send(packet);
        for received in peer.inbox.drain(..) {
            for frame in received.frames() {
                if let Frame::Ack(ack) = frame {
                    let ranges = ack.ranges().count();
                    assert!(ranges <= MAX_REPORTED_RANGES, "{ranges} ranges");
                    most = most.max(ranges);
                    assert!(received.datagram <= 1452);
                }
            }
        }
    }
    assert_eq!(most, MAX_REPORTED_RANGES, "the gaps fill what is allowed");
    peer.assert_alive();
}

/// Row 14.
#[test]
fn claimed_delays_shrink_the_rtt_by_no_more_than_was_announced() {
    let mut peer = RawPeer::connected_client();
    for _ in 0..60 {
        let victim = peer.connection().expect("the victim");
        victim.ping(ZERO).expect("an open path");
        peer.receive();
        // No time-out is handled meanwhile: a probe would be acknowledged instead.
        peer.now += Duration::from_millis(90);
        peer.ack_path(ZERO, (1 << 40) - 1);
    }
    let stats = peer.stats(ZERO);
    // The RTT is 100 ms, and 25 ms are believed to be the peer's delay.
    assert!(stats.smoothed_rtt >= Duration::from_millis(70), "{stats:?}");
    assert!(
        stats.smoothed_rtt <= Duration::from_millis(110),
        "{stats:?}"
    );
    assert!(stats.min_rtt <= stats.smoothed_rtt);
}

/// Row 14: an RTT that returns another way is another RTT.
#[test]
fn min_rtt_starts_again_when_acknowledgements_take_another_way() {
    let mut peer = RawPeer::connected_client();
    let there = peer.open_path(ONE, 1);
    peer.ack_all();
    assert!(peer.stats(ZERO).min_rtt <= Duration::from_millis(20));
    let victim = peer.connection().expect("the victim");
    victim.ping(ZERO).expect("an open path");
    peer.receive();
    peer.now += Duration::from_millis(300);
    let last = *peer.seen(ZERO).last().expect("packets");
    let mut packet = Packet::one_rtt(ONE, ack(ZERO, last, last));
    packet.tuple = Some(there);
    peer.send(packet);
    assert!(peer.stats(ZERO).min_rtt >= Duration::from_millis(200));
}

/// Row 22.
#[test]
fn acknowledgements_of_acknowledgements_are_not_answered() {
    let mut peer = RawPeer::connected_client();
    peer.open_path(ONE, 1);
    peer.ack_all();
    peer.wait(Duration::from_secs(1));
    peer.ack_all();
    peer.sizes.clear();
    for _ in 0..200 {
        peer.ack_path(ZERO, 0);
        peer.ack_path(ONE, 0);
    }
    peer.wait(Duration::from_millis(500));
    assert_eq!(peer.sizes, []);
}
