//! Whole connections over one and several paths.

use crate::pair::{Dice, MBIT, Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::event::Event;
use anabranch_proto::wire::Dir;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn a_handshake_completes_and_is_confirmed() {
    let mut pair = Pair::new(vec![Way::new(1)], TransportConfig::default());
    pair.connect();
    assert!(
        pair.client_events
            .iter()
            .any(|(_, event)| *event == Event::Connected)
    );
    assert!(
        pair.server_events
            .iter()
            .any(|(_, event)| *event == Event::Connected)
    );
    assert!(pair.client_conn().has_multipath());
}

#[test]
fn bytes_arrive_unchanged_over_one_path() {
    let mut pair = Pair::new(
        vec![Way::new(1).rate(50 * MBIT)],
        TransportConfig::default(),
    );
    pair.connect();
    let time = pair.upload(4_000_000, LIMIT);
    let ideal = Duration::from_secs_f64(4_000_000.0 / (50.0 * MBIT as f64));
    assert!(
        time < ideal * 2,
        "took {time:?}, the link alone needs {ideal:?}"
    );
}

#[test]
fn bytes_arrive_unchanged_over_a_lossy_path() {
    let mut way = Way::new(1).rate(20 * MBIT);
    way.drop_every = 29;
    let mut pair = Pair::new(vec![way], TransportConfig::default());
    pair.connect();
    pair.upload(1_000_000, LIMIT);
}

#[test]
fn two_equal_paths_carry_nearly_twice_as_much_as_one() {
    let way = |index| Way::new(index).rate(20 * MBIT);
    let mut single = Pair::new(vec![way(1)], TransportConfig::default());
    single.connect();
    let one = single.upload(8_000_000, LIMIT);
    let mut double = Pair::new(vec![way(1), way(2)], TransportConfig::default());
    double.connect();
    double.open_all();
    let two = double.upload(8_000_000, LIMIT);
    let gain = one.as_secs_f64() / two.as_secs_f64();
    assert!(
        gain > 1.8,
        "two paths gain {gain:.2}: {one:?} against {two:?}"
    );
}

#[test]
fn a_path_that_goes_silent_does_not_stop_a_transfer() {
    let ways = vec![Way::new(1).rate(20 * MBIT), Way::new(2).rate(20 * MBIT)];
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    pair.open_all();
    pair.upload(1_000_000, LIMIT);
    pair.ways[0].up = false;
    pair.ways[0].down = false;
    let time = pair.upload(2_000_000, LIMIT);
    assert!(time < Duration::from_secs(2), "took {time:?}");
}

#[test]
fn noise_that_looks_like_an_initial_keeps_nothing() {
    use anabranch_proto::event::ObserverFactory;
    use anabranch_proto::wire::ConnectionId;
    use anabranch_proto::wire::header::{LongType, put_long};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let observed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&observed);
    let server = TransportConfig {
        observer: Some(ObserverFactory::from_fn(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            None
        })),
        ..TransportConfig::default()
    };
    let pair = || {
        Pair::with(
            vec![Way::new(1)],
            TransportConfig::default(),
            server.clone(),
        )
    };
    let mut calm = pair();
    let began = calm.now;
    calm.connect();
    let calm = calm.now.since(began);
    assert_eq!(observed.load(Ordering::Relaxed), 1);

    let mut pair = pair();
    let (began, tuple) = (pair.now, pair.ways[0].server);
    // More than the handshakes after which clients are asked to prove their addresses.
    for index in 0..1000_u16 {
        let [high, low] = index.to_be_bytes();
        let cid = |last| ConnectionId::new(&[1, 2, 3, 4, 5, high, low, last]).expect("8 bytes");
        let mut noise = Vec::new();
        let header = put_long(&mut noise, LongType::Initial, &cid(1), &cid(2), &[], 0, 4);
        noise.resize(1200, low);
        header.set_length(&mut noise, 1200);
        pair.server.handle_datagram(began, tuple, None, &mut noise);
    }
    assert_eq!(pair.server.connections().count(), 0);
    assert!(pair.server.poll_event().is_none());
    assert_eq!(observed.load(Ordering::Relaxed), 1, "noise was observed");
    pair.connect();
    // A Retry would cost a round trip.
    assert_eq!(pair.now.since(began), calm);
}

/// The client's last packet of the handshake can be lost together with its probes while data that
/// the server cannot read without it fills the window.
#[test]
fn an_upload_that_begins_with_the_handshake_outlives_any_loss_in_it() {
    for seed in 0..200 {
        let way = Way::new(0).loss(200);
        let mut pair = Pair::new(vec![way], TransportConfig::default());
        pair.dice = Dice(seed);
        let limit = Duration::from_secs(20);
        assert!(pair.run_until(limit, |pair| pair.client_conn().is_established()));
        pair.upload(50_000, limit);
    }
}

/// What a server sends before it has heard the end of the handshake fills its window, too.
#[test]
fn a_download_that_begins_with_the_handshake_outlives_any_loss_in_it() {
    for seed in 0..200 {
        let way = Way::new(0).loss(200);
        let mut pair = Pair::new(vec![way], TransportConfig::default());
        pair.dice = Dice(seed);
        let limit = Duration::from_secs(20);
        let mut id = None;
        pair.run_until(limit, |pair| {
            id = pair.side(true).and_then(|server| server.open(Dir::Uni));
            id.is_some()
        });
        let flow = pair.add_flow(false, id.expect("credit"), 50_000);
        pair.finish(flow, limit);
    }
}
