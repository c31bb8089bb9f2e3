//! How applications behave on a clean network.

use super::*;
use crate::quic::{QuicHost, SessionId, configs};
use crate::scene::{FIRST, Hosts, Scene};
use anabranch_link::{LinkConfig, Queue, Rate};
use anabranch_proto::time::Instant;
use std::time::Duration;

fn link(mbit: u64, delay_ms: u64) -> (LinkConfig, LinkConfig) {
    let rate = Rate::bits_per_second(mbit * 1_000_000).unwrap();
    let config = LinkConfig {
        queue: Queue::TailDropPackets(100),
        ..LinkConfig::new(rate, Duration::from_millis(delay_ms))
    };
    (config.clone(), config)
}

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// One connection over these links with an application on each side; runs until both are done.
fn run(
    links: &[(LinkConfig, LinkConfig)],
    client: impl crate::quic::App,
    server: impl crate::quic::App,
) -> (Scene, Hosts) {
    let mut scene = Scene::new(1, links);
    let (near, far) = scene.pair(
        anabranch_schedulers::transport(),
        anabranch_schedulers::transport(),
    );
    let hosts = scene.start(near.app(client), far.app(server));
    let ends = [hosts.client, hosts.server];
    assert!(scene.world.run_hosts(&ends, at_ms(60_000)), "unfinished");
    (scene, hosts)
}

#[test]
fn bulk_for_a_time_ends_when_it_is_over() {
    let bulk = Bulk::new(FIRST, Amount::Duration(Duration::from_secs(3)), at_ms(500));
    let (scene, hosts) = run(&[link(10, 10)], bulk, Receiver::new(1).verify());
    let bulk = scene.world.process::<QuicHost>(hosts.client).get::<Bulk>();
    assert_eq!(bulk.began(), Some(at_ms(500)));
    let total = *scene
        .world
        .process::<QuicHost>(hosts.server)
        .get::<Receiver>()
        .total();
    assert_eq!(total.corrupt, 0);
    assert!(total.bytes == bulk.written(), "{total:?}");
    // Three seconds, then what was still in the send buffer.
    assert!(scene.world.now() > at_ms(3_500));
}

/// When three files begin, and how long each takes: a large one, a small one beside it, and another
/// small one of this priority.
fn three_files(priority: i32) -> (Vec<Instant>, Vec<Duration>) {
    let files = vec![
        File::new(at_ms(1_000), 50_000),
        File::new(Instant::ZERO, 2_000_000),
        File {
            priority,
            ..File::new(at_ms(1_200), 50_000)
        },
    ];
    let (scene, hosts) = run(
        &[link(10, 10)],
        Files::new(FIRST, files, 10),
        Receiver::new(3).verify(),
    );
    let sender = scene.world.process::<QuicHost>(hosts.client);
    let receiver = scene.world.process::<QuicHost>(hosts.server);
    let receiver = receiver.get::<Receiver>();
    assert_eq!(receiver.total().bytes, 2_100_000);
    let sent = sender.get::<Files>();
    let begins = sent.sent().iter().map(|sent| sent.began).collect();
    let times = sent.completions(receiver, FIRST);
    let times = times.map(|(_, time)| time.expect("all arrived")).collect();
    (begins, times)
}

#[test]
fn files_begin_at_their_times_and_one_of_priority_overtakes_others() {
    let (begins, equal) = three_files(0);
    assert_eq!(begins[1..], [at_ms(1_000), at_ms(1_200)]);
    let (_, preferred) = three_files(1);
    assert!(preferred[2] < equal[2], "{preferred:?}, {equal:?}");
}

#[test]
fn one_request_follows_another_and_each_takes_a_round_trip_and_its_bytes() {
    let request = Request {
        at: Instant::ZERO,
        up: 100,
        down: 10_000,
    };
    let (scene, hosts) = run(
        &[link(10, 20)],
        Requests::new(FIRST, vec![request; 5], 1),
        Responder::default(),
    );
    let client = scene.world.process::<QuicHost>(hosts.client);
    let history = client.get::<Requests>().history();
    assert_eq!(history.len(), 5);
    for pair in history.windows(2) {
        assert_eq!(pair[0].finished, Some(pair[1].began));
    }
    // The second one shares the window with the server's search for larger packets, and its end
    // waits for an acknowledgement that is delayed.
    for exchange in history[..1].iter().chain(&history[2..]) {
        let took = exchange.finished.expect("an answer").since(exchange.began);
        assert_eq!(exchange.received, 10_000);
        let expected = Duration::from_millis(40)..Duration::from_millis(60);
        assert!(expected.contains(&took), "{took:?}");
    }
}

#[test]
fn requests_wait_for_their_time_and_run_side_by_side() {
    let request = |ms| Request {
        at: at_ms(ms),
        up: 5_000,
        down: 5_000,
    };
    let (scene, hosts) = run(
        &[link(10, 20)],
        Requests::new(FIRST, vec![request(700), request(200), request(701)], 8),
        Responder::default(),
    );
    let client = scene.world.process::<QuicHost>(hosts.client);
    let began: Vec<_> = client
        .get::<Requests>()
        .history()
        .iter()
        .map(|e| e.began)
        .collect();
    assert_eq!(began, [at_ms(200), at_ms(700), at_ms(701)]);
}

#[test]
fn datagrams_are_counted_and_timed() {
    let source = DatagramSource::new(
        FIRST,
        200,
        Duration::from_millis(20),
        at_ms(200),
        at_ms(1_200),
    );
    let mut scene = Scene::new(1, &[link(10, 30)]);
    let (near, far) = scene.pair(
        anabranch_schedulers::transport(),
        anabranch_schedulers::transport(),
    );
    let sink = DatagramSink::new(FIRST, Duration::from_millis(50));
    let hosts = scene.start(near.app(source), far.app(sink));
    scene.world.run_until(at_ms(2_000));
    let server = scene.world.process::<QuicHost>(hosts.server);
    let stats = server.get::<DatagramSink>().stats();
    assert_eq!((stats.received, stats.in_time), (50, 50), "{stats:?}");
    assert_eq!((stats.reordered, stats.duplicates), (0, 0));
    assert_eq!(stats.bytes, 10_000);
    let median = stats.delay_quantile(0.5).expect("some came");
    // The link's delay, and the transmission time of some 250 bytes at 10 Mbit/s.
    let expected = Duration::from_millis(30)..Duration::from_micros(30_400);
    assert!(expected.contains(&median), "{median:?}");
}

/// A file in chunks over two connections, each on its own link; returns how many seconds it took.
fn striped(mbit: [u64; 2], weights: [u32; 2], chunk: u64, processing: Option<Processing>) -> f64 {
    const BYTES: u64 = 3_000_000;
    let mut scene = Scene::new(1, &[link(mbit[0], 10), link(mbit[1], 10)]);
    let (client, server) = configs(
        anabranch_schedulers::transport(),
        anabranch_schedulers::transport(),
    );
    let (mut near, far) = scene.hosts(server);
    let plans = scene.plans();
    let lanes = [0, 1].map(|at| {
        let dial = crate::quic::Dial {
            paths: vec![plans[at]],
            ..scene.dial(client.clone())
        };
        (near.dial(dial), weights[at])
    });
    let chunks = Chunks::new(&lanes, BYTES, chunk).processing(processing);
    let hosts = scene.start(near.app(chunks), far.app(ChunkSink::new(BYTES)));
    assert!(scene.world.run_hosts(&[hosts.server], at_ms(600_000)));
    let server = scene.world.process::<QuicHost>(hosts.server);
    let stats = server.get::<ChunkSink>().stats();
    assert_eq!((stats.arrived, stats.delivered), (BYTES, BYTES));
    stats.last.expect("delivered").as_nanos() as f64 / 1e9
}

#[test]
fn strict_turns_move_at_twice_the_slower_link_and_weights_use_both() {
    let turns = striped([20, 5], [1, 1], 10_000, None);
    let weighted = striped([20, 5], [4, 1], 10_000, None);
    // 24 Mbit over 10 Mbit/s and over 25 Mbit/s; the send buffers of the lanes hold much of it.
    assert!((2.2..3.2).contains(&turns), "{turns}");
    assert!((0.9..1.5).contains(&weighted), "{weighted}");
}

#[test]
fn a_processor_that_handles_many_chunks_sets_the_pace() {
    let processing = Some(Processing::BTH);
    let seconds = striped([20, 20], [1, 1], 1_000, processing);
    let expected = Processing::BTH.ready(2_999).as_secs_f64();
    assert!((1.8..2.0).contains(&expected), "{expected}");
    assert!((expected..expected + 0.2).contains(&seconds), "{seconds}");
}

#[test]
fn a_session_that_does_not_exist_is_waited_for_without_end() {
    let bulk = Bulk::new(SessionId(3), Amount::Bytes(1), Instant::ZERO);
    let mut scene = Scene::new(1, &[link(10, 10)]);
    let (near, far) = scene.pair(
        anabranch_schedulers::transport(),
        anabranch_schedulers::transport(),
    );
    let hosts = scene.start(near.app(bulk), far);
    assert!(!scene.world.run_hosts(&[hosts.client], at_ms(1_000)));
}

#[test]
fn two_sources_of_datagrams_are_told_apart_and_what_is_due_too_early_is_refused() {
    let end = Instant::ZERO + Duration::from_secs(1);
    let source = |interval, number| {
        DatagramSource::new(
            FIRST,
            200,
            Duration::from_millis(interval),
            Instant::ZERO,
            end,
        )
        .numbered(number)
    };
    let mut scene = Scene::new(1, &[link(10, 10)]);
    let (client, server) = scene.pair(
        anabranch_schedulers::transport(),
        anabranch_schedulers::transport(),
    );
    let late = Duration::from_millis(50);
    let hosts = scene.start(
        client.app(source(10, 0)).app(source(20, 1)),
        server.app(DatagramSink::new(FIRST, late).and(1, late)),
    );
    scene.world.run_until(end + Duration::from_secs(1));
    let client = scene.world.process::<QuicHost>(hosts.client);
    let server = scene.world.process::<QuicHost>(hosts.server);
    let sources: Vec<_> = client.all::<DatagramSource>().collect();
    let sink: Vec<_> = server.get::<DatagramSink>().all().collect();
    assert_eq!((sources[0].sent(), sources[1].sent()), (100, 50));
    for (source, (number, stats)) in sources.iter().zip(sink) {
        assert_eq!(source.number(), number);
        assert!(
            source.refused() > 0,
            "the first one is due before the handshake"
        );
        assert_eq!(stats.received, source.sent() - source.refused());
        assert_eq!((stats.in_time, stats.duplicates), (stats.received, 0));
    }
}

#[test]
fn the_engine_drops_datagrams_that_are_worth_nothing_any_more() {
    let end = Instant::ZERO + Duration::from_secs(2);
    // 8 Mbit/s offered to a link of 1 Mbit/s.
    let slow = LinkConfig::new(
        Rate::bits_per_second(1_000_000).unwrap(),
        Duration::from_millis(10),
    );
    let expired = |deadline: Option<Duration>| {
        let mut scene = Scene::new(1, &[(slow.clone(), slow.clone())]);
        let (client, server) = scene.pair(
            anabranch_schedulers::transport(),
            anabranch_schedulers::transport(),
        );
        let every = Duration::from_millis(1);
        let source = DatagramSource::new(FIRST, 1000, every, Instant::ZERO, end);
        let sink = DatagramSink::new(FIRST, Duration::from_millis(100));
        let hosts = scene.start(client.app(source.deadline(deadline)), server.app(sink));
        scene.world.run_until(end);
        let client = scene.world.process::<QuicHost>(hosts.client);
        let connection = client.connection(FIRST).unwrap();
        connection.stats().streams.datagrams_expired
    };
    assert_eq!(expired(None), 0);
    assert!(expired(Some(Duration::from_millis(100))) > 100);
}

#[test]
fn a_chunk_that_is_not_where_it_belongs_is_noticed() {
    let corrupt = |length: u64| {
        let mut scene = Scene::new(1, &[link(10, 10)]);
        let (client, server) = scene.pair(
            anabranch_schedulers::transport(),
            anabranch_schedulers::transport(),
        );
        let chunks = Chunks::new(&[(FIRST, 1)], 50_000, 5000);
        let sink = ChunkSink::new(50_000).verify(length);
        let hosts = scene.start(client.app(chunks), server.app(sink));
        scene
            .world
            .run_until(Instant::ZERO + Duration::from_secs(5));
        let sink = *scene
            .world
            .process::<QuicHost>(hosts.server)
            .get::<ChunkSink>()
            .stats();
        assert_eq!(sink.delivered, 50_000);
        sink.corrupt
    };
    assert_eq!(corrupt(5000), 0);
    // As if every chunk but the first were shifted by one byte.
    assert!(corrupt(5001) > 40_000);
}
