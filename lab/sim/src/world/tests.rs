//! Routes, NAT, scripts and the order of events.

use super::*;
use crate::Payload;
use anabranch_link::{Loss, Probability, Rate};
use std::net::SocketAddr;
use std::time::Duration;

const PORT: u16 = 5000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at_ms(at: u64) -> Instant {
    Instant::ZERO + ms(at)
}

fn wire(delay_ms: u64) -> LinkConfig {
    LinkConfig {
        delay: ms(delay_ms),
        ..LinkConfig::default()
    }
}

/// Sends what it is told to and records what arrives.
#[derive(Debug, Default)]
struct Probe {
    outgoing: Vec<Packet>,
    incoming: Vec<(Instant, Packet)>,
    timers: Vec<Instant>,
    woken: Vec<Instant>,
    told: Vec<String>,
    /// Whether packets are sent back.
    echo: bool,
}

impl Process for Probe {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        if self.echo {
            let (from, to) = (packet.to, packet.from);
            self.outgoing.push(Packet {
                from,
                to,
                ..packet.clone()
            });
        }
        self.incoming.push((now, packet));
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.woken.push(now);
        self.timers.retain(|at| *at > now);
    }

    fn poll_packet(&mut self, _: Instant) -> Option<Packet> {
        (!self.outgoing.is_empty()).then(|| self.outgoing.remove(0))
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        self.timers.iter().min().copied()
    }

    fn handle_interface(&mut self, now: Instant, address: IpAddr, up: bool) {
        self.told.push(format!("{now} {address} {up}"));
    }

    fn handle_readdress(&mut self, now: Instant, old: IpAddr, new: IpAddr) {
        self.told.push(format!("{now} {old} -> {new}"));
    }
}

fn packet(from: IpAddr, to: IpAddr, size: u32) -> Packet {
    Packet {
        from: SocketAddr::new(from, PORT),
        to: SocketAddr::new(to, PORT),
        ecn: None,
        payload: Payload::Filler(size - crate::UDP_OVERHEAD),
    }
}

fn arrivals(world: &World, id: ProcessId) -> Vec<u64> {
    let probe = world.process::<Probe>(id);
    let nanos = probe.incoming.iter().map(|(at, _)| at.as_nanos());
    nanos.map(|at| at / 1000).collect()
}

fn send(world: &mut World, id: ProcessId, packet: Packet) {
    world.process_mut::<Probe>(id).outgoing.push(packet);
}

#[test]
fn a_packet_takes_serialisation_and_delay_on_every_hop() {
    let mut world = World::new(1);
    let client = world.add_node(NodeKind::Host);
    let router = world.add_node(NodeKind::Router);
    let server = world.add_node(NodeKind::Host);
    let slow = LinkConfig::new(Rate::bits_per_second(8_000_000).unwrap(), ms(5));
    let first = world.connect(client, router, slow.clone(), wire(5));
    let second = world.connect(router, server, slow, wire(5));
    let from = world.address(client, first);
    let to = world.address(server, second);
    let sender = world.attach(client, Box::new(Probe::default()));
    let receiver = world.attach(server, Box::new(Probe::default()));
    send(&mut world, sender, packet(from, to, 1000));
    send(&mut world, sender, packet(from, to, 1000));
    while world.step() {}
    assert_eq!(arrivals(&world, receiver), [12_000, 13_000]);
    let flow = world.flow_stats(from, to);
    assert_eq!((flow.packets_sent, flow.packets, flow.bytes), (2, 2, 2000));
    assert_eq!(flow.delay_max_ns, 13_000_000);
    let way = [(first, Direction::Forward), (second, Direction::Forward)];
    assert_eq!(world.way(from, to), way);
    let back = [(second, Direction::Backward), (first, Direction::Backward)];
    assert_eq!(world.way(to, from), back);
}

#[test]
fn hosts_leave_by_the_interface_of_their_source_address_and_do_not_forward() {
    let mut world = World::new(1);
    let client = world.add_node(NodeKind::Host);
    let server = world.add_node(NodeKind::Host);
    let links = [30, 10].map(|delay| world.connect(client, server, wire(delay), wire(delay)));
    let from = links.map(|link| world.address(client, link));
    let to = world.address(server, links[0]);
    let sender = world.attach(client, Box::new(Probe::default()));
    let receiver = world.attach(server, Box::new(Probe::default()));
    send(&mut world, sender, packet(from[0], to, 100));
    send(&mut world, sender, packet(from[1], to, 100));
    let stranger: IpAddr = "192.0.2.1".parse().unwrap();
    send(&mut world, sender, packet(stranger, to, 100));
    send(&mut world, sender, packet(from[0], stranger, 100));
    while world.step() {}
    assert_eq!(arrivals(&world, receiver), [10_000, 30_000]);
    assert_eq!(world.unroutable(), 2);
}

#[test]
fn routes_are_the_shortest_and_never_lead_through_hosts() {
    let mut world = World::new(1);
    let hosts = [(); 3].map(|()| world.add_node(NodeKind::Host));
    let routers = [(); 3].map(|()| world.add_node(NodeKind::Router));
    let first = world.connect(hosts[0], routers[0], wire(1), wire(1));
    world.connect(routers[0], hosts[1], wire(1), wire(1));
    world.connect(hosts[1], routers[2], wire(1), wire(1));
    world.connect(routers[0], routers[1], wire(10), wire(10));
    world.connect(routers[1], routers[2], wire(10), wire(10));
    let last = world.connect(routers[2], hosts[2], wire(1), wire(1));
    let (from, to) = (
        world.address(hosts[0], first),
        world.address(hosts[2], last),
    );
    let sender = world.attach(hosts[0], Box::new(Probe::default()));
    let receiver = world.attach(hosts[2], Box::new(Probe::default()));
    send(&mut world, sender, packet(from, to, 100));
    while world.step() {}
    assert_eq!(arrivals(&world, receiver), [22_000]);
}

#[test]
fn a_multihomed_server_is_reached_by_the_link_of_each_address() {
    let mut world = World::new(1);
    let client = world.add_node(NodeKind::Host);
    let router = world.add_node(NodeKind::Router);
    let server = world.add_node(NodeKind::Host);
    let access = world.connect(client, router, wire(1), wire(1));
    let ends = [5, 50].map(|delay| world.connect(router, server, wire(delay), wire(delay)));
    let from = world.address(client, access);
    let sender = world.attach(client, Box::new(Probe::default()));
    let receiver = world.attach(server, Box::new(Probe::default()));
    for link in ends {
        let to = world.address(server, link);
        send(&mut world, sender, packet(from, to, 100));
    }
    while world.step() {}
    assert_eq!(arrivals(&world, receiver), [6_000, 51_000]);
}

#[test]
fn processes_are_woken_exactly_when_they_asked_and_never_early() {
    let mut world = World::new(1);
    let node = world.add_node(NodeKind::Host);
    let probe = Probe {
        timers: vec![at_ms(7), at_ms(3)],
        ..Probe::default()
    };
    let id = world.attach(node, Box::new(probe));
    world.run_until(at_ms(1));
    // An earlier deadline replaces the one already in the queue.
    world.process_mut::<Probe>(id).timers = vec![at_ms(9), at_ms(5)];
    while world.step() {}
    let probe = world.process::<Probe>(id);
    assert_eq!(probe.woken, [at_ms(5), at_ms(9)]);
}

#[test]
fn processes_share_a_node_by_port() {
    let mut world = World::new(1);
    let client = world.add_node(NodeKind::Host);
    let server = world.add_node(NodeKind::Host);
    let link = world.connect(client, server, wire(1), wire(1));
    let sender = world.attach(client, Box::new(Probe::default()));
    let main = world.attach(server, Box::new(Probe::default()));
    let bound = world.attach_at(server, 80, Box::new(Probe::default()));
    let (from, to) = (world.address(client, link), world.address(server, link));
    let mut web = packet(from, to, 100);
    web.to.set_port(80);
    send(&mut world, sender, web);
    send(&mut world, sender, packet(from, to, 100));
    send(&mut world, sender, packet(from, to, 100));
    while world.step() {}
    assert_eq!(arrivals(&world, bound).len(), 1);
    // Attaching at a port leaves the node's other process in place.
    assert_eq!(arrivals(&world, main).len(), 2);
}

#[test]
fn a_script_cuts_and_restores_silently_or_with_notice() {
    let mut world = World::new(1);
    let client = world.add_node(NodeKind::Host);
    let server = world.add_node(NodeKind::Host);
    let link = world.connect(client, server, wire(1), wire(1));
    let (from, to) = (world.address(client, link), world.address(server, link));
    let sender = world.attach(client, Box::new(Probe::default()));
    let receiver = world.attach(server, Box::new(Probe::default()));
    world.script([
        (at_ms(10), Change::up(link, false)),
        (at_ms(20), Change::up(link, true)),
        (at_ms(30), Change::Admin { link, up: false }),
        (at_ms(40), Change::Admin { link, up: true }),
    ]);
    for at in [5, 15, 25, 35, 45] {
        let run = move |world: &mut World| send(world, sender, packet(from, to, 100));
        world.at(at_ms(at), Change::Run(Box::new(run)));
    }
    while world.step() {}
    assert_eq!(arrivals(&world, receiver), [6_000, 26_000, 46_000]);
    let told = &world.process::<Probe>(sender).told;
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(world.link_stats(link, Direction::Forward).dropped_down, 2);
}

#[test]
fn a_fade_goes_down_in_equal_steps_and_ends_in_silence() {
    let mut world = World::new(1);
    let client = world.add_node(NodeKind::Host);
    let server = world.add_node(NodeKind::Host);
    let rate = Rate::bits_per_second(8_000_000).unwrap();
    let link = world.connect(client, server, LinkConfig::new(rate, ms(1)), wire(1));
    let fade = Fade {
        start: at_ms(10),
        duration: ms(30),
        steps: 4,
        from: 8_000_000,
        to: 0,
    };
    let forward = Directions::Only(Direction::Forward);
    world.script(fade.changes(link, forward));
    let mut rates = Vec::new();
    for at in [5, 15, 25, 35, 45] {
        world.run_until(at_ms(at));
        let config = world.link_config(link, Direction::Forward);
        let Rate::Fixed {
            bits_per_second, ..
        } = config.rate
        else {
            panic!("a fixed rate");
        };
        rates.push((bits_per_second.get() / 1_000_000, config.up));
    }
    let expected = [(8, true), (6, true), (4, true), (2, true), (2, false)];
    assert_eq!(rates, expected);
}

#[test]
fn after_a_change_of_address_the_old_one_is_lost_and_the_new_one_works() {
    let mut world = World::new(1);
    let client = world.add_node(NodeKind::Host);
    let router = world.add_node(NodeKind::Router);
    let server = world.add_node(NodeKind::Host);
    let access = world.connect(client, router, wire(1), wire(1));
    let far = world.connect(router, server, wire(1), wire(1));
    let (old, to) = (world.address(client, access), world.address(server, far));
    let sender = world.attach(client, Box::new(Probe::default()));
    let echo = Probe {
        echo: true,
        ..Probe::default()
    };
    world.attach(server, Box::new(echo));
    send(&mut world, sender, packet(old, to, 100));
    world.run_until(at_ms(3));
    world.apply(Change::Readdress {
        node: client,
        link: access,
        address: None,
    });
    let new = world.address(client, access);
    assert_ne!(old, new);
    send(&mut world, sender, packet(new, to, 100));
    while world.step() {}
    assert_eq!(
        arrivals(&world, sender),
        [7_000],
        "the first answer is lost"
    );
    assert_eq!(world.process::<Probe>(sender).told.len(), 1);
}

#[test]
fn behind_a_nat_hosts_share_an_address_and_a_rebinding_changes_the_port() {
    let mut world = World::new(1);
    let client = world.add_node(NodeKind::Host);
    let nat = world.add_node(NodeKind::Nat);
    let server = world.add_node(NodeKind::Host);
    let inside = world.connect(client, nat, wire(1), wire(1));
    let outside = world.connect(nat, server, wire(1), wire(1));
    let (from, to) = (
        world.address(client, inside),
        world.address(server, outside),
    );
    let sender = world.attach(client, Box::new(Probe::default()));
    let echo = Probe {
        echo: true,
        ..Probe::default()
    };
    let receiver = world.attach(server, Box::new(echo));
    send(&mut world, sender, packet(from, to, 100));
    while world.step() {}
    world.apply(Change::Rebind { node: nat });
    send(&mut world, sender, packet(from, to, 100));
    while world.step() {}
    assert_eq!(arrivals(&world, sender).len(), 2, "answers find their way");
    let seen: Vec<_> = world
        .process::<Probe>(receiver)
        .incoming
        .iter()
        .map(|(_, packet)| packet.from)
        .collect();
    let outer = world.address(nat, outside);
    assert!(seen.iter().all(|from| from.ip() == outer), "{seen:?}");
    // The return route leads through the NAT to the host behind it.
    let back = [
        (outside, Direction::Backward),
        (inside, Direction::Backward),
    ];
    assert_eq!(world.way(to, outer), back);
    assert_ne!(seen[0].port(), seen[1].port());
}

#[test]
fn links_of_one_world_lose_differently_and_equal_worlds_alike() {
    let run = |seed| {
        let mut world = World::new(seed);
        let client = world.add_node(NodeKind::Host);
        let server = world.add_node(NodeKind::Host);
        let lossy = LinkConfig {
            loss: Loss::Independent(Probability::new(0.5).unwrap()),
            ..wire(1)
        };
        let links = [(); 2].map(|()| world.connect(client, server, lossy.clone(), wire(1)));
        let sender = world.attach(client, Box::new(Probe::default()));
        let receiver = world.attach(server, Box::new(Probe::default()));
        for index in 0..100 {
            for link in links {
                let (from, to) = (world.address(client, link), world.address(server, link));
                send(&mut world, sender, packet(from, to, 100 + index));
            }
        }
        while world.step() {}
        let probe = world.process::<Probe>(receiver);
        let from = |link: LinkId| {
            let to = world.address(server, link);
            let here = probe
                .incoming
                .iter()
                .filter(|(_, packet)| packet.to.ip() == to);
            here.map(|(_, packet)| packet.size()).collect::<Vec<_>>()
        };
        (from(links[0]), from(links[1]), world.trace_hash())
    };
    let (first, second, hash) = run(1);
    assert_ne!(first, second);
    assert_eq!(run(1), (first, second, hash));
    assert_ne!(run(2).2, hash);
}

/// Answers each packet at once.
#[derive(Debug)]
struct Echo(Option<Packet>);

impl Process for Echo {
    fn handle_packet(&mut self, _: Instant, packet: Packet) {
        let (from, to) = (packet.to, packet.from);
        self.0 = Some(Packet { from, to, ..packet });
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_packet(&mut self, _: Instant) -> Option<Packet> {
        self.0.take()
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        None
    }
}

#[test]
#[should_panic(expected = "without time passing")]
fn answers_to_answers_over_bare_wires_end_with_a_reason() {
    let mut world = World::new(1);
    let client = world.add_node(NodeKind::Host);
    let server = world.add_node(NodeKind::Host);
    let link = world.connect(client, server, wire(0), wire(0));
    let [from, to] = [client, server].map(|node| world.address(node, link));
    world.attach(client, Box::new(Echo(Some(packet(from, to, 100)))));
    world.attach(server, Box::new(Echo(None)));
    while world.step() {}
}
