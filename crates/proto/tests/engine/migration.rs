//! A path that moves because the client or the server wants it to.

use crate::pair::{MBIT, Pair, Way, tls_pair};
use anabranch_proto::config::{ClientConfig, ServerConfig, TransportConfig};
use anabranch_proto::connection::{MigrateError, OpenPathError, PathStats};
use anabranch_proto::event::PathNotice;
use anabranch_proto::path::PathOptions;
use anabranch_proto::wire::PathId;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn single_path() -> TransportConfig {
    TransportConfig {
        max_paths: 0,
        ..TransportConfig::default()
    }
}

#[test]
fn a_client_moves_to_another_socket_without_the_extension() {
    let ways = vec![Way::new(1).rate(20 * MBIT), Way::new(2).rate(20 * MBIT)];
    let mut pair = Pair::new(ways, single_path());
    pair.connect();
    pair.upload(500_000, LIMIT);
    assert!(!pair.client_conn().has_multipath());
    let (now, tuple) = (pair.now, pair.ways[1].client);
    pair.client_conn()
        .migrate_path(now, PathId::ZERO, tuple)
        .expect("a spare connection ID");
    pair.upload(500_000, LIMIT);
    let at_server = pair.server_conn().path_stats(PathId::ZERO).expect("path 0");
    assert_eq!(at_server.tuple, pair.ways[1].server);
    let at_client = pair.client_conn().path_stats(PathId::ZERO).expect("path 0");
    assert!(at_client.validated && at_client.tuple == tuple);
}

#[test]
fn a_client_that_moves_into_the_void_comes_back() {
    let mut ways = vec![Way::new(1).rate(20 * MBIT), Way::new(2)];
    ways[1].up = false;
    let mut pair = Pair::new(ways, single_path());
    pair.connect();
    pair.upload(500_000, LIMIT);
    let (now, old, new) = (pair.now, pair.ways[0].client, pair.ways[1].client);
    pair.client_conn()
        .migrate_path(now, PathId::ZERO, new)
        .expect("a spare connection ID");
    pair.upload(500_000, LIMIT);
    assert_eq!(
        pair.client_conn()
            .path_stats(PathId::ZERO)
            .expect("path 0")
            .tuple,
        old
    );
}

#[test]
fn a_client_goes_to_the_servers_preferred_address() {
    for migration in [true, false] {
        goes_to_the_preferred_address(migration);
    }
}

/// A server that forbids moving says so of its other address only (RFC 9000, section 18.2).
fn goes_to_the_preferred_address(migration: bool) {
    let preferred: SocketAddr = "10.2.0.1:4433".parse().expect("an address");
    let (client_tls, server_tls) = tls_pair();
    let mut server = ServerConfig::new(server_tls);
    server.preferred_addresses = vec![preferred];
    server.transport = Arc::new(TransportConfig {
        migration,
        ..TransportConfig::default()
    });
    let mut client = ClientConfig::new(client_tls);
    client.transport = Arc::new(TransportConfig::default());
    let mut ways = vec![Way::new(1), Way::new(1)];
    ways[1].client.remote = preferred;
    ways[1].server.local = Some(preferred.ip());
    let mut pair = Pair::with_configs(ways, client, server);
    pair.connect();
    pair.upload(500_000, LIMIT);
    assert!(pair.has_notice(|notice| matches!(notice, PathNotice::Moved { .. })));
    let stats = pair.client_conn().path_stats(PathId::ZERO).expect("path 0");
    assert!(
        stats.validated && stats.tuple.remote == preferred,
        "{stats:?}"
    );
}

#[test]
fn a_server_that_forbids_moving_is_obeyed() {
    let ways = vec![Way::new(1), Way::new(2)];
    let server = TransportConfig {
        migration: false,
        ..single_path()
    };
    let mut pair = Pair::with(ways, single_path(), server);
    pair.connect();
    let (now, tuple) = (pair.now, pair.ways[1].client);
    let refused = pair.client_conn().migrate_path(now, PathId::ZERO, tuple);
    assert_eq!(refused, Err(MigrateError::Forbidden));
}

#[test]
fn a_server_that_forbids_moving_gets_further_paths_only_at_its_other_addresses() {
    let elsewhere: SocketAddr = "10.2.0.1:4433".parse().expect("an address");
    let mut ways = vec![Way::new(1), Way::new(2), Way::new(3)];
    ways[2].client.remote = elsewhere;
    ways[2].server.local = Some(elsewhere.ip());
    let server = TransportConfig {
        migration: false,
        ..TransportConfig::default()
    };
    let mut pair = Pair::with(ways, TransportConfig::default(), server);
    pair.connect();
    pair.run_for(Duration::from_millis(100));
    let (now, same, other) = (pair.now, pair.ways[1].client, pair.ways[2].client);
    let options = PathOptions::default();
    let client = pair.client_conn();
    let refused = client.open_path(now, same, options);
    assert_eq!(refused, Err(OpenPathError::Forbidden));
    let id = client.open_path(now, other, options).expect("a path");
    pair.run_for(Duration::from_secs(1));
    let stats = pair.client_conn().path_stats(id).expect("the path");
    assert!(stats.validated);
}

/// What a server has learnt of its way to a client that moves to `way`.
fn after_rebinding(change: impl Fn(&mut SocketAddr)) -> (PathStats, PathStats) {
    let ways = vec![Way::new(1).delay(30).rate(50 * MBIT)];
    let mut pair = Pair::new(ways, single_path());
    pair.connect();
    pair.transfer(false, 3_000_000, LIMIT);
    pair.run_for(Duration::from_secs(1));
    let before = pair.server_conn().path_stats(PathId::ZERO).expect("path 0");
    assert!(before.congestion_window > 100_000 && before.mtu > 1400);
    change(&mut pair.ways[0].server.remote);
    pair.client_conn().ping(PathId::ZERO).expect("path 0");
    let tuple = pair.ways[0].server;
    let moved = pair.run_until(LIMIT, |pair| {
        let stats = pair.server_conn().path_stats(PathId::ZERO);
        stats.is_some_and(|stats| stats.validated && stats.tuple == tuple)
    });
    assert!(moved, "the server follows");
    let after = pair.server_conn().path_stats(PathId::ZERO).expect("path 0");
    pair.transfer(false, 1_000_000, LIMIT);
    (before, after)
}

#[test]
fn a_change_of_the_clients_port_keeps_what_was_measured() {
    let (before, after) = after_rebinding(|remote| remote.set_port(2000));
    assert_eq!(after.mtu, before.mtu);
    assert!(
        after.congestion_window >= before.congestion_window,
        "{before:?}\n{after:?}"
    );
    assert!(after.smoothed_rtt.abs_diff(before.smoothed_rtt) < Duration::from_millis(20));
    assert!(after.min_rtt <= before.min_rtt);
}

#[test]
fn a_change_of_the_clients_address_starts_anew() {
    let other: SocketAddr = "10.9.0.1:1000".parse().expect("an address");
    let (before, after) = after_rebinding(|remote| *remote = other);
    assert!(after.congestion_window < before.congestion_window / 2);
    assert!(after.mtu < before.mtu);
}

#[test]
fn a_client_that_only_listens_takes_the_server_along() {
    let ways = vec![Way::new(1).rate(20 * MBIT), Way::new(2).rate(20 * MBIT)];
    let mut pair = Pair::new(ways, single_path());
    pair.connect();
    pair.transfer(false, 100_000, LIMIT);
    let (now, tuple) = (pair.now, pair.ways[1].client);
    pair.client_conn()
        .migrate_path(now, PathId::ZERO, tuple)
        .expect("a spare connection ID");
    pair.run_for(Duration::from_secs(1));
    pair.ways[0].up = false;
    pair.ways[0].down = false;
    let at_server = pair.server_conn().path_stats(PathId::ZERO).expect("path 0");
    assert!(at_server.validated && at_server.tuple == pair.ways[1].server);
    pair.transfer(false, 100_000, LIMIT);
}

#[test]
fn what_the_route_before_lost_or_took_long_for_is_not_blamed_on_the_new_one() {
    let ways = vec![Way::new(1).delay(150), Way::new(2).delay(10)];
    let mut pair = Pair::new(ways, single_path());
    pair.connect();
    let flow = pair.start(false, 30_000_000);
    pair.run_for(Duration::from_millis(1500));
    assert!(pair.flows[flow].done_at.is_none());
    let (now, tuple) = (pair.now, pair.ways[1].client);
    pair.client_conn()
        .migrate_path(now, PathId::ZERO, tuple)
        .expect("a spare connection ID");
    // Some of what is under way arrives yet and is acknowledged by the new route, the rest is lost.
    pair.run_for(Duration::from_millis(100));
    pair.ways[0].down = false;
    pair.finish(flow, LIMIT);
    let stats = pair.server_conn().path_stats(PathId::ZERO).expect("path 0");
    assert!(stats.counters.lost_packets > 0, "{stats:?}");
    assert!(stats.smoothed_rtt < Duration::from_millis(40), "{stats:?}");
    assert_eq!(stats.ssthresh, u64::MAX, "{stats:?}");
}
