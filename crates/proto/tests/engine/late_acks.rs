//! Peers that acknowledge later than they announced, and links that stall for a moment: neither is
//! a dead path, and what they hold back is not sent again.

#![allow(
    clippy::print_stdout,
    reason = "measurements are shown beside their bounds"
)]

use crate::pair::{MBIT, Pair, Way};
use crate::policies;
use crate::raw::{RawPeer, Setup};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::connection::PathStats;
use anabranch_proto::path::PathCounters;
use anabranch_proto::path::PathState;
use anabranch_proto::wire::{Dir, PathId, StreamId};
use bytes::Bytes;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const LENGTH: u64 = 21_000_000;
const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A server with two paths of 10 ms to a client that announces 10 ms of delay.
fn connected() -> RawPeer {
    let mut peer = RawPeer::client(Setup {
        // Both paths carry data all the time.
        transport: TransportConfig {
            scheduler: policies::turns(),
            ..TransportConfig::default()
        },
        params: |params| {
            params.max_ack_delay_ms = 10;
            params.initial_max_data = 1 << 30;
            params.initial_max_stream_data_uni = 1 << 30;
        },
        ..Setup::default()
    })
    .establish();
    peer.open_path(ONE, 1);
    for _ in 0..20 {
        peer.ack_all();
        peer.wait(ms(20));
    }
    peer
}

/// Writes some 16 packets for each path.
fn write(peer: &mut RawPeer, stream: StreamId, data: &mut Bytes) {
    let victim = peer.connection().expect("the victim");
    let mut part = data.split_to(data.len().min(2 * 16 * 1350));
    victim.write(stream, &mut part).expect("room for the data");
    assert!(part.is_empty());
}

/// Lets 40 ms pass, in which some 66 packets leave on each path. The paths that are `late` are
/// acknowledged at the end of it, up to the newest packet, the others every 10 ms.
fn round(peer: &mut RawPeer, stream: StreamId, data: &mut Bytes, late: &[PathId]) {
    for _ in 0..4 {
        write(peer, stream, data);
        peer.wait(ms(10));
        for path in [ZERO, ONE] {
            if !late.contains(&path) {
                peer.ack_path(path, 0);
            }
        }
    }
    for path in late {
        peer.ack_path(*path, 0);
    }
    peer.inbox.clear();
    peer.sizes.clear();
}

/// Doubts of both paths, and stream bytes sent.
fn cost(paths: &[PathStats; 2]) -> (u64, u64) {
    let counters = [paths[0].counters, paths[1].counters];
    let doubts = counters.iter().map(|counters| counters.doubts).sum();
    let bytes = |counters: &PathCounters| counters.fresh_bytes + counters.retransmitted_bytes;
    (doubts, counters.iter().map(bytes).sum())
}

#[test]
fn a_peer_that_tells_late_is_doubted_a_few_times_and_not_for_ever() {
    for late in [&[ONE][..], &[ZERO], &[ZERO, ONE]] {
        let mut peer = connected();
        let victim = peer.connection().expect("the victim");
        let stream = victim.open(Dir::Uni).expect("a stream");
        let mut data = Bytes::from(vec![0x5a; LENGTH as usize]);
        while !data.is_empty() {
            round(&mut peer, stream, &mut data, late);
        }
        for _ in 0..10 {
            round(&mut peer, stream, &mut data, late);
        }
        let (doubts, sent) = cost(&[ZERO, ONE].map(|path| peer.stats(path)));
        let sent = sent as f64 / LENGTH as f64;
        println!("late on {late:?}: {doubts} doubts, {sent:.3} of the bytes");
        assert!(doubts <= 6, "{doubts} doubts");
        assert!(sent <= 1.05, "{sent} of the bytes");
    }
}

/// What is learnt of a late peer makes failover no slower than that peer is.
#[test]
fn real_silence_of_a_peer_that_tells_late_is_noticed_soon() {
    let mut peer = connected();
    let victim = peer.connection().expect("the victim");
    let stream = victim.open(Dir::Uni).expect("a stream");
    let mut data = Bytes::from(vec![0x5a; LENGTH as usize]);
    for _ in 0..50 {
        round(&mut peer, stream, &mut data, &[ZERO, ONE]);
    }
    assert_eq!(peer.stats(ONE).state, PathState::Active);
    // From here on nothing is heard of path 1, and of path 0 as late as before.
    let mut owed_since = None;
    for step in 1.. {
        write(&mut peer, stream, &mut data);
        let stats = peer.stats(ONE);
        if stats.state != PathState::Active {
            break;
        }
        if stats.bytes_in_flight > 0 {
            owed_since.get_or_insert(peer.now);
        }
        let waited = owed_since.map_or(Duration::ZERO, |since| peer.now.since(since));
        assert!(waited < ms(120) && step < 100, "{stats:?}");
        peer.wait(ms(10));
        if step % 4 == 0 {
            peer.ack_path(ZERO, 0);
        }
    }
    let since = owed_since.expect("both paths are used");
    println!("doubted after {:?}", peer.now.since(since));
}

/// Two paths of 20 Mbit/s and 20 ms.
fn pair() -> Pair {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(100);
    let mut pair = Pair::new(vec![way(1), way(2)], TransportConfig::default());
    pair.connect();
    pair.open_all();
    pair.run_for(ms(300));
    pair
}

fn cost_of(pair: &mut Pair) -> (u64, f64) {
    let client = pair.client_conn();
    let paths = [ZERO, ONE].map(|path| client.path_stats(path).expect("an open path"));
    let (doubts, sent) = cost(&paths);
    (doubts, sent as f64 / LENGTH as f64)
}

#[test]
fn a_link_that_jitters_or_stalls_briefly_does_not_flap() {
    for (late, jitter) in [(20, 30), (5, 80)] {
        let mut pair = pair();
        for way in &mut pair.ways {
            way.late = late;
            way.jitter = ms(jitter);
        }
        pair.transfer(true, LENGTH, LIMIT);
        let (doubts, sent) = cost_of(&mut pair);
        println!("{late} ‰ up to {jitter} ms late: {doubts} doubts, {sent:.3} of the bytes");
        assert!(doubts <= 6, "{doubts} doubts\n{}", pair.report());
        assert!(sent <= 1.05, "{sent} of the bytes\n{}", pair.report());
    }
    // A link stands still ten times a second: what enters it is 60 ms late.
    let mut pair = pair();
    let flow = pair.start(true, LENGTH);
    let sound = pair.ways[0].delay;
    while pair.flows[flow].done_at.is_none() {
        pair.ways[0].delay = sound + ms(60);
        pair.run_for(ms(3));
        pair.ways[0].delay = sound;
        pair.run_for(ms(97));
    }
    let (doubts, sent) = cost_of(&mut pair);
    println!("stalls of 60 ms: {doubts} doubts, {sent:.3} of the bytes");
    assert!(doubts <= 6, "{doubts} doubts\n{}", pair.report());
}

/// A client whose server acknowledges every tenth packet, and anything after 200 ms.
fn with_lazy_server() -> Pair {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(50);
    let server = TransportConfig {
        ack_threshold: 10,
        max_ack_delay: ms(200),
        ..TransportConfig::default()
    };
    let mut pair = Pair::with(vec![way(1), way(2)], TransportConfig::default(), server);
    pair.connect();
    pair.open_all();
    pair.run_for(ms(1000));
    pair
}

#[test]
fn a_peer_that_acknowledges_late_as_announced_is_not_doubted() {
    let mut pair = with_lazy_server();
    for _ in 0..10 {
        pair.upload(10_000, LIMIT);
        pair.run_for(ms(1000));
    }
    for path in [0, 1] {
        let stats = pair.client_conn().path_stats(PathId(path));
        let doubts = stats.expect("an open path").counters.doubts;
        assert_eq!(doubts, 0, "{}", pair.report());
    }
}

#[test]
fn an_answer_to_a_probe_and_to_older_packets_means_a_slow_path() {
    let mut pair = with_lazy_server();
    pair.upload(1_000_000, LIMIT);
    pair.run_for(ms(1000));
    let mut paths = [0, 1].map(|path| pair.client_conn().path_stats(PathId(path)).expect("a path"));
    paths.sort_by_key(|path| path.smoothed_rtt);
    // The path that carries a few packets.
    let [before, _] = paths;
    let at = before.id.0 as usize;
    let way = pair.ways[at].delay;
    pair.ways[at].delay += ms(500);
    // A few packets, so that nothing but the probe makes the server answer.
    let flow = pair.start(true, 6_000);
    pair.run_for(ms(1));
    let doubtful = |pair: &mut Pair| {
        let stats = pair.client_conn().path_stats(before.id);
        stats.expect("a path").state == PathState::Doubtful
    };
    let sent = pair.now;
    while !doubtful(&mut pair) {
        assert!(pair.now.since(sent) < ms(490), "{}", pair.report());
        // The probe is to arrive just after what is under way.
        let left = ms(520).saturating_sub(pair.now.since(sent));
        pair.ways[at].delay = left.max(way);
        pair.run_for(ms(1));
    }
    pair.finish(flow, LIMIT);
    pair.run_for(ms(300));
    let after = pair.client_conn().path_stats(before.id).expect("a path");
    assert_eq!(after.state, PathState::Active, "{}", pair.report());
    assert!(
        after.congestion_window >= before.congestion_window,
        "{} before, {} after",
        before.congestion_window,
        after.congestion_window
    );
}

/// RFC 9002, section 5.3: the wait for keys is subtracted.
#[test]
fn an_acknowledgement_that_came_before_its_keys_is_timed_by_when_it_came() {
    let mut peer = RawPeer::client(Setup::default()).half_way();
    // By 0.5-RTT, which the peer can read and acknowledge before the end of its handshake is there.
    peer.provoke(100);
    peer.ack_path(PathId::ZERO, 0);
    peer.wait(Duration::from_millis(700));
    peer.shake();
    peer.assert_alive();
    let slowest = peer.stats(PathId::ZERO).smoothed_rtt;
    assert!(slowest < Duration::from_millis(100), "{slowest:?}");
}
