//! Hosts that know nothing of it, behind two gateways.

mod silence;

use super::*;
use crate::quic::{Dial, PathPlan, configs};
use crate::tcp::{Connect, Exchange, Once, TcpId, TcpReport, TcpState};
use crate::traffic::{UdpFlow, UdpSink, UdpSource};
use crate::{Change, Directions, LinkChange, LinkId, NodeId, NodeKind, ProcessId, World};
use anabranch_link::{LinkConfig, Queue, Rate};
use anabranch_proto::config::TransportConfig;
use std::net::SocketAddr;
use std::time::Duration;

const PORT: u16 = 80;

/// Bytes that a gateway's sockets hold each way.
const SOCKET: u64 = 64 << 10;

/// Bytes of a stream that wait for their first transmission.
const WAITING: u64 = 128 << 10;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn link(megabits: u64, delay: u64) -> LinkConfig {
    let rate = Rate::bits_per_second(megabits * 1_000_000).expect("a rate");
    LinkConfig {
        queue: Queue::TailDropPackets(100),
        ..LinkConfig::new(rate, Duration::from_millis(delay))
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.streams.stream_unsent = WAITING;
    transport
}

fn socket() -> TcpConfig {
    TcpConfig {
        receive_buffer: SOCKET,
        send_buffer: SOCKET,
        ..TcpConfig::default()
    }
}

/// A client and a server, with gateways between them.
struct Net {
    world: World,
    /// The client and the server, and an address of each.
    hosts: [ProcessId; 2],
    nodes: [NodeId; 2],
    addresses: [IpAddr; 2],
    /// The near and the far end.
    gates: [ProcessId; 2],
    links: Vec<LinkId>,
    flow: TcpId,
}

/// These links between the gateways, and one exchange, to which the server listens or not.
fn net(links: &[LinkConfig], exchange: Exchange, until: Option<Instant>, listens: bool) -> Net {
    net_with((7, transport()), links, exchange, until, listens)
}

/// The same in a world of this seed, whose gateways have this transport.
fn net_with(
    (seed, transport): (u64, TransportConfig),
    links: &[LinkConfig],
    exchange: Exchange,
    until: Option<Instant>,
    listens: bool,
) -> Net {
    let mut world = World::new(seed);
    let hosts = [0, 1].map(|_| world.add_node(NodeKind::Host));
    let gates = [0, 1].map(|_| world.add_node(NodeKind::Gateway));
    let wire = LinkConfig::default();
    let access =
        [0, 1].map(|end| world.connect(hosts[end], gates[end], wire.clone(), wire.clone()));
    let links = links.iter();
    let links = links.map(|one| world.connect(gates[0], gates[1], one.clone(), one.clone()));
    let links: Vec<LinkId> = links.collect();
    let on = |world: &World, end: usize| -> Vec<SocketAddr> {
        let links = links.iter();
        let address = |link: &LinkId| SocketAddr::new(world.address(gates[end], *link), 4433);
        links.map(address).collect()
    };
    let (near, far) = (on(&world, 0), on(&world, 1));
    let seed = world.seed();
    let (dialling, accepting) = configs(transport.clone(), transport);
    let plans = far.iter().enumerate();
    let paths = plans.map(|(socket, remote)| PathPlan::new(socket, *remote));
    let dial = Dial {
        config: dialling,
        at: Instant::ZERO,
        paths: paths.collect(),
    };
    let mut near = QuicHost::new(seed.derive("client", 0), near);
    let session = near.dial(dial);
    let near = Gateway::near(near, session, seed, socket());
    let far = QuicHost::new(seed.derive("server", 0), far).serve(accepting);
    let IpAddr::V4(beside_targets) = world.address(gates[1], access[1]) else {
        panic!("an address of IPv4")
    };
    let far = Gateway::far(far, beside_targets, seed, socket());
    let [from, to] = [0, 1].map(|end| world.address(hosts[end], access[end]));
    let mut client = TcpHost::new(seed.derive("client", 1));
    let flow = client.connect(Connect {
        from: SocketAddr::new(from, 1000),
        to: SocketAddr::new(to, PORT),
        at: at(500),
        demand: Box::new(Once::new(exchange)),
        until,
        config: TcpConfig::default(),
    });
    let mut server = TcpHost::new(seed.derive("server", 1));
    if listens {
        server = server.listen(PORT, TcpConfig::default());
    }
    let nodes = hosts;
    let [client, server] = [(hosts[0], client), (hosts[1], server)]
        .map(|(node, host)| world.attach(node, Box::new(host)));
    let gates =
        [(gates[0], near), (gates[1], far)].map(|(node, gate)| world.attach(node, Box::new(gate)));
    Net {
        world,
        hosts: [client, server],
        nodes,
        addresses: [from, to],
        gates,
        links,
        flow,
    }
}

impl Net {
    /// Runs until the client's connection has ended; returns its report.
    fn finish(&mut self) -> TcpReport {
        let (client, flow) = (self.hosts[0], self.flow);
        let report = |world: &World| world.process::<TcpHost>(client).report(flow);
        let ended = self
            .world
            .run_while_until(at(300_000), |world| report(world).ended.is_none());
        assert!(ended, "{:?}", report(&self.world));
        self.world
            .run_until(self.world.now() + Duration::from_secs(2));
        report(&self.world)
    }

    fn served(&self) -> TcpReport {
        let server = self.world.process::<TcpHost>(self.hosts[1]);
        server.reports().next().expect("a connection came")
    }

    fn gate(&self, end: usize) -> &Gateway {
        self.world.process(self.gates[end])
    }
}

fn two() -> [LinkConfig; 2] {
    [link(20, 10), link(20, 15)]
}

#[test]
fn a_download_of_a_host_that_knows_nothing_gets_the_sum_of_the_links() {
    let seconds = |links: &[LinkConfig]| {
        let mut net = net(links, Exchange::download(8_000_000), None, true);
        let report = net.finish();
        assert_eq!((report.state, report.intact), (TcpState::Done, true));
        assert_eq!(report.received_bytes, 8_000_000);
        assert_eq!(net.served().state, TcpState::Done, "the end was passed on");
        assert!(net.gate(0).quic().is_done() && net.gate(1).quic().is_done());
        report.ended.expect("it ended").since(at(500)).as_secs_f64()
    };
    let (both, one) = (seconds(&two()), seconds(&two()[..1]));
    assert!(both < 0.6 * one, "{both} s and {one} s");
}

#[test]
fn an_upload_arrives_as_it_was_sent_and_its_sender_waits_for_the_links() {
    let mut net = net(&two(), Exchange::upload(4_000_000), None, true);
    net.world.run_until(at(1000));
    let client = net.world.process::<TcpHost>(net.hosts[0]);
    let taken = client.report(net.flow).sent.acknowledged_bytes;
    let arrived = net.served().received_bytes;
    // Both sockets, what one stream may have under way and what waits behind it.
    let least_under_way = 2 * SOCKET + WAITING;
    assert!(arrived > 500_000, "{arrived}");
    assert!(
        taken < arrived + 2 * least_under_way,
        "{taken} and {arrived}"
    );
    let report = net.finish();
    assert_eq!(report.state, TcpState::Done);
    let served = net.served();
    assert_eq!((served.received_bytes, served.intact), (4_000_000, true));
}

#[test]
fn a_connection_lives_on_over_the_other_link_when_one_is_cut() {
    let mut net = net(&two(), Exchange::download(8_000_000), None, true);
    let cut = Change::link(net.links[0], Directions::Both, LinkChange::Up(false));
    net.world.at(at(1000), cut);
    let report = net.finish();
    assert_eq!((report.state, report.intact), (TcpState::Done, true));
    assert_eq!(report.received_bytes, 8_000_000);
}

#[test]
fn a_reset_passes_through() {
    let endless = Exchange::download(crate::tcp::ENDLESS);
    let mut net = net(&two(), endless, Some(at(1500)), true);
    net.finish();
    assert_eq!(net.served().state, TcpState::Failed);
    assert!(net.gate(0).quic().is_done() && net.gate(1).quic().is_done());
}

#[test]
fn a_target_that_does_not_answer_is_a_reset_for_the_host() {
    let mut net = net(&two(), Exchange::download(1000), None, false);
    assert_eq!(net.finish().state, TcpState::Failed);
    assert!(net.gate(0).quic().is_done() && net.gate(1).quic().is_done());
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let trace = || {
        let mut net = net(&two(), Exchange::download(1_000_000), None, true);
        net.finish();
        net.world.trace_hash()
    };
    assert_eq!(trace(), trace());
}

/// A source at this end sends a datagram of 100 bytes every so often for a second, from 0.2 s on.
fn flow(net: &Net, end: usize, every: Duration) -> UdpFlow {
    let socket = |end: usize| SocketAddr::new(net.addresses[end], 7000 + end as u16);
    UdpFlow {
        id: end as u64,
        from: socket(end),
        to: socket(1 - end),
        size: 100,
        interval: every,
        start: at(200),
        end: at(1200),
    }
}

#[test]
fn datagrams_of_hosts_pass_both_ways_beside_a_connection() {
    let trace = || {
        let mut net = net(&two(), Exchange::download(1_000_000), None, true);
        let every = Duration::from_millis(5);
        let (sent, called) = (flow(&net, 0, every), flow(&net, 1, every));
        // The far host's datagrams go to where the call of the near one came from.
        let (caller, source) = (SocketAddr::new(sent.from.ip(), 7100), called.from);
        let called = UdpFlow {
            from: SocketAddr::new(source.ip(), 7200),
            ..called
        };
        let world = &mut net.world;
        world.attach_at(net.nodes[0], 7000, Box::new(UdpSource::new().with(sent)));
        let far_sink = Box::new(UdpSink::new().measure(0, Duration::from_millis(30)));
        let far_sink = world.attach_at(net.nodes[1], 7001, far_sink);
        let answering = Box::new(UdpSource::new().called(called));
        world.attach_at(net.nodes[1], 7200, answering);
        let near_sink = UdpSink::new().call(caller, called.from, at(200));
        let near_sink = world.attach_at(net.nodes[0], 7100, Box::new(near_sink));
        assert_eq!(net.finish().state, TcpState::Done);
        let sink = |id: ProcessId| net.world.process::<UdpSink>(id);
        let arrived = sink(far_sink).measured(0).expect("it is measured");
        assert_eq!((arrived.received, arrived.reordered), (200, 0));
        let back = sink(near_sink).stats(1);
        assert!(
            (180..200).contains(&back.received) && back.lost() == 0,
            "{back:?}"
        );
        let seen: Vec<_> = net.gate(1).udp().collect();
        assert_eq!((seen.len(), seen[0].arrived, seen[1].arrived), (2, 200, 1));
        net.world.trace_hash()
    };
    assert_eq!(trace(), trace());
}

#[test]
fn what_comes_before_the_far_end_has_answered_waits_within_bounds() {
    let mut net = net(&two(), Exchange::upload(1000), None, true);
    // A thousand datagrams within 10 ms, and the far end is 20 ms away.
    let burst = UdpFlow {
        end: at(210),
        ..flow(&net, 0, Duration::from_micros(10))
    };
    let world = &mut net.world;
    world.attach_at(net.nodes[0], 7000, Box::new(UdpSource::new().with(burst)));
    let sink = world.attach_at(net.nodes[1], 7001, Box::new(UdpSink::new()));
    net.finish();
    let seen = net.gate(0).udp().next().expect("a flow");
    assert_eq!((seen.taken, seen.taken - seen.dropped), (1000, 256));
    assert_eq!(net.world.process::<UdpSink>(sink).stats(0).received, 256);
}
