//! Datagrams that are sent again when they are lost.

use crate::pair::{MBIT, Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::streams::DatagramOptions;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

const SKEW: Duration = Duration::from_millis(100);

fn connected(loss: u64) -> Pair {
    let mut ways = vec![Way::new(1).rate(20 * MBIT), Way::new(2).rate(20 * MBIT)];
    for way in &mut ways {
        way.loss = loss;
    }
    // The first one is preferred.
    ways[1].delay += Duration::from_millis(10);
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    pair.open_all();
    pair.run_for(Duration::from_millis(300));
    pair
}

/// Sends datagrams that tell their number, two a millisecond, and does `then` at half of them.
/// Returns the numbers that arrived.
fn send(pair: &mut Pair, repair: bool, then: impl Fn(&mut Pair)) -> BTreeSet<u32> {
    let options = DatagramOptions {
        max_skew: Some(SKEW),
        repair,
        ..DatagramOptions::default()
    };
    let mut arrived = BTreeSet::new();
    let mut read = |pair: &mut Pair| {
        while let Some(datagram) = pair.server_conn().recv_datagram() {
            let number = datagram.data[..4].try_into().expect("four bytes");
            arrived.insert(u32::from_be_bytes(number));
        }
    };
    for number in 0..1000u32 {
        if number == 500 {
            then(pair);
        }
        let mut data = vec![0; 400];
        data[..4].copy_from_slice(&number.to_be_bytes());
        let client = pair.client_conn();
        client
            .send_datagram_with(Bytes::from(data), options)
            .expect("space");
        if number % 2 == 1 {
            pair.run_for(Duration::from_millis(1));
            read(pair);
        }
    }
    pair.run_for(Duration::from_millis(500));
    read(pair);
    arrived
}

#[test]
fn lost_datagrams_arrive_all_the_same_if_they_are_to_be_repaired() {
    let mut pair = connected(30);
    let arrived = send(&mut pair, true, |_| {});
    let stats = pair.client_conn().stats().streams;
    assert!(stats.datagrams_repaired > 10, "{stats:?}");
    // What was lost twice is too late.
    assert_eq!(arrived.len() as u64 + stats.datagrams_lost, 1000);
    assert!(stats.datagrams_lost < 5, "{stats:?}");
    let mut unrepaired = connected(30);
    let fewer = send(&mut unrepaired, false, |_| {});
    let stats = unrepaired.client_conn().stats().streams;
    assert_eq!(stats.datagrams_repaired, 0);
    assert_eq!(fewer.len() as u64 + stats.datagrams_lost, 1000);
    assert!(stats.datagrams_lost > 10, "{stats:?}");
}

#[test]
fn what_a_path_holds_when_it_goes_silent_goes_by_the_other() {
    let cut = |pair: &mut Pair| (pair.ways[0].up, pair.ways[0].down) = (false, false);
    let mut pair = connected(0);
    let arrived = send(&mut pair, true, cut);
    assert_eq!(arrived.len(), 1000);
    let mut unrepaired = connected(0);
    assert!(send(&mut unrepaired, false, cut).len() < 1000);
}
