//! Congestion marks: proven on routes that carry them, given up on routes that do not.

use crate::pair::{MBIT, Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::wire::PathId;
use std::time::Duration;

#[test]
fn marks_are_proven_on_every_path_that_carries_them() {
    let ways = vec![
        Way::new(1).delay(10).rate(20 * MBIT),
        Way::new(2).delay(25).rate(20 * MBIT),
    ];
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    let ids = pair.open_all();
    pair.upload(1 << 20, Duration::from_secs(30));
    for id in ids {
        let stats = pair.client_conn().path_stats(id).unwrap();
        assert!(stats.counters.sent_packets > 100, "path {id} was used");
        assert!(stats.ecn, "marks are not proven on path {id}");
    }
}

#[test]
fn losses_do_not_disprove_marks() {
    let mut ways = vec![Way::new(1).delay(10).rate(20 * MBIT)];
    ways[0].drop_every = 7;
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    pair.upload(300_000, Duration::from_secs(60));
    assert!(pair.client_conn().path_stats(PathId::ZERO).unwrap().ecn);
}

#[test]
fn a_moved_path_proves_marks_anew_from_where_the_peer_counts() {
    let ways = vec![
        Way::new(1).delay(10).rate(20 * MBIT),
        Way::new(2).delay(10).rate(20 * MBIT),
    ];
    let to = ways[1].client;
    let back = ways[0].client;
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    pair.upload(300_000, Duration::from_secs(10));
    for tuple in [to, back] {
        let now = pair.now;
        pair.client_conn()
            .migrate_path(now, PathId::ZERO, tuple)
            .expect("the path can move");
        pair.upload(300_000, Duration::from_secs(10));
        let stats = pair.client_conn().path_stats(PathId::ZERO).unwrap();
        assert_eq!(stats.tuple, tuple);
        assert!(stats.ecn, "marks are not proven on {tuple:?}");
    }
}

#[test]
fn a_link_that_drops_what_is_marked_gets_no_marks_and_that_is_told_once() {
    let mut ways = vec![Way::new(1).delay(10).rate(20 * MBIT)];
    ways[0].drops_marks = true;
    let mut pair = Pair::new(ways, TransportConfig::default());
    let seen = pair.watch(false);
    pair.connect();
    pair.upload(300_000, Duration::from_secs(60));
    assert!(!pair.client_conn().path_stats(PathId::ZERO).unwrap().ecn);
    let seen = seen.lock().expect("no test thread panicked");
    assert_eq!(seen.ecn_failed, [PathId::ZERO]);
}
