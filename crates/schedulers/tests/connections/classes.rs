//! Classes of traffic, each steered in its own way, in running connections.

use crate::pair::{MBIT, Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::path::PathOptions;
use anabranch_proto::streams::DatagramOptions;
use anabranch_proto::wire::{Dir, PathId};
use anabranch_schedulers::{SteeringMode, builtin, recommended, steered};
use bytes::Bytes;
use std::time::Duration;

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const LIMIT: Duration = Duration::from_secs(60);
const STANDBY: u8 = SteeringMode::ActiveStandby.class();
const REDUNDANT: u8 = SteeringMode::Redundant.class();

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Two paths, and a client whose scheduler for class 0 is `first`.
fn pair(ways: [Way; 2], first: &str) -> Pair {
    let spec = first.parse().expect("a specification");
    let first = anabranch_proto::sched::SchedulerFactory::new(&builtin(), &spec);
    let mut pair = Pair::connected(ways.into(), TransportConfig::default());
    let client = pair.client_conn();
    client.set_scheduler(steered(first.expect("a scheduler")).build());
    pair
}

/// Starts a stream of a class.
fn start(pair: &mut Pair, class: u8, length: u64) -> usize {
    let client = pair.client_conn();
    let id = client.open(Dir::Uni).expect("a stream can be opened");
    client.set_class(id, class).expect("the stream is open");
    pair.add_flow(true, id, length)
}

/// What the client sent on a path: for the first time, and as copies.
fn sent(pair: &mut Pair, path: PathId) -> (u64, u64) {
    let stats = pair.client_conn().path_stats(path).expect("open");
    (stats.counters.fresh_bytes, stats.counters.copied_bytes)
}

#[test]
fn a_class_that_waits_for_its_full_path_keeps_no_other_waiting() {
    let slow = Way::new(1).rate(MBIT).queue_ms(200);
    let mut pair = pair([slow, Way::new(2).rate(20 * MBIT)], "min-rtt");
    let preferred = PathOptions {
        priority: 1,
        ..PathOptions::default()
    };
    let client = pair.client_conn();
    client.set_path_options(A, preferred).expect("open");
    let pinned = start(&mut pair, STANDBY, 400_000);
    pair.run_for(ms(300));
    let (_, before) = (sent(&mut pair, A), sent(&mut pair, B).0);
    assert_eq!(before, 0, "the standby path is left alone");

    let other = start(&mut pair, 0, 2_000_000);
    for _ in 0..20 {
        let options = DatagramOptions::default();
        let word = Bytes::from_static(b"word");
        let client = pair.client_conn();
        client.send_datagram_with(word, options).expect("space");
        let held = DatagramOptions {
            class: STANDBY,
            ..options
        };
        let data = Bytes::from(vec![1; 1000]);
        client.send_datagram_with(data, held).expect("space");
    }
    pair.run_for(ms(60));
    let server = pair.server_conn();
    let got = std::iter::from_fn(|| server.recv_datagram());
    let words = got.filter(|datagram| datagram.data.len() == 4).count();
    assert_eq!(words, 20, "datagrams of the free class overtook the others");

    pair.finish(other, LIMIT);
    assert!(
        !pair.flows[pinned].is_done(),
        "the other class took the turn of the pinned one"
    );
    pair.finish(pinned, LIMIT);
    let (fresh, _) = sent(&mut pair, B);
    assert!(
        fresh <= 2_000_000,
        "the pinned class went by the standby path"
    );
}

#[test]
fn a_redundant_class_arrives_by_every_path_and_once() {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(100);
    for first in ["min-rtt", "redundant", "tail+min-rtt"] {
        let mut pair = pair([way(1), way(2).delay(40)], first);
        let bulk = start(&mut pair, 0, 3_000_000);
        pair.run_for(ms(200));
        let voice = start(&mut pair, REDUNDANT, 60_000);
        pair.finish(voice, LIMIT);
        pair.finish(bulk, LIMIT);
        pair.run_for(ms(500));
        let copied = sent(&mut pair, A).1 + sent(&mut pair, B).1;
        assert!(copied > 0, "{first}: nothing of the class was copied");
        if first == "min-rtt" {
            // What is lost with its copy is copied again; the bulk is 50 times as much.
            assert!(copied <= 120_000, "copies of another class: {copied}");
        }
    }
}

#[test]
fn what_is_redundant_survives_the_loss_of_either_path_without_a_wait() {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(100);
    for lost in [0, 1] {
        let mut pair = pair([way(1).delay(20), way(2).delay(20)], "min-rtt");
        pair.transfer(true, 200_000, LIMIT);
        pair.ways[lost].set_open(false);
        let voice = start(&mut pair, REDUNDANT, 3_000);
        let options = DatagramOptions {
            class: REDUNDANT,
            critical: true,
            ..DatagramOptions::default()
        };
        let data = Bytes::from_static(b"hello");
        pair.client_conn()
            .send_datagram_with(data, options)
            .expect("space");
        let took = pair.finish(voice, LIMIT);
        assert!(took < ms(60), "{took:?} without path {lost}");
        assert!(pair.server_conn().recv_datagram().is_some());
    }
}

#[test]
fn the_recommended_scheduler_steered_by_class_ends_with_every_class() {
    let way = |index: u16| Way::new(index).rate(10 * MBIT).queue_ms(80).loss(10);
    let mut pair = Pair::connected(vec![way(1), way(2).delay(60)], TransportConfig::default());
    let steered = steered(recommended());
    pair.client_conn().set_scheduler(steered.build());
    pair.server_conn().set_scheduler(steered.build());
    let flows = (0..=9).map(|class| start(&mut pair, class, 150_000));
    let flows: Vec<usize> = flows.collect();
    for flow in flows {
        pair.finish(flow, LIMIT);
    }
}
