//! How fast the simulator is, on the scenario that other simulators were measured on.
//!
//! The scenario is a bulk transfer on one connection over two links. A packet counts once for each
//! link it crosses, whether it carries data or acknowledgements.
//! `cargo bench -p anabranch-sim --bench speed -- base gig` runs only some of the cases,
//! `-- base null` only `base`, and only without packet protection. The hash of the trace shows
//! whether a change made for speed has changed what happens.
//!
//! Rates are per second of processor time where the system reports it (Linux), so that other work
//! on the machine does not count; elsewhere they are per second of wall time.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

use anabranch_link::{LinkConfig, Queue, Rate};
use anabranch_proto::time::Instant as WorldTime;
use anabranch_sim::app::{Amount, Bulk, Receiver};
use anabranch_sim::quic::QuicHost;
use anabranch_sim::scene::{FIRST, Scene};
use anabranch_sim::{Direction, Packet, Payload, Process};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Two links of one kind, and how much is sent.
struct Case {
    name: &'static str,
    mbit: u64,
    delay_ms: u64,
    queue: u64,
    bytes: u64,
}

const CASES: [Case; 4] = [
    Case {
        name: "base",
        mbit: 10,
        delay_ms: 50,
        queue: 100,
        bytes: 100_000_000,
    },
    Case {
        name: "fast",
        mbit: 100,
        delay_ms: 50,
        queue: 1000,
        bytes: 1_000_000_000,
    },
    Case {
        name: "gig",
        mbit: 1000,
        delay_ms: 10,
        queue: 1000,
        bytes: 1_000_000_000,
    },
    Case {
        name: "short",
        mbit: 10,
        delay_ms: 50,
        queue: 100,
        bytes: 1_000_000,
    },
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let only_null = wanted.iter().any(|w| w == "null");
    let is_wanted = |name: &str| {
        let mut names = wanted
            .iter()
            .filter(|w| !w.starts_with("--") && *w != "null");
        names.clone().next().is_none() || names.any(|w| w == name)
    };
    println!(
        "{:<10} {:>9} {:>9} {:>10} {:>12} {:>12} {:>10} {:>9} {:>17}",
        "case",
        "cpu s",
        "sim s",
        "packets",
        "packets/s",
        "events/s",
        "sim s/s",
        "peak MiB",
        "trace"
    );
    for case in CASES.iter().filter(|case| is_wanted(case.name)) {
        for unprotected in protections(only_null) {
            let Outcome {
                cpu,
                sim,
                packets,
                events,
                trace,
            } = run(case, unprotected);
            let name = format!("{}{}", case.name, if unprotected { " null" } else { "" });
            println!(
                "{name:<10} {cpu:>9.3} {sim:>9.2} {packets:>10} {:>12.0} {:>12.0} {:>10.1} \
                 {:>9.1}  {trace:016x}",
                packets as f64 / cpu,
                events as f64 / cpu,
                sim / cpu,
                peak_mib(),
            );
        }
    }
    if is_wanted("loop") {
        bare_loop();
    }
}

/// Runs with packet protection, and without it where the feature `null-protection` is on.
fn protections(only_null: bool) -> impl Iterator<Item = bool> {
    let with = (!only_null).then_some(false);
    let without = cfg!(feature = "null-protection").then_some(true);
    with.into_iter().chain(without)
}

#[cfg(feature = "null-protection")]
fn leave_unprotected(host: QuicHost) -> QuicHost {
    host.leave_unprotected()
}

#[cfg(not(feature = "null-protection"))]
fn leave_unprotected(_host: QuicHost) -> QuicHost {
    panic!("the feature is off");
}

/// The result of one run.
struct Outcome {
    cpu: f64,
    sim: f64,
    packets: u64,
    events: u64,
    trace: u64,
}

fn run(case: &Case, unprotected: bool) -> Outcome {
    let rate = Rate::bits_per_second(case.mbit * 1_000_000).expect("a rate");
    let link = LinkConfig {
        queue: Queue::TailDropPackets(case.queue),
        ..LinkConfig::new(rate, Duration::from_millis(case.delay_ms))
    };
    let started = Watch::start();
    let mut scene = Scene::new(1, &[(link.clone(), link.clone()), (link.clone(), link)]);
    let config = anabranch_schedulers::transport();
    let (mut near, mut far) = scene.pair(config.clone(), config);
    if unprotected {
        (near, far) = (leave_unprotected(near), leave_unprotected(far));
    }
    let bulk = Bulk::new(FIRST, Amount::Bytes(case.bytes), WorldTime::ZERO);
    let hosts = scene.start(near.app(bulk), far.app(Receiver::new(1)));
    let end = WorldTime::ZERO + Duration::from_secs(10_000);
    assert!(scene.world.run_hosts(&[hosts.server], end), "unfinished");
    let cpu = started.seconds();
    let both = [Direction::Forward, Direction::Backward];
    let lines = scene
        .links
        .iter()
        .flat_map(|link| both.map(|way| (*link, way)));
    let packets = lines.map(|(link, way)| scene.world.link_stats(link, way).packets_out);
    Outcome {
        cpu,
        sim: scene.world.now().as_nanos() as f64 / 1e9,
        packets: packets.sum(),
        events: scene.world.events(),
        trace: scene.world.trace_hash(),
    }
}

/// Answers each datagram with another, without end.
#[derive(Debug)]
struct Ball {
    own: SocketAddr,
    peer: SocketAddr,
    owed: u32,
}

impl Process for Ball {
    fn handle_packet(&mut self, _: WorldTime, _: Packet) {
        self.owed += 1;
    }

    fn handle_timeout(&mut self, _: WorldTime) {}

    fn poll_packet(&mut self, _: WorldTime) -> Option<Packet> {
        self.owed = self.owed.checked_sub(1)?;
        Some(Packet {
            from: self.own,
            to: self.peer,
            ecn: None,
            payload: Payload::Filler(1200),
        })
    }

    fn next_timeout(&mut self) -> Option<WorldTime> {
        None
    }
}

/// The event loop alone: empty datagrams bounced between two processes.
fn bare_loop() {
    const EVENTS: u64 = 10_000_000;
    let rate = Rate::bits_per_second(1_000_000_000).expect("a rate");
    let link = LinkConfig::new(rate, Duration::from_millis(1));
    let mut scene = Scene::new(1, &[(link.clone(), link)]);
    let link = scene.links[0];
    let [own, peer] = [scene.client, scene.server]
        .map(|node| SocketAddr::new(scene.world.address(node, link), 9));
    let ball = |own, peer, owed| Box::new(Ball { own, peer, owed });
    scene.world.attach(scene.client, ball(own, peer, 90));
    scene.world.attach(scene.server, ball(peer, own, 0));
    let started = Watch::start();
    while scene.world.events() < EVENTS {
        assert!(scene.world.step(), "the game goes on");
    }
    let rate = EVENTS as f64 / started.seconds();
    println!("bare loop: {:.1} M events/s", rate / 1e6);
}

/// Measures the processor time this process uses.
struct Watch {
    wall: Instant,
    cpu_ns: Option<u64>,
}

impl Watch {
    fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu_ns: cpu_ns(),
        }
    }

    fn seconds(&self) -> f64 {
        match (self.cpu_ns, cpu_ns()) {
            (Some(before), Some(now)) => (now - before) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The peak memory of this process so far, where the system reports it.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}
