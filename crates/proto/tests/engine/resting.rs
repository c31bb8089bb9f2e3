//! What paths cost over which nothing goes, with the intervals of a tunnel: a client that knows its
//! links, and a server that follows it.

#![allow(
    clippy::print_stdout,
    reason = "measurements are shown beside their bounds"
)]

use crate::pair::{Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::connection::PathStats;
use anabranch_proto::path::PathOptions;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use std::collections::BTreeSet;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Bytes of an IPv4 and a UDP header.
const HEADERS: u64 = 28;

fn transport(keep_alive: u64, keep_alive_follows: bool) -> TransportConfig {
    TransportConfig {
        keep_alive: Some(Duration::from_secs(keep_alive)),
        keep_alive_follows,
        max_idle_timeout: Some(Duration::from_secs(120)),
        ..TransportConfig::default()
    }
}

/// Two paths that rest; the second is a backup that the client asks after so many seconds.
fn resting(seconds: u64) -> Pair {
    let ways = vec![Way::new(1).delay(15), Way::new(2).delay(40)];
    let mut pair = Pair::with(ways, transport(5, false), transport(27, true));
    pair.connect();
    pair.open_all();
    let options = PathOptions {
        status: PathStatus::Backup,
        keep_alive: Some(Duration::from_secs(seconds)),
        ..PathOptions::default()
    };
    let client = pair.client_conn();
    let set = client.set_path_options(PathId(1), options);
    set.expect("there is a second path");
    pair.run_for(Duration::from_secs(60));
    pair
}

/// Bytes of each path in both directions, with all headers, and its packets.
fn carried(pair: &mut Pair) -> [(u64, u64); 2] {
    [PathId(0), PathId(1)].map(|id| {
        let stats = pair.client_conn().path_stats(id);
        let counters = stats.expect("the path rests").counters;
        let packets = counters.sent_packets + counters.received_packets;
        let bytes = counters.sent_bytes + counters.received_bytes;
        (bytes + packets * HEADERS, packets)
    })
}

fn in_an_hour(pair: &mut Pair) -> [(u64, u64); 2] {
    let before = carried(pair);
    pair.run_for(HOUR);
    let after = carried(pair);
    [0, 1].map(|at| (after[at].0 - before[at].0, after[at].1 - before[at].1))
}

#[test]
fn each_path_costs_what_its_client_lets_it_rest() {
    for seconds in [5, 10, 20, 25] {
        let [used, backup] = in_an_hour(&mut resting(seconds));
        let month = |(bytes, _): (u64, u64)| bytes as f64 * 24.0 * 30.0 / 1e6;
        println!(
            "a path in use {:.1} MB a month; a backup asked after {seconds} s {:.1} MB, {} packets \
             an hour",
            month(used),
            month(backup),
            backup.1
        );
        // A question and an answer each time, whichever end asks: the server does a little earlier.
        for ((_, packets), seconds) in [(used, 5), (backup, seconds)] {
            let least = 2 * HOUR.as_secs() / seconds;
            assert!(
                (least - 4..least * 9 / 8).contains(&packets),
                "{packets} packets"
            );
        }
    }
}

/// A server follows from one question of the client's until its own next one.
#[test]
fn each_end_tells_how_long_it_lets_a_path_rest() {
    let mut pair = resting(25);
    let shown = |stats: Option<PathStats>| {
        let rest = stats.expect("the path rests").keep_alive;
        rest.expect("it is asked").as_secs()
    };
    let [mut client, mut server] = [[BTreeSet::new(), BTreeSet::new()], Default::default()];
    for _ in 0..100 {
        pair.run_for(Duration::from_secs(1));
        for (at, id) in [PathId(0), PathId(1)].into_iter().enumerate() {
            client[at].insert(shown(pair.client_conn().path_stats(id)));
            server[at].insert(shown(pair.server_conn().path_stats(id)));
        }
    }
    assert_eq!(client, [[5].into(), [25].into()]);
    assert_eq!(server, [[4, 27].into(), [23, 27].into()]);
    let options = PathOptions::default();
    let set = pair.client_conn().set_path_options(PathId(1), options);
    set.expect("there is a second path");
    assert_eq!(shown(pair.client_conn().path_stats(PathId(1))), 5);
}

#[test]
fn a_client_that_never_asks_is_asked_before_translators_forget_it() {
    let mut client = transport(5, false);
    client.keep_alive = None;
    let mut pair = Pair::with(vec![Way::new(1).delay(15)], client, transport(27, true));
    pair.connect();
    pair.run_for(Duration::from_secs(60));
    let sent = |pair: &mut Pair| {
        let stats = pair.server_conn().path_stats(PathId(0));
        stats.expect("the only path").counters.sent_packets
    };
    let before = sent(&mut pair);
    pair.run_for(HOUR);
    let asked = sent(&mut pair) - before;
    assert!((128..140).contains(&asked), "every 27 s: {asked}");
}

#[test]
fn both_ends_notice_that_a_resting_path_is_dead() {
    let mut pair = resting(25);
    pair.ways[1].set_open(false);
    pair.run_for(Duration::from_secs(60));
    // Whoever asks first tells the other by giving the path up.
    for server in [false, true] {
        let side = pair.side(server);
        let side = side.expect("the connection goes on");
        assert!(side.path_stats(PathId(1)).is_none_or(|path| path.closing));
    }
    assert!(pair.client_conn().path_stats(PathId(0)).is_some());
}

#[test]
fn a_path_never_rests_until_its_connection_ends() {
    let ways = vec![Way::new(1).delay(15)];
    let mut client = transport(5, false);
    client.keep_alive = None;
    client.max_idle_timeout = Some(Duration::from_secs(20));
    let mut pair = Pair::with(ways, client, transport(27, true));
    pair.connect();
    pair.run_for(Duration::from_secs(300));
    assert!(!pair.client_conn().is_closed());
    let stats = pair.server_conn().path_stats(PathId(0));
    let sent = stats.expect("the only path").counters.sent_packets;
    assert!((25..60).contains(&sent), "a question each 10 s: {sent}");
}
