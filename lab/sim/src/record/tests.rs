//! What the recorder counts, and that recording changes nothing.

use super::*;
use crate::app::{Amount, Bulk, Receiver};
use crate::scene::{FIRST, Hosts, Scene};
use anabranch_link::{LinkConfig, Loss, Probability, Queue, Rate};
use anabranch_proto::config::TransportConfig;

const BYTES: u64 = 4_000_000;

fn link(mbit: u64, delay_ms: u64, loss: f64) -> (LinkConfig, LinkConfig) {
    let rate = Rate::bits_per_second(mbit * 1_000_000).unwrap();
    let config = LinkConfig {
        queue: Queue::TailDropPackets(100),
        loss: Loss::Independent(Probability::new(loss).unwrap()),
        ..LinkConfig::new(rate, Duration::from_millis(delay_ms))
    };
    (config.clone(), config)
}

fn end() -> Instant {
    Instant::ZERO + Duration::from_secs(120)
}

fn start(
    links: &[(LinkConfig, LinkConfig)],
    probe: Option<&Probe>,
    settings: impl Fn(&mut TransportConfig),
) -> (Scene, Hosts) {
    let mut scene = Scene::new(1, links);
    let mut sender = anabranch_schedulers::transport();
    settings(&mut sender);
    let mut receiver = sender.clone();
    sender.observer = probe.map(Probe::sender);
    receiver.observer = probe.map(Probe::receiver);
    let (near, far) = scene.pair(sender, receiver);
    let bulk = Bulk::new(FIRST, Amount::Bytes(BYTES), Instant::ZERO);
    let hosts = scene.start(near.app(bulk), far.app(Receiver::new(1)));
    (scene, hosts)
}

fn record(
    links: &[(LinkConfig, LinkConfig)],
    watch: Watch,
    settings: impl Fn(&mut TransportConfig),
) -> (Scene, Recorder) {
    let probe = Probe::new(watch);
    let (mut scene, hosts) = start(links, Some(&probe), settings);
    let at = |host| End {
        host,
        session: FIRST,
    };
    let mut recorder = Recorder::new(at(hosts.client), at(hosts.server), probe, STEP);
    let done = recorder.run_while(&mut scene.world, end(), |world| {
        !world.process::<QuicHost>(hosts.server).is_done()
    });
    assert!(done, "unfinished");
    (scene, recorder)
}

const ALL: Watch = Watch {
    order: true,
    decisions: true,
    packets: true,
};

#[test]
fn looking_changes_nothing() {
    let links = [link(10, 10, 0.01), link(5, 40, 0.0)];
    let (seen, _) = record(&links, ALL, |_| ());
    let (mut unseen, hosts) = start(&links, None, |_| ());
    assert!(unseen.world.run_hosts(&[hosts.server], end()));
    assert_eq!(seen.world.trace_hash(), unseen.world.trace_hash());
    assert_eq!(seen.world.now(), unseen.world.now());
}

#[test]
fn the_intervals_add_up_to_the_totals() {
    let (mut scene, mut recorder) = record(&[link(10, 10, 0.01), link(5, 40, 0.0)], ALL, |_| ());
    let totals = recorder.totals(&mut scene.world);
    let paths = recorder.paths(&mut scene.world);
    assert_eq!(paths.len(), 2);
    let sum = |pick: fn(&SeriesRow) -> u64, path: Option<PathId>| {
        let rows = recorder.rows().iter().filter(|row| row.path == path);
        rows.map(pick).sum::<u64>()
    };
    assert_eq!(sum(|row| row.goodput_bytes, None), BYTES);
    let first_copies = paths.iter().map(|path| path.bytes.first_copy).sum::<u64>();
    assert_eq!(first_copies, BYTES);
    for path in &paths {
        let key = Some(path.path);
        assert_eq!(sum(|row| row.sent_bytes, key), path.sent.sent_bytes);
        assert_eq!(sum(|row| row.lost_bytes, key), path.sent.lost_bytes);
        assert!(path.srtt_mean >= Duration::from_millis(20));
        assert!(path.srtt_p95 >= path.srtt_mean);
    }
    assert!(paths[0].lost_random > 0);
    assert_eq!(totals.reseq_waits.total(), BYTES);
    assert!(totals.reseq_peak_bytes > 0);
    let decided = totals.sender.scheduler.reasons.iter().map(|(_, n)| n);
    assert!(decided.sum::<u64>() > 1000);
}

#[test]
fn one_way_delays_tell_the_queue_of_their_own_direction() {
    let (scene, recorder) = record(&[link(10, 30, 0.0)], Watch::default(), |_| ());
    let rows = recorder.rows().iter().filter(|row| row.path.is_some());
    let delays: Vec<_> = rows.filter_map(|row| row.owd).collect();
    let least = delays.iter().min().unwrap();
    assert!((30..35).contains(&least.as_millis()), "{least:?}");
    let queue = recorder.rows().iter().map(|row| row.queue_bytes).max();
    assert!(queue > Some(20_000), "{queue:?}");
    assert!(scene.world.now() < end());
}

#[test]
fn time_blocked_by_a_small_receive_window_is_accounted_for() {
    let links = [link(10, 50, 0.0)];
    let (mut scene, mut recorder) = record(&links, Watch::default(), |config| {
        config.streams.receive_window = 16_000;
        config.streams.max_receive_window = 16_000;
    });
    let blocked = recorder.totals(&mut scene.world).blocked;
    let whole = scene.world.now().since(Instant::ZERO);
    assert!(
        blocked.receive_window > whole / 2,
        "{blocked:?} of {whole:?}"
    );
    assert_eq!(blocked.send_buffer, Duration::ZERO);
    let rows = recorder.rows().iter().map(|row| row.blocked.receive_window);
    let sum: Duration = rows.sum();
    assert_eq!(sum, blocked.receive_window);
}

#[test]
fn time_blocked_by_a_small_send_buffer_is_told_apart() {
    let (mut scene, mut recorder) = record(&[link(10, 50, 0.0)], Watch::default(), |config| {
        config.streams.send_buffer = 16_000;
    });
    let blocked = recorder.totals(&mut scene.world).blocked;
    let whole = scene.world.now().since(Instant::ZERO);
    assert!(blocked.send_buffer > whole / 2, "{blocked:?} of {whole:?}");
    assert_eq!(blocked.receive_window, Duration::ZERO);
}

#[test]
fn a_scheduler_that_keeps_to_turns_is_seen_waiting() {
    let spec = "round-robin:mode=hold".parse().unwrap();
    let scheduler =
        anabranch_proto::sched::SchedulerFactory::new(&anabranch_schedulers::builtin(), &spec)
            .unwrap();
    let links = [link(10, 10, 0.0), link(2, 10, 0.0)];
    let (mut scene, mut recorder) = record(&links, ALL, |config| {
        config.scheduler = scheduler.clone();
    });
    let totals = recorder.totals(&mut scene.world);
    assert!(!recorder.probe().decisions().is_empty());
    let whole = scene.world.now().since(Instant::ZERO);
    assert!(totals.blocked.scheduler > whole / 3, "{:?}", totals.blocked);
}

#[test]
fn every_packet_with_data_has_a_fate() {
    let (_, recorder) = record(&[link(10, 10, 0.02), link(5, 40, 0.0)], ALL, |_| ());
    let packets = recorder.probe().packets();
    let fresh = packets.iter().filter(|row| row.kind == PacketKind::Fresh);
    assert!(fresh.count() as u64 > BYTES / 1452);
    let again = packets.iter().filter(|row| row.kind == PacketKind::Again);
    assert!(again.count() > 10);
    for row in &packets {
        assert!(row.arrived.is_none_or(|at| at > row.sent));
        assert!(
            row.acked
                .is_none_or(|at| row.arrived.is_some_and(|arrived| at > arrived))
        );
    }
    let lost = packets.iter().filter(|row| row.lost.is_some());
    let gone = lost.filter(|row| row.arrived.is_none()).count();
    assert!(gone > 10, "{gone}");
}
