//! The most common network: a client and a server with several links between them.

use crate::quic::{Dial, PathPlan, QuicHost, SessionId, configs};
use crate::{Direction, LinkId, NodeId, NodeKind, ProcessId, World};
use anabranch_link::LinkConfig;
use anabranch_proto::config::{ClientConfig, ServerConfig, TransportConfig};
use anabranch_proto::connection::PathStats;
use anabranch_proto::time::Instant;
use std::net::{IpAddr, SocketAddr};

/// The server's port.
pub const SERVER_PORT: u16 = 4433;

/// The client's port on every interface.
pub const CLIENT_PORT: u16 = 40_000;

/// Client, server and the links between them, before anything runs.
#[derive(Debug)]
pub struct Scene {
    /// The world.
    pub world: World,
    /// The node of the client.
    pub client: NodeId,
    /// The node of the server.
    pub server: NodeId,
    /// The links; their forward direction leads to the server.
    pub links: Vec<LinkId>,
}

/// The processes of a running scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hosts {
    /// The client.
    pub client: ProcessId,
    /// The server.
    pub server: ProcessId,
}

impl Scene {
    /// Two hosts joined by these links, each given by its forward and its backward direction.
    pub fn new(seed: u64, links: &[(LinkConfig, LinkConfig)]) -> Self {
        let mut world = World::new(seed);
        let client = world.add_node(NodeKind::Host);
        let server = world.add_node(NodeKind::Host);
        let connect = |(forward, backward): &(LinkConfig, LinkConfig)| {
            world.connect(client, server, forward.clone(), backward.clone())
        };
        let links = links.iter().map(connect).collect();
        Self {
            world,
            client,
            server,
            links,
        }
    }

    /// The server's address on a link.
    pub fn remote(&self, link: LinkId) -> SocketAddr {
        SocketAddr::new(self.world.address(self.server, link), SERVER_PORT)
    }

    /// One path plan per link.
    pub fn plans(&self) -> Vec<PathPlan> {
        let plan = |(socket, link): (usize, &LinkId)| PathPlan::new(socket, self.remote(*link));
        self.links.iter().enumerate().map(plan).collect()
    }

    /// Hosts without applications: a client with a socket on each link that dials nobody, and a
    /// server that accepts connections.
    pub fn hosts(&self, server: ServerConfig) -> (QuicHost, QuicHost) {
        let seed = self.world.seed();
        let on = |node: NodeId, port: u16| -> Vec<SocketAddr> {
            let ips = self
                .links
                .iter()
                .map(|link| self.world.address(node, *link));
            ips.map(|ip| SocketAddr::new(ip, port)).collect()
        };
        let near = QuicHost::new(seed.derive("client", 0), on(self.client, CLIENT_PORT));
        let far = QuicHost::new(seed.derive("server", 0), on(self.server, SERVER_PORT));
        (near, far.serve(server))
    }

    /// Hosts with one connection over all links, dialled at once.
    pub fn pair(&self, client: TransportConfig, server: TransportConfig) -> (QuicHost, QuicHost) {
        let (client, server) = configs(client, server);
        let (mut near, far) = self.hosts(server);
        near.dial(self.dial(client));
        (near, far)
    }

    /// One connection over all links, dialled at once.
    pub fn dial(&self, config: ClientConfig) -> Dial {
        Dial {
            config,
            at: Instant::ZERO,
            paths: self.plans(),
        }
    }

    /// Puts the processes on their nodes.
    pub fn start(&mut self, near: QuicHost, far: QuicHost) -> Hosts {
        Hosts {
            client: self.world.attach(self.client, Box::new(near)),
            server: self.world.attach(self.server, Box::new(far)),
        }
    }
}

/// The two addresses of a path, seen from one end; the world counts what flows between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathEnds {
    /// Near address.
    pub from: IpAddr,
    /// Far address.
    pub to: IpAddr,
}

impl World {
    /// Runs until the applications on these hosts are done; returns `false` if they are not done by
    /// `end`.
    pub fn run_hosts(&mut self, hosts: &[ProcessId], end: Instant) -> bool {
        self.run_while_until(end, |world| {
            let done = |id: &ProcessId| world.process::<QuicHost>(*id).is_done();
            !hosts.iter().all(done)
        })
    }

    /// The ends of a path of a QUIC host, as that host names them.
    pub fn path_ends(&self, host: ProcessId, stats: &PathStats) -> Option<PathEnds> {
        let (from, to) = self.process::<QuicHost>(host).ends(&stats.tuple)?;
        Some(PathEnds {
            from: from.ip(),
            to: to.ip(),
        })
    }

    /// Bytes that are queued on the way from one address to another.
    pub fn queued_between(&mut self, from: IpAddr, to: IpAddr) -> u64 {
        let way = self.way(from, to);
        let waiting =
            |(link, direction): &(LinkId, Direction)| self.queued_bytes(*link, *direction);
        way.iter().map(waiting).sum()
    }
}

/// The first connection of a host.
pub const FIRST: SessionId = SessionId(0);
