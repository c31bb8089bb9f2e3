//! QUIC endpoints as processes.

use super::*;
use crate::app::{Amount, Bulk, Receiver};
use crate::{Change, Direction, LinkId, NodeId, NodeKind, ProcessId, World};
use anabranch_link::{LinkConfig, Queue, Rate};
use anabranch_proto::event::PathNotice;
use std::time::Duration;

const PORT: u16 = 4433;

/// A client with several links to a router, and a server behind that router.
struct Bench {
    world: World,
    links: Vec<LinkId>,
    client_node: NodeId,
    client: ProcessId,
    server: ProcessId,
}

fn link(mbit: u64, delay_ms: u64) -> LinkConfig {
    let rate = Rate::bits_per_second(mbit * 1_000_000).unwrap();
    LinkConfig {
        queue: Queue::TailDropPackets(100),
        ..LinkConfig::new(rate, Duration::from_millis(delay_ms))
    }
}

fn bench(seed: u64, access: &[LinkConfig], upload: bool, bytes: u64) -> Bench {
    let mut world = World::new(seed);
    let client = world.add_node(NodeKind::Host);
    let router = world.add_node(NodeKind::Router);
    let server = world.add_node(NodeKind::Host);
    let mut links = Vec::new();
    for config in access {
        links.push(world.connect(client, router, config.clone(), config.clone()));
    }
    let last = world.connect(router, server, LinkConfig::default(), LinkConfig::default());
    let remote = SocketAddr::new(world.address(server, last), PORT);
    let sockets = links.iter().map(|link| world.address(client, *link));
    let sockets: Vec<_> = sockets.map(|ip| SocketAddr::new(ip, 1000)).collect();
    let (client_config, server_config) = configs(
        anabranch_schedulers::transport(),
        anabranch_schedulers::transport(),
    );
    let seed = world.seed();
    let sender = Bulk::new(SessionId(0), Amount::Bytes(bytes), Instant::ZERO);
    let receiver = Receiver::new(1).verify();
    let mut near = QuicHost::new(seed.derive("client", 0), sockets);
    let mut far = QuicHost::new(seed.derive("server", 0), vec![remote]).serve(server_config);
    if upload {
        (near, far) = (near.app(sender), far.app(receiver));
    } else {
        (near, far) = (near.app(receiver), far.app(sender));
    }
    near.dial(Dial {
        config: client_config,
        at: Instant::ZERO,
        paths: (0..access.len())
            .map(|socket| PathPlan::new(socket, remote))
            .collect(),
    });
    let client_process = world.attach(client, Box::new(near));
    let server_process = world.attach(server, Box::new(far));
    Bench {
        world,
        links,
        client_node: client,
        client: client_process,
        server: server_process,
    }
}

impl Bench {
    /// Runs until the receiver has everything; returns the seconds it took.
    fn finish(&mut self, receiver: ProcessId, limit: u64) -> f64 {
        let end = Instant::ZERO + Duration::from_secs(limit);
        let done = self.world.run_while_until(end, |world| {
            !world
                .process::<QuicHost>(receiver)
                .get::<Receiver>()
                .is_done()
        });
        let host = self.world.process::<QuicHost>(receiver);
        let total = host.get::<Receiver>().total();
        assert!(done, "only {total:?} of {:?}", host.sessions());
        assert_eq!(total.corrupt, 0);
        self.world.now().as_nanos() as f64 / 1e9
    }
}

#[test]
fn an_upload_uses_both_links() {
    let mut bench = bench(1, &[link(10, 10), link(10, 20)], true, 5_000_000);
    let seconds = bench.finish(bench.server, 60);
    // 40 Mbit over 20 Mbit/s, plus headers, handshake and slow start.
    assert!((2.0..2.8).contains(&seconds), "{seconds}");
    for link in &bench.links {
        let bytes = bench.world.link_stats(*link, Direction::Forward).bytes_out;
        assert!(bytes > 2_000_000, "{link}: {bytes}");
    }
}

#[test]
fn a_download_uses_both_links() {
    let mut bench = bench(1, &[link(10, 10), link(10, 20)], false, 5_000_000);
    let seconds = bench.finish(bench.client, 60);
    assert!((2.0..2.8).contains(&seconds), "{seconds}");
}

#[test]
fn the_same_seed_gives_the_same_trace_although_tls_draws_its_own_random_numbers() {
    let run = |seed| {
        let lossy = LinkConfig {
            loss: anabranch_link::Loss::Independent(
                anabranch_link::Probability::new(0.01).unwrap(),
            ),
            ..link(10, 10)
        };
        let mut bench = bench(seed, &[link(10, 10), lossy], true, 2_000_000);
        bench.finish(bench.server, 60);
        (
            bench.world.trace_hash(),
            bench.world.now(),
            bench.world.events(),
        )
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn a_path_whose_link_was_down_is_opened_again_when_it_is_back() {
    let mut bench = bench(1, &[link(10, 10), link(10, 10)], true, 30_000_000);
    let (second, at) = (bench.links[1], |s| Instant::ZERO + Duration::from_secs(s));
    bench.world.at(
        at(1),
        Change::Admin {
            link: second,
            up: false,
        },
    );
    bench.world.at(
        at(6),
        Change::Admin {
            link: second,
            up: true,
        },
    );
    bench.world.run_until(at(5));
    let before = bench.world.link_stats(second, Direction::Forward).bytes_out;
    bench.finish(bench.server, 60);
    let after = bench.world.link_stats(second, Direction::Forward).bytes_out;
    assert!(after - before > 5_000_000, "{before} {after}");
}

#[test]
fn a_change_of_address_moves_the_path() {
    let mut bench = bench(1, &[link(10, 10), link(10, 10)], true, 10_000_000);
    let change = Change::Readdress {
        node: bench.client_node,
        link: bench.links[1],
        address: None,
    };
    bench
        .world
        .at(Instant::ZERO + Duration::from_secs(1), change);
    bench.finish(bench.server, 60);
    let host = bench.world.process::<QuicHost>(bench.server);
    let notices = host.sessions()[0].notices();
    let moved = |(_, notice): &&(Instant, PathNotice)| matches!(notice, PathNotice::Moved { .. });
    assert_eq!(notices.iter().filter(moved).count(), 1, "{notices:?}");
}
