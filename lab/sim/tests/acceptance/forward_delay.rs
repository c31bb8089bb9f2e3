//! Delivery delay with both ways of measuring it, and what it changes: the fifth paper's H1..H12.

use crate::trial::{LOWEST_RTT, Link, Running, Trial, at, millis};
use anabranch_link::LinkConfig;
use anabranch_proto::config::{AckReturn, TransportConfig};
use anabranch_proto::sched::Reason;
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;
use anabranch_schedulers::Names;
use anabranch_sim::app::{Amount, Bulk, File, Receiver};
use anabranch_sim::quic::QuicHost;
use anabranch_sim::scene::{FIRST, Scene};
use anabranch_sim::{Buffers, Packet, Process};

/// Backward delays of path 1 in H1..H12, in milliseconds. Its forward delay is 10; path 2 has 50
/// forward and 10 backward.
const BACKWARD: [u64; 12] = [10, 20, 40, 60, 80, 100, 125, 150, 175, 200, 225, 250];

fn delays(backward: u64) -> [Link; 2] {
    let wire = |ms| LinkConfig {
        delay: millis(ms),
        ..LinkConfig::default()
    };
    [(wire(10), wire(backward)), (wire(50), wire(10))]
}

/// A file that fits one packet every 20 ms, from when both paths are open and measured.
fn thin() -> Vec<File> {
    (0..100)
        .map(|index| File::new(at(3000 + 20 * index), 1000))
        .collect()
}

/// Traffic on both paths, so that both are measured.
fn warm_up() -> Vec<File> {
    let mut files = vec![File::new(at(1500), 60_000), File::new(at(2200), 60_000)];
    files.extend(thin());
    files
}

fn share_of_path_1(scheduler: &str, backward: u64) -> f64 {
    let trial = Trial::on(&delays(backward)).timestamps().files(warm_up());
    let mut running = trial.start(scheduler);
    running.run_until(at(2950));
    let before = [running.carried(0), running.carried(1)];
    running.run_until(at(5000));
    let sent = [
        running.carried(0) - before[0],
        running.carried(1) - before[1],
    ];
    sent[0] as f64 / (sent[0] + sent[1]) as f64
}

#[test]
fn delivery_delay_prefers_path_1_in_all_of_h1_to_h12_and_the_lowest_rtt_in_three() {
    for (index, backward) in BACKWARD.into_iter().enumerate() {
        let own = share_of_path_1("delivery-delay", backward);
        let rtt = share_of_path_1(LOWEST_RTT, backward);
        assert!(own > 0.9, "H{}: {own}", index + 1);
        assert_eq!(rtt > 0.5, index < 3, "H{}: {rtt}", index + 1);
    }
}

/// The difference between the paths' forward delays as the client has measured it, in milliseconds.
fn measured(running: &Running) -> f64 {
    let connection = running.client().connection(FIRST).unwrap();
    let of = |path| {
        connection
            .path_stats(PathId(path))
            .unwrap()
            .forward_delay_us
    };
    let delays = of(0).zip(of(1)).expect("both are measured");
    (delays.1 - delays.0) as f64 / 1e3
}

#[test]
fn timestamps_and_a_common_way_back_agree_on_the_forward_delays_of_h10() {
    let mut found = Vec::new();
    for timestamps in [true, false] {
        let trial = Trial::on(&delays(200)).files(warm_up());
        let trial = if timestamps {
            trial.timestamps()
        } else {
            trial.receiver(|config| config.ack_return = AckReturn::LowestRtt)
        };
        let mut running = trial.start("round-robin");
        running.run_until(at(5000));
        found.push(measured(&running));
    }
    for way in &found {
        assert!((way - 40.0).abs() < 2.0, "{found:?}");
    }
    assert!((found[0] - found[1]).abs() < 2.0, "{found:?}");
}

#[test]
fn with_a_common_way_back_the_lowest_rtt_chooses_as_delivery_delay_does() {
    let trial = Trial::on(&delays(200)).files(warm_up());
    let trial = trial.receiver(|config| config.ack_return = AckReturn::Path(PathId(1)));
    let mut running = trial.start(LOWEST_RTT);
    running.run_until(at(2950));
    let before = [running.carried(0), running.carried(1)];
    running.run_until(at(5000));
    let sent = [
        running.carried(0) - before[0],
        running.carried(1) - before[1],
    ];
    assert!(sent[0] > 9 * sent[1], "{sent:?}");
}

/// A host whose clock has another origin and another speed.
#[derive(Debug)]
struct Clock {
    host: QuicHost,
    ahead: Duration,
    /// How much faster its clock runs, in parts per million.
    fast: u64,
}

impl Clock {
    fn own(&self, now: Instant) -> Instant {
        let nanos = now.as_nanos();
        let drift = (u128::from(nanos) * u128::from(self.fast) / 1_000_000) as u64;
        Instant::ZERO + Duration::from_nanos(nanos + drift) + self.ahead
    }

    fn world(&self, own: Instant) -> Instant {
        let nanos = own.since(Instant::ZERO + self.ahead).as_nanos();
        let million = 1_000_000;
        let scaled = nanos * million / u128::from(1_000_000 + self.fast) + 1;
        Instant::ZERO + Duration::from_nanos(scaled as u64)
    }
}

impl Process for Clock {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        self.host.handle_packet(self.own(now), packet);
    }

    fn exchange_buffers(&mut self, store: &mut Buffers) {
        self.host.exchange_buffers(store);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.host.handle_timeout(self.own(now));
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        self.host.poll_packet(self.own(now))
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        let own = self.host.next_timeout()?;
        Some(self.world(own))
    }
}

#[test]
fn clocks_that_differ_and_drift_change_no_choice() {
    let sender = TransportConfig {
        timestamps: true,
        scheduler: Names::default().scheduler("delivery-delay").unwrap(),
        ..anabranch_schedulers::transport()
    };
    let receiver = TransportConfig {
        timestamps: true,
        ..anabranch_schedulers::transport()
    };
    let mut scene = Scene::new(1, &delays(200));
    let (near, far) = scene.pair(sender, receiver);
    // A rate below that of the first path's window, since a long stream would fill both paths.
    let near = near.app(Bulk::new(FIRST, Amount::Bytes(300_000), at(1500)));
    let far = Clock {
        host: far.app(Receiver::new(1).verify()),
        ahead: Duration::from_secs(1000),
        fast: 100,
    };
    let client = scene.world.attach(scene.client, Box::new(near));
    let server = scene.world.attach(scene.server, Box::new(far));
    scene.world.run_until(at(8000));
    let far: &Clock = scene.world.process(server);
    assert!(far.host.get::<Receiver>().is_complete());
    assert_eq!(far.host.get::<Receiver>().total().corrupt, 0);
    let connection = scene
        .world
        .process::<QuicHost>(client)
        .connection(FIRST)
        .unwrap();
    let of = |path| {
        connection
            .path_stats(PathId(path))
            .unwrap()
            .forward_delay_us
            .unwrap()
    };
    assert!((of(1) - of(0) - 40_000).abs() < 3000);
    let reasons = connection.stats().scheduler.reasons;
    assert!(reasons.iter().any(|(reason, _)| *reason != Reason::NoRoom));
}
