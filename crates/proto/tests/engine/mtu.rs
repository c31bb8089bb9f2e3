//! Path MTU discovery on networks that let only so much pass, and what depends on it.

use crate::pair::{MBIT, Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::path::MtuConfig;
use anabranch_proto::wire::PathId;
use bytes::Bytes;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn config() -> TransportConfig {
    let mut config = TransportConfig {
        mtu: MtuConfig {
            interval: Duration::from_secs(5),
            ..MtuConfig::default()
        },
        ..TransportConfig::default()
    };
    config.streams.max_datagram_frame_size = 65_535;
    config
}

fn connected(mtu: u64) -> Pair {
    let mut way = Way::new(1).rate(20 * MBIT);
    way.mtu = mtu;
    let mut pair = Pair::new(vec![way], config());
    pair.connect();
    pair.upload(4_000_000, LIMIT);
    pair
}

fn mtu(pair: &mut Pair) -> u16 {
    let stats = pair.client_conn().path_stats(PathId::ZERO);
    stats.expect("path 0").mtu
}

#[test]
fn a_network_that_lets_more_pass_than_before_is_found_out() {
    let mut pair = connected(1300);
    let narrow = mtu(&mut pair);
    assert!((1280..=1300).contains(&narrow), "{narrow}");
    pair.ways[0].mtu = 0;
    pair.upload(500_000, LIMIT);
    assert_eq!(mtu(&mut pair), narrow, "the result stands for a while");
    pair.run_for(Duration::from_secs(6));
    pair.upload(500_000, LIMIT);
    assert_eq!(mtu(&mut pair), 1452);
}

#[test]
fn what_ethernet_carries_over_ipv4_is_found_out() {
    let config = TransportConfig {
        mtu: MtuConfig::ETHERNET,
        ..TransportConfig::default()
    };
    let mut way = Way::new(1).rate(20 * MBIT);
    way.mtu = 1472;
    let mut pair = Pair::new(vec![way], config);
    pair.connect();
    pair.upload(1_000_000, LIMIT);
    assert_eq!(mtu(&mut pair), 1472);
}

#[test]
fn datagrams_that_outgrew_the_path_do_not_block_smaller_ones() {
    let mut pair = connected(0);
    assert_eq!(mtu(&mut pair), 1452);
    pair.ways[0].mtu = 1210;
    let largest = pair.client_conn().max_datagram_payload().expect("allowed");
    assert!(largest > 1210);
    let send = |pair: &mut Pair, length| {
        let data = Bytes::from(vec![7; length]);
        pair.client_conn().send_datagram(data)
    };
    // What is in the queue when the black hole is found stays behind the windows until then.
    for _ in 0..60 {
        send(&mut pair, largest).expect("room in the queue");
    }
    pair.upload(200_000, LIMIT);
    assert_eq!(mtu(&mut pair), 1200);
    assert!(pair.client_conn().max_datagram_payload() < Some(1200));
    send(&mut pair, 100).expect("room in the queue");
    pair.run_for(Duration::from_secs(2));
    let arrived = std::iter::from_fn(|| pair.server_conn().recv_datagram());
    assert!(
        arrived
            .into_iter()
            .any(|datagram| datagram.data.len() == 100)
    );
}
