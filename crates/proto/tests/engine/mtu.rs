//! Path MTU discovery on networks that let only so much pass, and what depends on it.

use crate::pair::{MBIT, Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::path::MtuConfig;
use anabranch_proto::sched::{Choice, Reason, Scheduler, SchedulerFactory, SendView};
use anabranch_proto::streams::{ReceivedDatagram, SendDatagramError};
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

/// Every path that has room in turn.
#[derive(Debug, Default)]
struct Turns(usize);

impl Scheduler for Turns {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let ready: Vec<PathId> = view.ready().map(|path| path.id).collect();
        self.0 += usize::from(ready.len() > 1);
        match ready.get(self.0 % ready.len().max(1)) {
            Some(path) => Choice::send(*path, Reason::Turn),
            None => view.no_room(),
        }
    }
}

/// Two paths, of which the first is known and the second, which lets less pass, is still searched.
fn known_and_searched(mtu: u64) -> Pair {
    let mut ways = vec![Way::new(5).rate(20 * MBIT), Way::new(40).rate(20 * MBIT)];
    ways[1].mtu = mtu;
    let config = TransportConfig {
        scheduler: SchedulerFactory::from_fn("turns", || Box::<Turns>::default()),
        ..config()
    };
    let mut pair = Pair::new(ways, config);
    pair.connect();
    pair.upload(1_000_000, LIMIT);
    pair.open_path(1);
    pair
}

fn largest(pair: &mut Pair) -> usize {
    pair.client_conn().max_datagram_payload().expect("allowed")
}

fn send(pair: &mut Pair, length: usize) -> Result<(), SendDatagramError> {
    let data = Bytes::from(vec![7; length]);
    pair.client_conn().send_datagram(data)
}

fn arrived(pair: &mut Pair) -> Vec<ReceivedDatagram> {
    std::iter::from_fn(|| pair.server_conn().recv_datagram()).collect()
}

#[test]
fn a_path_that_is_still_searched_narrows_no_datagrams_and_carries_those_that_fit() {
    let mut pair = known_and_searched(1300);
    let roomy = largest(&mut pair);
    assert!(roomy > 1300);
    let (mut sent, mut came) = (0, Vec::new());
    // While the search goes on, and each probe that is too large is lost three times.
    while largest(&mut pair) == roomy {
        for length in [roomy, 100] {
            sent += usize::from(send(&mut pair, length).is_ok());
        }
        pair.run_for(Duration::from_millis(10));
        came.append(&mut arrived(&mut pair));
        assert!(sent < 2000, "the search ends");
    }
    pair.run_for(Duration::from_secs(1));
    came.append(&mut arrived(&mut pair));
    assert_eq!(came.len(), sent, "none was lost on the narrow path");
    let [near, far] = [PathId(0), PathId(1)].map(|path| {
        let by = came.iter().filter(|one| one.path == path);
        by.filter(|one| one.data.len() == 100).count()
    });
    assert!(near > 0 && far > 0, "{near} and {far} small ones");
    let stats = pair.client_conn().path_stats(PathId(1));
    let found = stats.expect("an open path").mtu;
    assert!((1280..=1300).contains(&found), "{found}");
    assert!(largest(&mut pair) < found.into());
}

#[test]
fn datagrams_are_as_small_as_the_searched_path_once_it_is_the_only_one_that_answers() {
    let mut pair = known_and_searched(1210);
    (pair.ways[0].up, pair.ways[0].down) = (false, false);
    let before = largest(&mut pair);
    send(&mut pair, before).expect("room in the queue");
    pair.run_for(Duration::from_millis(500));
    let now = largest(&mut pair);
    assert!(now < 1200, "{now}");
    assert_eq!(
        send(&mut pair, 1250),
        Err(SendDatagramError::TooLarge { max: now })
    );
    send(&mut pair, now).expect("room in the queue");
    pair.run_for(Duration::from_millis(500));
    let lengths: Vec<usize> = arrived(&mut pair)
        .iter()
        .map(|one| one.data.len())
        .collect();
    assert_eq!(lengths, [now]);
}
