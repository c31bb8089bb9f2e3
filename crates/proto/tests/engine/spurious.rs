//! Packets that were declared lost and arrive after all: what was done for the loss is taken back.

#![allow(
    clippy::print_stdout,
    reason = "measurements are shown beside their bounds"
)]

use crate::pair::{MBIT, Pair, Way};
use crate::raw::{Packet, RawPeer, Setup};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::congestion;
use anabranch_proto::path::PathCounters;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::{Form, Frame, put_ack};
use std::ops::RangeInclusive;
use std::time::Duration;

const ZERO: PathId = PathId::ZERO;

fn acks(ranges: &[RangeInclusive<u64>]) -> Vec<u8> {
    let mut payload = Vec::new();
    let ranges = ranges.iter().cloned();
    put_ack(
        &mut payload,
        Form::Multipath,
        ZERO,
        ranges,
        64,
        0,
        None,
        1000,
    )
    .expect("room");
    payload
}

fn controlled_by(congestion: &str) -> TransportConfig {
    let controller = congestion.parse().expect("a controller");
    let factory = congestion::Registry::builtin().factory(&controller);
    TransportConfig {
        congestion: factory.expect("a controller"),
        ..TransportConfig::default()
    }
}

/// A server that has just sent a first window of stream data and takes every loss for congestion,
/// the client that got all of it, and the first and last of these packets.
fn sent_window(length: usize) -> (RawPeer, u64, u64) {
    let setup = Setup {
        transport: controlled_by("cubic:random-loss=0"),
        ..Setup::default()
    };
    let mut peer = RawPeer::client(setup).establish();
    let before = peer.seen(ZERO).last().copied().expect("packets");
    peer.inbox.clear();
    peer.provoke(length);
    let seen = peer.seen(ZERO);
    let mut sent = seen.into_iter().filter(|pn| *pn > before);
    let first = sent.next().expect("a packet");
    let last = sent.next_back().expect("several packets");
    assert!(last >= first + 6);
    (peer, first, last)
}

#[test]
fn a_late_packet_alone_in_an_acknowledgement_takes_the_reduction_back() {
    let (mut peer, first, last) = sent_window(9_000);
    let before = peer.stats(ZERO).congestion_window;
    peer.bytes(ZERO, &acks(&[first + 1..=last]));
    let reduced = peer.stats(ZERO);
    assert_eq!(reduced.counters.lost_packets, 1);
    assert!(reduced.congestion_window < before);
    peer.bytes(ZERO, &acks(&[first..=last]));
    let after = peer.stats(ZERO);
    assert_eq!(after.counters.spurious_losses, 1);
    assert!(after.congestion_window >= before, "{after:?}");
    assert_eq!(after.ssthresh, u64::MAX);
}

#[test]
fn late_packets_are_taken_back_all_together_or_one_by_one() {
    for together in [true, false] {
        let (mut peer, first, last) = sent_window(11_000);
        let before = peer.stats(ZERO).congestion_window;
        peer.bytes(ZERO, &acks(&[first + 2..=last - 1]));
        assert!(peer.stats(ZERO).congestion_window < before);
        if !together {
            peer.bytes(ZERO, &acks(&[first + 2..=last, first..=first]));
            assert!(
                peer.stats(ZERO).congestion_window < before,
                "one of them is still lost"
            );
        }
        peer.bytes(ZERO, &acks(&[first..=last]));
        let after = peer.stats(ZERO);
        assert_eq!(after.counters.spurious_losses, 2);
        assert!(after.congestion_window >= before, "{after:?}");
    }
}

#[test]
fn data_that_arrived_late_is_not_sent_again_while_it_waits_for_its_turn() {
    let (mut peer, first, last) = sent_window(9_000);
    // Both arrive before the victim sends anything.
    for ranges in [[first + 1..=last], [first..=last]] {
        let mut bytes = peer.seal(&Packet::one_rtt(ZERO, acks(&ranges)));
        let (now, tuple) = (peer.now, peer.tuple);
        peer.victim.handle_datagram(now, tuple, None, &mut bytes);
    }
    assert_eq!(peer.stats(ZERO).counters.spurious_losses, 1);
    peer.wait(Duration::from_secs(1));
    let starts = |frame: &Frame<'_>| matches!(frame, Frame::Stream(stream) if stream.offset == 0);
    assert_eq!(peer.count(starts), 1);
    assert_eq!(peer.stats(ZERO).counters.retransmitted_bytes, 0);
}

/// Uploads over paths of 100 Mbit/s and 40 ms that lose nothing but what their queues have no room
/// for, and on which two packets of a thousand arrive up to 30 ms late. Returns the share of the
/// rate that was used, and what was counted on the first path.
fn upload_over_reordering(name: &str, paths: u16) -> (f64, PathCounters) {
    let way = |index| {
        let mut way = Way::new(index).delay(20).rate(100 * MBIT).queue_ms(100);
        way.late = 2;
        way.jitter = Duration::from_millis(30);
        way
    };
    let mut pair = Pair::new((1..=paths).map(way).collect(), controlled_by(name));
    pair.connect();
    pair.open_all();
    let length = 60_000_000 * u64::from(paths);
    let took = pair.transfer(true, length, Duration::from_secs(300));
    let ideal = length as f64 / (100 * MBIT * u64::from(paths)) as f64;
    let share = ideal / took.as_secs_f64();
    let stats = pair.client_conn().path_stats(ZERO).expect("a path");
    let counters = stats.counters;
    let (late, lost) = (counters.spurious_losses, counters.lost_packets);
    println!("{name}, paths: {paths}: {share:.3} of the rate, {late} of {lost} losses were none");
    (share, counters)
}

#[test]
fn reordering_costs_neither_window_nor_data() {
    for (controller, paths) in [
        ("cubic", 1),
        ("cubic:random-loss=0", 1),
        ("new-reno", 1),
        ("bbr", 1),
        ("cubic", 2),
    ] {
        let (share, counters) = upload_over_reordering(controller, paths);
        assert!(counters.spurious_losses > 20, "{counters:?}");
        assert!(share > 0.85, "{controller}: {share}");
    }
}
