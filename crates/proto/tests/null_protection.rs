//! Packets without protection change nothing but the time a simulation takes.

#[path = "engine/pair/mod.rs"]
mod pair;

use anabranch_proto::config::TransportConfig;
use anabranch_proto::connection::Connection;
use anabranch_proto::wire::Dir;
use bytes::Bytes;
use pair::{MBIT, Pair, Way, configs, endpoints};
use std::time::Duration;

const SECRET: &[u8] = b"these words are in the clear";

/// Two endpoints of which the client, the server, or both leave their packets unprotected.
fn pair(ways: Vec<Way>, unprotected: [bool; 2]) -> Pair {
    let mut ends = endpoints();
    for (end, unprotected) in ends.iter_mut().zip(unprotected) {
        if unprotected {
            end.leave_unprotected();
        }
    }
    let config = TransportConfig::default;
    let (client, server) = configs(config(), config());
    Pair::between(ends, ways, client, server)
}

/// Hash over time, way, direction and size of every datagram of a busy connection.
fn trace(null_protection: bool) -> (u64, u64) {
    let ways = vec![
        Way::new(1).rate(20 * MBIT).queue_ms(40).loss(10),
        Way::new(2).rate(5 * MBIT).delay(40).queue_ms(40),
    ];
    let mut pair = pair(ways, [null_protection; 2]);
    pair.connect();
    pair.open_all();
    let first = pair.start(true, 1_500_000);
    pair.transfer(false, 500_000, Duration::from_secs(20));
    let updated = pair.run_until(Duration::from_secs(5), |pair| {
        let now = pair.now;
        pair.client_conn().update_keys(now).is_ok()
    });
    assert!(updated, "keys are old enough after a while");
    pair.ways[1].set_open(false);
    pair.finish(first, Duration::from_secs(20));
    pair.ways[1].set_open(true);
    pair.transfer(true, 500_000, Duration::from_secs(20));
    assert_eq!(pair.client_conn().stats().keys_updated, 1);
    assert_eq!(pair.server_conn().stats().keys_updated, 1);
    (pair.trace, pair.delivered)
}

#[test]
fn a_connection_without_protection_leaves_the_same_trace() {
    let protected = trace(false);
    assert!(protected.1 > 2000, "{protected:?}");
    assert_eq!(trace(true), protected);
}

/// Whether the first words of a stream are readable on the wire.
fn is_readable(null_protection: bool) -> bool {
    let mut pair = pair(vec![Way::new(1)], [null_protection; 2]);
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    let client = pair.client_conn();
    let id = client.open(Dir::Uni).expect("a stream");
    client
        .write(id, &mut Bytes::from_static(SECRET))
        .expect("space");
    let mut bytes = Vec::new();
    pair.client
        .poll_transmit(pair.now, 1, &mut bytes)
        .expect("a packet");
    bytes.windows(SECRET.len()).any(|window| window == SECRET)
}

#[test]
fn only_endpoints_that_were_told_to_leave_packets_in_the_clear() {
    assert!(!is_readable(false));
    assert!(is_readable(true));
}

#[test]
fn a_side_that_protects_its_packets_accepts_none_without_protection() {
    for client_protects in [false, true] {
        let unprotected = [!client_protects, client_protects];
        let mut pair = pair(vec![Way::new(1)], unprotected);
        let confirmed = |pair: &mut Pair| {
            let client = pair.client.connection(pair.client_handle);
            client.is_some_and(Connection::is_confirmed)
        };
        assert!(!pair.run_until(Duration::from_secs(5), confirmed));
    }
}
