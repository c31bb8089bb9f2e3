//! How bonds cut, carry and reassemble packets.

use super::*;
use crate::tcp::{Connect, Exchange, Once, TcpConfig, TcpHost, TcpId};
use crate::{Change, LinkId, NodeKind, ProcessId, World};
use anabranch_link::{LinkConfig, Loss, Probability, Rate};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn link(megabits: u64, delay: u64) -> LinkConfig {
    LinkConfig::new(
        Rate::bits_per_second(megabits * 1_000_000).unwrap(),
        ms(delay),
    )
}

struct Net {
    world: World,
    links: Vec<LinkId>,
    hosts: [ProcessId; 2],
    bonds: [ProcessId; 2],
    flow: TcpId,
}

/// Two hosts behind two gateways, these links between the gateways, and an upload.
fn net(seed: u64, config: &BondConfig, links: &[LinkConfig], bytes: u64) -> Net {
    let mut world = World::new(seed);
    let hosts = [0, 1].map(|_| world.add_node(NodeKind::Host));
    let gates = [0, 1].map(|_| world.add_node(NodeKind::Gateway));
    let wire = LinkConfig::default();
    let access =
        [0, 1].map(|end| world.connect(hosts[end], gates[end], wire.clone(), wire.clone()));
    let connect =
        |config: &LinkConfig| world.connect(gates[0], gates[1], config.clone(), config.clone());
    let ids: Vec<_> = links.iter().map(connect).collect();
    let end = |node: usize, link: LinkId| SocketAddr::new(world.address(gates[node], link), 5000);
    let bond = |near: usize| {
        let side = |(link, config): (&LinkId, &LinkConfig)| BondLink {
            local: end(near, *link),
            remote: end(1 - near, *link),
            rate: match &config.rate {
                Rate::Fixed {
                    bits_per_second, ..
                } => bits_per_second.get(),
                _ => 1_000_000,
            },
            latency: config.delay,
        };
        Bond::new(config.clone(), ids.iter().zip(links).map(side).collect())
    };
    let ends = [bond(0), bond(1)];
    let [near, far] = [0, 1].map(|end| world.address(hosts[end], access[end]));
    let mut client = TcpHost::new(world.seed().derive("client", 0));
    let tcp = TcpConfig {
        mss: 1400,
        ..TcpConfig::default()
    };
    let flow = client.connect(Connect {
        from: SocketAddr::new(near, 1000),
        to: SocketAddr::new(far, 80),
        at: Instant::ZERO + ms(500),
        demand: Box::new(Once::new(Exchange::upload(bytes))),
        until: None,
        config: tcp.clone(),
    });
    let server = TcpHost::new(world.seed().derive("server", 0)).listen(80, tcp);
    let [one, other] = ends;
    Net {
        hosts: [
            world.attach(hosts[0], Box::new(client)),
            world.attach(hosts[1], Box::new(server)),
        ],
        bonds: [
            world.attach(gates[0], Box::new(one)),
            world.attach(gates[1], Box::new(other)),
        ],
        world,
        links: ids,
        flow,
    }
}

impl Net {
    /// Runs to the end of the upload; returns how long it took.
    fn finish(&mut self) -> Duration {
        let (client, flow) = (self.hosts[0], self.flow);
        let end = Instant::ZERO + Duration::from_secs(300);
        let done = self.world.run_while_until(end, |world| {
            world
                .process::<TcpHost>(client)
                .completions(flow)
                .is_empty()
        });
        let host = self.world.process::<TcpHost>(client);
        assert!(done, "{:?}", host.report(flow));
        let completion = host.completions(flow)[0];
        for host in self.hosts {
            let host = self.world.process::<TcpHost>(host);
            assert_eq!(host.strays(), 0);
            assert!(host.reports().all(|report| report.intact));
        }
        completion.ended.since(completion.started)
    }

    fn stats(&self, end: usize) -> BondStats {
        self.world.process::<Bond>(self.bonds[end]).stats()
    }
}

fn all() -> Vec<BondConfig> {
    [
        Striping::RoundRobin,
        Striping::Weighted(vec![2, 1]),
        Striping::EarliestArrival,
        Striping::Proportional,
        Striping::EqualFragments(300),
    ]
    .map(BondConfig::new)
    .to_vec()
}

#[test]
fn hosts_behind_any_bond_exchange_whole_streams_and_nothing_is_lost_on_the_way() {
    for config in all() {
        let mut net = net(1, &config, &[link(4, 10), link(2, 10)], 1_000_000);
        let took = net.finish();
        net.world
            .run_until(net.world.now() + Duration::from_secs(3));
        let (near, far) = (net.stats(0), net.stats(1));
        assert_eq!(
            (near.packets_in, near.bytes_in),
            (far.packets_out, far.bytes_out)
        );
        assert_eq!(
            (far.packets_in, far.bytes_in),
            (near.packets_out, near.bytes_out)
        );
        assert_eq!(
            (near.refused, far.refused, far.join.lost),
            (0, 0, 0),
            "{config:?}"
        );
        assert!(took < Duration::from_secs(4), "{config:?}: {took:?}");
    }
}

#[test]
fn a_bond_gives_the_same_trace_twice() {
    for config in all() {
        let hash = || {
            let mut net = net(7, &config, &[link(4, 10), link(2, 20)], 300_000);
            net.finish();
            net.world.trace_hash()
        };
        assert_eq!(hash(), hash(), "{config:?}");
    }
}

#[test]
fn round_robin_reorders_by_the_difference_of_delays_only() {
    let config = BondConfig::new(Striping::RoundRobin);
    let mut equal = net(1, &config, &[link(4, 10), link(4, 10)], 1_000_000);
    equal.finish();
    // Packets of equal size alternate; one of another size may overtake what is on the other link.
    assert!(equal.stats(1).depth <= 1, "{:?}", equal.stats(1));
    let mut apart = net(1, &config, &[link(4, 10), link(4, 60)], 1_000_000);
    apart.finish();
    assert!(apart.stats(1).depth >= 3, "{:?}", apart.stats(1));
    assert!(apart.stats(1).depth <= 50, "{:?}", apart.stats(1));
}

#[test]
fn an_equaliser_takes_the_difference_of_delays_away() {
    let mut config = BondConfig::new(Striping::RoundRobin);
    config.equalise = true;
    let mut net = net(1, &config, &[link(4, 10), link(4, 60)], 1_000_000);
    net.finish();
    assert!(net.stats(1).depth <= 1, "{:?}", net.stats(1));
}

#[test]
fn fragments_fill_unequal_links_and_arrive_in_order() {
    for striping in [Striping::Proportional, Striping::EqualFragments(250)] {
        let config = BondConfig::new(striping);
        let mut net = net(1, &config, &[link(6, 10), link(2, 25)], 4_000_000);
        let took = net.finish();
        let rate = 4e6 * 8.0 / took.as_secs_f64();
        // 8 Mbit/s minus headers of IP, TCP and, for each fragment, the tunnel.
        assert!(rate > 5.8e6, "{config:?}: {rate}");
        let report = net
            .world
            .process::<TcpHost>(net.hosts[1])
            .reports()
            .next()
            .unwrap();
        assert_eq!(report.received.out_of_order, 0, "{config:?}");
    }
}

#[test]
fn a_lost_fragment_costs_its_packet_and_no_more() {
    let lossy = LinkConfig {
        loss: Loss::Independent(Probability::new(0.01).unwrap()),
        ..link(4, 10)
    };
    let config = BondConfig::new(Striping::Proportional);
    let mut net = net(1, &config, &[lossy, link(4, 10)], 1_000_000);
    net.finish();
    let stats = net.stats(1);
    assert!(
        stats.join.lost > 0 && stats.join.dropped >= stats.join.lost / 2,
        "{stats:?}"
    );
    let missing = net.stats(0).packets_in - stats.packets_out;
    assert!(missing <= stats.join.lost + 2, "{missing}, {stats:?}");
}

#[test]
fn probes_find_rates_and_delays_and_the_split_follows_them() {
    let mut config = BondConfig::new(Striping::EarliestArrival);
    config.probing = Some(ms(50));
    let mut blind = net(1, &config, &[link(6, 10), link(2, 40)], 3_000_000);
    // What was configured is wrong until the probes correct it.
    for bond in blind.bonds {
        for tunnel in &mut blind.world.process_mut::<Bond>(bond).tunnels {
            (tunnel.belief.rate, tunnel.belief.latency) = (1_000_000, ms(1));
        }
    }
    blind.world.run_until(Instant::ZERO + ms(450));
    let beliefs: Vec<_> = blind
        .world
        .process::<Bond>(blind.bonds[0])
        .beliefs()
        .collect();
    for ((rate, latency), (true_rate, true_latency)) in beliefs
        .iter()
        .zip([(6_000_000_u64, ms(10)), (2_000_000, ms(40))])
    {
        assert!(rate.abs_diff(true_rate) < true_rate / 100, "{beliefs:?}");
        assert!(latency.abs_diff(true_latency) < ms(1), "{beliefs:?}");
    }
    let took = blind.finish();
    let rate = 3e6 * 8.0 / took.as_secs_f64();
    // Probes take 0.66 of the 8 Mbit/s.
    assert!(rate > 5.3e6, "{rate}");
    let host = blind.world.process::<TcpHost>(blind.hosts[1]);
    let received = host.reports().next().unwrap().received;
    assert!(
        received.out_of_order * 20 < received.segments,
        "{received:?}"
    );
}

#[test]
fn a_link_that_is_taken_down_is_left_out() {
    let config = BondConfig::new(Striping::RoundRobin);
    let mut net = net(1, &config, &[link(4, 10), link(4, 10)], 2_000_000);
    let link = net.links[1];
    net.world
        .at(Instant::ZERO + ms(1000), Change::Admin { link, up: false });
    let took = net.finish();
    assert!(took < Duration::from_secs(8), "{took:?}");
}
