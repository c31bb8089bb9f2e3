//! How soon a path is open, and what can delay it.

#![allow(
    clippy::print_stdout,
    reason = "measurements are shown beside their bounds"
)]

use crate::pair::{MBIT, Pair, Way};
use crate::raw::{RawPeer, Setup, new_cid, route};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::connection::PathStats;
use anabranch_proto::event::{Event, Level, PathNotice};
use anabranch_proto::path::PathOptions;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::params::TransportParameters;
use anabranch_proto::wire::{PathId, Side};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// When a side was told that a path carries data.
fn opened(events: &[(Instant, Event)], path: PathId) -> Option<Instant> {
    let is_it =
        |event: &Event| matches!(event, Event::Path(PathNotice::Opened { id, .. }) if *id == path);
    events
        .iter()
        .find(|(_, event)| is_it(event))
        .map(|(at, _)| *at)
}

/// Opens a path on `way` as soon as it can be opened; how long it takes until the client, and until
/// the server, may send data there.
fn time_to_open(pair: &mut Pair, way: usize) -> (Duration, Duration) {
    let tuple = pair.ways[way].client;
    let mut id = None;
    pair.run_until(LIMIT, |pair| {
        let now = pair.now;
        let client = pair.client_conn();
        id = client.open_path(now, tuple, PathOptions::default()).ok();
        id.is_some()
    });
    let (id, asked) = (id.expect("a path can be opened"), pair.now);
    let both = pair.run_until(LIMIT, |pair| {
        opened(&pair.client_events, id).is_some() && opened(&pair.server_events, id).is_some()
    });
    assert!(both, "path {id} opens on both sides");
    let since = |events: &[_]| opened(events, id).expect("it opened").since(asked);
    let took = (since(&pair.client_events), since(&pair.server_events));
    println!(
        "way {way}: open at the client after {:?}, at the server after {:?}",
        took.0, took.1
    );
    took
}

/// One round trip at the client, one and a half at the server, and little more.
fn assert_prompt(pair: &mut Pair, way: usize) {
    let rtt = 2 * pair.ways[way].delay;
    let (client, server) = time_to_open(pair, way);
    assert!(client < rtt * 5 / 4, "{client:?} at the client");
    assert!(server < rtt * 7 / 4, "{server:?} at the server");
}

#[test]
fn a_path_that_is_faster_than_the_first_opens_in_round_trips_of_its_own() {
    let ways = vec![Way::new(1).delay(300), Way::new(2).delay(10)];
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    assert_prompt(&mut pair, 1);
}

#[test]
fn a_path_beside_a_congested_one_opens_in_round_trips_of_its_own() {
    let slow = Way::new(1).delay(20).rate(MBIT).queue_ms(1_000);
    let ways = vec![slow, Way::new(2).delay(10), Way::new(3).delay(10)];
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    let flow = pair.start(true, 10_000_000);
    assert_prompt(&mut pair, 1);
    pair.run_for(Duration::from_secs(2));
    assert!(pair.flows[flow].received > 0, "a running transfer");
    assert_prompt(&mut pair, 2);
}

#[test]
fn a_slower_path_opens_in_round_trips_of_its_own() {
    let ways = vec![Way::new(1).delay(10), Way::new(2).delay(300)];
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    assert_prompt(&mut pair, 1);
}

/// The announcement of the connection ID is lost on the first path; the new one has its own.
#[test]
fn a_path_opens_although_the_first_went_silent() {
    let ways = vec![Way::new(1).delay(20), Way::new(2).delay(10)];
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    pair.ways[0].up = false;
    assert_prompt(&mut pair, 1);
}

/// Two ways, and a client whose handshake is complete over the first, as it knows.
fn just_complete(delays_ms: [u64; 2]) -> Pair {
    let ways = vec![
        Way::new(1).delay(delays_ms[0]),
        Way::new(2).delay(delays_ms[1]),
    ];
    let mut pair = Pair::new(ways, TransportConfig::default());
    let is_connected = |(_, event): &(_, Event)| matches!(event, Event::Connected);
    assert!(pair.run_until(LIMIT, |pair| pair.client_events.iter().any(is_connected)));
    assert!(!pair.client_conn().is_confirmed());
    pair
}

#[test]
fn a_client_opens_paths_before_it_knows_that_the_server_is_complete() {
    let mut pair = just_complete([50, 50]);
    let began = pair.now;
    let (_, server) = time_to_open(&mut pair, 1);
    // Half a round trip there, one more for the server's own challenge.
    assert!(server < Duration::from_millis(155), "{server:?}");
    assert!(pair.now.since(began) < Duration::from_millis(155));
}

#[test]
fn a_first_path_that_dies_behind_the_handshake_takes_nothing_along() {
    let mut pair = just_complete([50, 50]);
    // The end of the handshake has arrived, and what answers it is lost.
    pair.run_for(Duration::from_millis(60));
    pair.ways[0].set_open(false);
    time_to_open(&mut pair, 1);
    assert!(
        pair.client_conn().is_confirmed(),
        "by what came on the other"
    );
    let took = pair.transfer(false, 100_000, LIMIT);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_path_that_overtakes_the_end_of_the_handshake_waits_for_it_and_no_longer() {
    let mut pair = just_complete([300, 10]);
    let (client, server) = time_to_open(&mut pair, 1);
    let waited = Duration::from_millis(300);
    assert!(client < waited && server < waited, "{client:?}, {server:?}");
    pair.run_for(Duration::from_millis(100));
    let stats = pair.client_conn().path_stats(PathId(1));
    let rtt = stats.expect("an open path").smoothed_rtt;
    assert!(rtt < Duration::from_millis(30), "{rtt:?}");
}

#[test]
fn a_path_opens_early_also_where_the_end_of_the_handshake_is_lost() {
    let mut pair = just_complete([50, 10]);
    // What the client just sent on the first way, and its connection IDs with it, is lost.
    pair.ways[0].set_open(false);
    pair.run_for(Duration::from_millis(1));
    pair.ways[0].set_open(true);
    time_to_open(&mut pair, 1);
    let took = pair.transfer(false, 100_000, LIMIT);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_first_path_that_dies_with_the_end_of_the_handshake_takes_nothing_along() {
    let mut pair = just_complete([10, 50]);
    let began = pair.now;
    pair.ways[0].set_open(false);
    let flow = pair.start(true, 100_000);
    let (client, _) = time_to_open(&mut pair, 1);
    // A probe time-out of the first path, a round trip of the other, and a bit more.
    assert!(client < Duration::from_millis(200), "{client:?}");
    assert!(pair.client_conn().is_confirmed());
    let remote = |stats: Option<PathStats>| stats.expect("a path").tuple.remote;
    let first = remote(pair.server_conn().path_stats(PathId::ZERO));
    let second = remote(pair.server_conn().path_stats(PathId(1)));
    assert_ne!(first, second, "path 0 stays where it is");
    pair.finish(flow, LIMIT);
    let took = pair.now.since(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// The levels of what a client sends from its second address to a server that has nothing of the
/// end of the handshake, and announces that it reads Handshake packets from there or does not.
fn levels_by_the_second_path(is_announced: bool) -> Vec<Level> {
    let announced: fn(&mut TransportParameters) = |params| params.handshake_by_any_path = true;
    let setup = Setup {
        params: if is_announced { announced } else { |_| {} },
        ..Setup::default()
    };
    let mut peer = RawPeer::server(setup).half_way();
    peer.send_crypto_at(Level::Handshake);
    peer.adopt(PathId(1), 0);
    peer.frames(PathId::ZERO, &[new_cid(PathId(1), 0, 0)]);
    let (now, second) = (peer.now, route(Side::Client, 1));
    let client = peer.connection().expect("the client");
    let id = client.open_path(now, second, PathOptions::default());
    id.expect("the handshake is complete, and there is a connection ID");
    peer.wait(Duration::from_secs(3));
    let by_it = peer.inbox.iter().filter(|packet| packet.tuple == second);
    by_it.map(|packet| packet.level).collect()
}

#[test]
fn the_end_of_the_handshake_goes_by_further_paths_only_to_who_reads_it_there() {
    let levels = levels_by_the_second_path(true);
    assert!(levels.contains(&Level::Handshake), "{levels:?}");
    let levels = levels_by_the_second_path(false);
    assert!(
        levels.contains(&Level::OneRtt),
        "its challenges: {levels:?}"
    );
    assert!(!levels.contains(&Level::Handshake), "{levels:?}");
}
