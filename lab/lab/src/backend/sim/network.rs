//! A scenario's network as a world.

use crate::backend::drawn;
use crate::engine::path_options;
use crate::scenario::{
    Action, FlowKind, Interface, Kind as Carrier, NodeKind as Kind, Profile, Scenario, Sides, Way,
};
use anabranch_link::LinkConfig;
use anabranch_proto::config::{ClientConfig, ServerConfig};
use anabranch_proto::time::Instant;
use anabranch_sim::quic::{Dial, PathPlan, QuicHost, SessionId};
use anabranch_sim::scene::{CLIENT_PORT, Hosts, SERVER_PORT};
use anabranch_sim::{
    Change, Direction as Line, Directions, FlowStats, LinkChange, LinkId, NodeId, NodeKind,
    ProcessId, World,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// One piece of background traffic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    pub(super) ends: [Interface; 2],
    /// The processes at its ends.
    pub(super) processes: [ProcessId; 2],
}

/// A world made from a scenario, and how to find things in it.
#[derive(Debug)]
pub(super) struct Built<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) world: World,
    pub(super) links: Vec<LinkId>,
    /// When each flow begins.
    pub(super) starts: Vec<Instant>,
    pub(super) nodes: Vec<NodeId>,
    /// The hosts behind the gateways of a bond or a tunnel, the client's first, with the links to
    /// them.
    pub(super) inside: Option<[(NodeId, LinkId); 2]>,
    /// The background traffic.
    pub(super) beside: Vec<Beside>,
    /// Set by the user to end the run before it is over.
    pub(super) halt: Arc<AtomicBool>,
    /// Links the client has sockets on, as indices of the scenario's, in socket order.
    sockets: Vec<usize>,
    server_links: Vec<usize>,
}

impl<'a> Built<'a> {
    pub(super) fn of(scenario: &'a Scenario, seed: u64) -> Self {
        let mut world = World::new(seed);
        let network = &scenario.network;
        let gates = matches!(
            scenario.transport.kind,
            Carrier::Bonding | Carrier::Mlppp | Carrier::Tunnel
        );
        let node = |index: usize, kind: Kind| match kind {
            // The first two nodes are the client and the server.
            Kind::Host if gates && index < 2 => NodeKind::Gateway,
            Kind::Host => NodeKind::Host,
            Kind::Router => NodeKind::Router,
            Kind::Nat => NodeKind::Nat,
        };
        let nodes: Vec<NodeId> = network
            .nodes
            .iter()
            .enumerate()
            .map(|(index, one)| world.add_node(node(index, one.kind)))
            .collect();
        let links = network.links.iter().enumerate().map(|(index, link)| {
            let [forward, backward] = drawn::links(scenario, index, seed);
            world.connect(nodes[link.ends.0], nodes[link.ends.1], forward, backward)
        });
        let links: Vec<LinkId> = links.collect();
        // Added after all other links: losses are drawn in the order in which links are made.
        let inside = gates.then(|| {
            [nodes[0], nodes[1]].map(|gate| {
                let host = world.add_node(NodeKind::Host);
                let wire = LinkConfig::default();
                (host, world.connect(host, gate, wire.clone(), wire))
            })
        });
        let flows = 0..scenario.flows.len();
        let starts = flows.map(|flow| Instant::ZERO + drawn::flow_start(scenario, flow, seed));
        let starts = starts.collect();
        let mut built = Self {
            scenario,
            world,
            links,
            starts,
            nodes,
            inside,
            beside: Vec::new(),
            halt: Arc::default(),
            sockets: distinct(network.paths.iter().map(|path| path.client_link)),
            server_links: distinct(network.paths.iter().map(|path| path.server_link)),
        };
        built.write_script();
        built
    }

    pub(super) fn first_start(&self) -> Instant {
        self.starts.iter().copied().min().unwrap_or(Instant::ZERO)
    }

    /// Whether the first flow's data goes from the server to the client.
    pub(super) fn flows_backward(&self) -> bool {
        self.way() == Way::Backward
    }

    /// The direction of the first flow's data.
    pub(super) fn way(&self) -> Way {
        self.scenario
            .flows
            .first()
            .map_or(Way::Forward, |flow| flow.way)
    }

    /// Whether flows go both ways.
    pub(super) fn flows_both_ways(&self) -> bool {
        let way = self.way();
        self.scenario.flows.iter().any(|flow| flow.way != way)
    }

    /// When the longest warm-up is over.
    pub(super) fn warm_at(&self) -> Instant {
        let flows = self.scenario.flows.iter().zip(&self.starts);
        let warm = flows.map(|(flow, start)| *start + flow.warm_up).max();
        warm.unwrap_or(Instant::ZERO)
    }

    /// When the last flow of a given duration is over; `None` if there is none.
    pub(super) fn over_at(&self) -> Option<Instant> {
        let flows = self.scenario.flows.iter().zip(&self.starts);
        let over = flows.filter_map(|(flow, start)| match flow.kind {
            FlowKind::BulkTime(time) => Some(*start + time),
            _ => None,
        });
        over.max()
    }

    /// Whether all flows have a given duration.
    pub(super) fn only_timed(&self) -> bool {
        let mut flows = self.scenario.flows.iter();
        flows.all(|flow| matches!(flow.kind, FlowKind::BulkTime(_)))
    }

    /// The addresses at both ends of a path, the client's first.
    pub(super) fn ends(&self, path: usize) -> (IpAddr, IpAddr) {
        let path = &self.scenario.network.paths[path];
        let client = self
            .world
            .address(self.nodes[0], self.links[path.client_link]);
        let server = self
            .world
            .address(self.nodes[1], self.links[path.server_link]);
        (client, server)
    }

    /// The addresses at both ends of a path as the server sees them, the client's first: behind a
    /// NAT the client has the NAT's address.
    pub(super) fn ends_shown(&self, path: usize) -> (IpAddr, IpAddr) {
        let (client, server) = self.ends(path);
        let network = &self.scenario.network;
        let route = network.route(path).unwrap_or_default();
        let nats = route.iter().rev().filter_map(|(link, forward)| {
            let ends = network.links[*link].ends;
            let at = if *forward { ends.0 } else { ends.1 };
            (network.nodes[at].kind == Kind::Nat).then_some(at)
        });
        let outside = nats.take(1).find_map(|nat| {
            let link = network.outside(nat)?;
            Some(self.world.address(self.nodes[nat], self.links[link]))
        });
        (outside.unwrap_or(client), server)
    }

    /// What the flows sent between the ends of a path, without background traffic.
    pub(super) fn flow_stats(&self, path: usize, way: Way) -> FlowStats {
        let (from, to) = match way {
            Way::Forward => self.ends(path),
            Way::Backward => {
                let (client, server) = self.ends_shown(path);
                (server, client)
            }
        };
        let mut flow = self.world.flow_stats(from, to);
        // Traffic between other addresses is not in these figures anyway.
        let ends = self.scenario.network.path_ends(path);
        for beside in self.beside.iter().filter(|beside| beside.ends == ends) {
            let [client, server] = beside.processes.map(|end| self.world.process_stats(end));
            let (from, to) = match way {
                Way::Forward => (client, server),
                Way::Backward => (server, client),
            };
            flow.packets_sent = flow.packets_sent.saturating_sub(from.packets_sent);
            flow.bytes_sent = flow.bytes_sent.saturating_sub(from.bytes_sent);
            flow.packets = flow.packets.saturating_sub(to.packets);
            flow.bytes = flow.bytes.saturating_sub(to.bytes);
            flow.delay_total_ns = flow.delay_total_ns.saturating_sub(to.delay_total_ns);
        }
        flow
    }

    pub(super) fn hosts(&self, config: ServerConfig) -> (QuicHost, QuicHost) {
        let seed = self.world.seed();
        let on = |node: usize, links: &[usize], port: u16| -> Vec<SocketAddr> {
            let address = |link: &usize| self.world.address(self.nodes[node], self.links[*link]);
            links
                .iter()
                .map(|link| SocketAddr::new(address(link), port))
                .collect()
        };
        let client = QuicHost::new(seed.derive("client", 0), on(0, &self.sockets, CLIENT_PORT));
        let server = QuicHost::new(
            seed.derive("server", 0),
            on(1, &self.server_links, SERVER_PORT),
        );
        let transport = &self.scenario.transport;
        let options = transport.paths.iter();
        let options = options.map(|path| path_options(self.scenario.network.paths[*path].usage));
        let server = server.serve(config).path_options(options.collect());
        match transport.settings.protection {
            Some(false) => (client.leave_unprotected(), server.leave_unprotected()),
            _ => (client, server),
        }
    }

    /// Opens the connections of the profile: one over all paths, or several over each. Returns each
    /// with the path it begins on.
    pub(super) fn dial(
        &self,
        client: &mut QuicHost,
        config: &ClientConfig,
        at: Instant,
    ) -> Vec<(SessionId, usize)> {
        let transport = &self.scenario.transport;
        let first = transport.paths[0];
        if transport.profile != Profile::Stripe {
            let paths = transport
                .paths
                .iter()
                .map(|path| self.plan(*path, first))
                .collect();
            let config = config.clone();
            return vec![(client.dial(Dial { config, at, paths }), first)];
        }
        let mut lanes = Vec::new();
        for path in &transport.paths {
            for _ in 0..transport.settings.connections.unwrap_or(1) {
                let (config, paths) = (config.clone(), vec![self.plan(*path, *path)]);
                lanes.push((client.dial(Dial { config, at, paths }), *path));
            }
        }
        lanes
    }

    pub(super) fn start(&mut self, client: QuicHost, server: QuicHost) -> Hosts {
        Hosts {
            client: self.world.attach(self.nodes[0], Box::new(client)),
            server: self.world.attach(self.nodes[1], Box::new(server)),
        }
    }

    fn plan(&self, path: usize, first: usize) -> PathPlan {
        let planned = &self.scenario.network.paths[path];
        let socket = self
            .sockets
            .iter()
            .position(|link| *link == planned.client_link);
        let server = self
            .world
            .address(self.nodes[1], self.links[planned.server_link]);
        let remote = SocketAddr::new(server, SERVER_PORT);
        let mut plan = PathPlan::new(socket.expect("every path has a socket"), remote);
        plan.options = path_options(planned.usage);
        plan.after = if path == first {
            Duration::ZERO
        } else {
            planned.opens
        };
        plan
    }

    fn write_script(&mut self) {
        let network = &self.scenario.network;
        // As the links were made, with the rates drawn from the seed.
        let made = |link: &LinkId| {
            [Line::Forward, Line::Backward].map(|line| self.world.link_config(*link, line).clone())
        };
        let mut configs: Vec<[LinkConfig; 2]> = self.links.iter().map(made).collect();
        for event in &self.scenario.events {
            let (link, at) = (self.links[event.link], Instant::ZERO + event.at);
            let up = |sides: &Sides, up: bool| {
                Change::link(link, directions(*sides), LinkChange::Up(up))
            };
            match &event.action {
                Action::Down(sides) => self.world.at(at, up(sides, false)),
                Action::Up(sides) => self.world.at(at, up(sides, true)),
                Action::AdminDown => self.world.at(at, Change::Admin { link, up: false }),
                Action::AdminUp => self.world.at(at, Change::Admin { link, up: true }),
                Action::Handover => {
                    let (node, address) = (self.nodes[0], None);
                    let change = Change::Readdress {
                        node,
                        link,
                        address,
                    };
                    self.world.at(at, change);
                }
                Action::Rebind => {
                    let ends = network.links[event.link].ends;
                    let nat = |end: &usize| network.nodes[*end].kind == Kind::Nat;
                    if let Some(end) = [ends.0, ends.1].iter().find(|end| nat(end)) {
                        let node = self.nodes[*end];
                        self.world.at(at, Change::Rebind { node });
                    }
                }
                Action::Set(sides, change) => {
                    for line in directions(*sides).iter() {
                        // Properties set by earlier events stay in force.
                        let side = &mut configs[event.link][usize::from(line == Line::Backward)];
                        *side = change.applied_to(side);
                        let change = LinkChange::Properties(side.clone());
                        self.world
                            .at(at, Change::link(link, Directions::Only(line), change));
                    }
                }
            }
        }
    }
}

fn directions(sides: Sides) -> Directions {
    match sides {
        Sides::Both => Directions::Both,
        Sides::Forward => Directions::Only(Line::Forward),
        Sides::Backward => Directions::Only(Line::Backward),
    }
}

fn distinct(links: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut all = Vec::new();
    for link in links {
        if !all.contains(&link) {
            all.push(link);
        }
    }
    all
}
