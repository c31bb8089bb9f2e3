//! What coupled congestion control promises (RFC 6356, section 2): where paths share a bottleneck,
//! no more than one flow would take; where they do not, no less than the best path alone. And the
//! engine can tell which is the case (RFC 8382). And what flows take of a link beside others.

#![allow(
    clippy::print_stdout,
    reason = "measurements are shown beside their bounds"
)]

use anabranch_link::{LinkConfig, Queue, Rate};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::time::Instant;
use anabranch_schedulers::Names;
use anabranch_sim::app::{Amount, Bulk, Receiver};
use anabranch_sim::quic::{Dial, PathPlan, QuicHost, SessionId, configs};
use anabranch_sim::{NodeId, NodeKind, ProcessId, World};
use std::net::SocketAddr;
use std::time::Duration;

const PORT: u16 = 4433;

fn link(mbit: u64, delay_ms: u64, packets: u64) -> LinkConfig {
    let rate = Rate::bits_per_second(mbit * 1_000_000).expect("not zero");
    LinkConfig {
        queue: Queue::TailDropPackets(packets),
        ..LinkConfig::new(rate, Duration::from_millis(delay_ms))
    }
}

fn transport(congestion: &str, timestamps: bool) -> TransportConfig {
    TransportConfig {
        congestion: Names::default()
            .controller(congestion)
            .expect("a known name"),
        timestamps,
        ..anabranch_schedulers::transport()
    }
}

/// A client that uploads without end, and its server.
#[derive(Debug, Clone, Copy)]
struct Flow {
    client: ProcessId,
    server: ProcessId,
}

impl Flow {
    /// Starts a client with these access links to `near`, and a server behind `far`.
    fn start(
        world: &mut World,
        (near, far): (NodeId, NodeId),
        access: &[LinkConfig],
        transport: &TransportConfig,
        name: &'static str,
    ) -> Self {
        let client = world.add_node(NodeKind::Host);
        let server = world.add_node(NodeKind::Host);
        let links: Vec<_> = access
            .iter()
            .map(|config| world.connect(client, near, config.clone(), config.clone()))
            .collect();
        let last = world.connect(far, server, LinkConfig::default(), LinkConfig::default());
        let remote = SocketAddr::new(world.address(server, last), PORT);
        let sockets = links.iter().map(|link| world.address(client, *link));
        let sockets = sockets.map(|ip| SocketAddr::new(ip, 1000)).collect();
        let (client_config, server_config) = configs(transport.clone(), transport.clone());
        let forever = Amount::Duration(Duration::from_secs(3600));
        let mut sender = QuicHost::new(world.seed().derive(name, 0), sockets).app(Bulk::new(
            SessionId(0),
            forever,
            Instant::ZERO,
        ));
        sender.dial(Dial {
            config: client_config,
            at: Instant::ZERO,
            paths: (0..access.len())
                .map(|socket| PathPlan::new(socket, remote))
                .collect(),
        });
        let receiver = QuicHost::new(world.seed().derive(name, 1), vec![remote]);
        let receiver = receiver.serve(server_config).app(Receiver::new(1));
        Self {
            client: world.attach(client, Box::new(sender)),
            server: world.attach(server, Box::new(receiver)),
        }
    }

    fn received(self, world: &World) -> u64 {
        let host = world.process::<QuicHost>(self.server);
        host.get::<Receiver>().total().bytes
    }

    /// The group of each path, in order of path ID.
    fn groups(self, world: &World) -> Vec<u16> {
        let host = world.process::<QuicHost>(self.client);
        let connection = host.connection(SessionId(0)).expect("open");
        let stats = connection.paths().map(|id| connection.path_stats(id));
        stats.map(|stats| stats.expect("open").bottleneck).collect()
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// The rate at which each flow receives between two times in seconds, in megabits per second.
fn rates<const N: usize>(world: &mut World, flows: [Flow; N], from: u64, to: u64) -> [f64; N] {
    world.run_until(at(from));
    let before = flows.map(|flow| flow.received(world));
    world.run_until(at(to));
    let mut rates = [0.0; N];
    for (rate, (flow, before)) in rates.iter_mut().zip(flows.iter().zip(before)) {
        let bytes = flow.received(world) - before;
        *rate = bytes as f64 * 8.0 / 1e6 / (to - from) as f64;
    }
    rates
}

/// Two paths of one connection and a `NewReno` flow through the same link of 10 Mbit/s: the share
/// of the connection, and the groups it detected.
fn shared_link(congestion: &str, timestamps: bool, seed: u64) -> (f64, Vec<u16>) {
    let mut world = World::new(seed);
    let near = world.add_node(NodeKind::Router);
    let far = world.add_node(NodeKind::Router);
    world.connect(near, far, link(10, 15, 60), link(10, 15, 60));
    let access = || link(100, 5, 1000);
    let ends = (near, far);
    let both = transport(congestion, timestamps);
    let multipath = Flow::start(&mut world, ends, &[access(), access()], &both, "both");
    let alone = transport("new-reno", timestamps);
    let single = Flow::start(&mut world, ends, &[access()], &alone, "alone");
    let [both, alone] = rates(&mut world, [multipath, single], 10, 40);
    assert!(both + alone > 9.0, "the link is full: {both} {alone}");
    (both / (both + alone), multipath.groups(&world))
}

/// One connection over links of its own with these rates in megabits per second: its rate and its
/// groups.
fn own_links(congestion: &str, mbit: &[u64], seed: u64) -> (f64, Vec<u16>) {
    let mut world = World::new(seed);
    let near = world.add_node(NodeKind::Router);
    let far = world.add_node(NodeKind::Router);
    let wide = || link(1000, 5, 10_000);
    world.connect(near, far, wide(), wide());
    let access: Vec<_> = mbit.iter().map(|mbit| link(*mbit, 15, 50)).collect();
    let transport = transport(congestion, true);
    let flow = Flow::start(&mut world, (near, far), &access, &transport, "flow");
    let [rate] = rates(&mut world, [flow], 5, 25);
    (rate, flow.groups(&world))
}

#[test]
fn two_coupled_paths_take_no_more_of_a_link_than_one_flow_and_are_found_to_share_it() {
    for congestion in ["lia", "olia", "balia"] {
        let runs = [(false, 1), (true, 2)];
        let shares = runs.map(|(timestamps, seed)| {
            let (share, groups) = shared_link(congestion, timestamps, seed);
            // Where one path carries little, there are too few measurements to tell.
            if congestion == "lia" && timestamps {
                assert_eq!(groups, [1, 1]);
            }
            share
        });
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!((0.4..=0.6).contains(&mean), "{congestion}: {shares:?}");
    }
}

/// Round trips reveal less than one-way delays: groups come and go, and in a quarter of all moments
/// they are not detected.
#[test]
fn a_shared_link_is_found_without_timestamps_more_often_than_not() {
    let found = |seed: &u64| shared_link("lia", false, *seed).1 == [1, 1];
    let count = (1..=11).filter(found).count();
    assert!(count > 5, "{count} of 11");
}

#[test]
fn two_uncoupled_paths_take_more_than_one_flow() {
    let (share, _) = shared_link("lia:coupling=none", false, 1);
    assert!(share > 0.6, "{share}");
}

#[test]
fn coupled_paths_with_links_of_their_own_carry_no_less_than_the_best_of_them() {
    // A single path behaves like NewReno, whatever the coupling.
    let (best, _) = own_links("lia", &[10], 1);
    for congestion in ["lia", "olia", "balia"] {
        let (both, groups) = own_links(congestion, &[10, 3], 1);
        assert!(both >= 0.95 * best, "{congestion}: {both} of {best}");
        assert_eq!(groups, [0, 0], "{congestion}");
    }
}

/// CUBIC as systems' kernels have it, which takes every loss for congestion.
const HOSTS_CUBIC: &str = "cubic:random-loss=0";

/// What a flow takes of a link of 10 Mbit/s and 40 ms beside another one, of which each has a path
/// of its own to it; so many packets may wait at the link. Printed, to be copied where it is told.
fn share_beside(own: &str, other: &str, packets: u64) -> f64 {
    let mut world = World::new(1);
    let near = world.add_node(NodeKind::Router);
    let far = world.add_node(NodeKind::Router);
    world.connect(near, far, link(10, 15, packets), link(10, 15, packets));
    let flows = [(own, "own"), (other, "other")].map(|(congestion, name)| {
        let transport = transport(congestion, true);
        let access = [link(100, 5, 1000)];
        Flow::start(&mut world, (near, far), &access, &transport, name)
    });
    let [took, left] = rates(&mut world, flows, 10, 60);
    let share = took / (took + left);
    println!("{own} beside {other}, {packets} packets of queue: {share:.2}");
    share
}

/// Losses that come with a queue count as congestion, whatever the link is said to lose by itself.
/// A queue of a quarter of the round-trip time is enough to be seen, which is 9 packets here.
#[test]
fn who_is_told_of_random_loss_takes_hardly_more_beside_others_where_a_queue_is_seen() {
    for other in [HOSTS_CUBIC, "new-reno", "bbr"] {
        for packets in [20, 40, 80] {
            let shares = ["bbr", "bbr:random-loss=20"].map(|own| share_beside(own, other, packets));
            let [plain, told] = shares;
            assert!(
                told < plain + 0.1,
                "beside {other}, {packets} packets of queue: {shares:?}"
            );
        }
    }
}

/// CUBIC sees a queue of an eighth of the round-trip time. For few losses beside a short one it
/// gives up less than three tenths of its window, and grows the more slowly.
#[test]
fn cubic_that_tells_chance_from_congestion_takes_hardly_more_beside_others_where_a_queue_is_seen() {
    for other in [HOSTS_CUBIC, "new-reno", "bbr"] {
        for packets in [10, 20, 40, 80] {
            let strict = share_beside(HOSTS_CUBIC, other, packets);
            for own in ["cubic", "cubic:random-loss=20"] {
                let share = share_beside(own, other, packets);
                assert!(
                    share < strict + 0.1,
                    "{own} beside {other}, {packets} packets of queue: {share} and {strict}"
                );
            }
        }
    }
}
