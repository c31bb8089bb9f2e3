//! Two hosts, each with our TCP or smoltcp's, and a link between them.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "tests and a bench include it and use their part"
)]

use crate::peer::{Peer, PeerConfig, Side};
use anabranch_link::{LinkConfig, Loss, Probability, Queue, Rate};
use anabranch_proto::time::Instant;
use anabranch_schedulers::Names;
use anabranch_sim::profile::hosts_controller;
use anabranch_sim::tcp::{Connect, Exchange, Once, TcpConfig, TcpHost, TcpReport};
use anabranch_sim::{LinkId, NodeKind, Process, ProcessId, World};
use smoltcp::socket::tcp::CongestionControl;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

const PORT: u16 = 80;
const CLIENT_PORT: u16 = 1000;

/// Bytes of smoltcp's buffers: what the links of these tests can have in flight without overflowing
/// a queue, and several times as much.
pub const SMALL: usize = 64 * 1024;
pub const LARGE: usize = 512 * 1024;

/// A link with the same properties in both directions, except for loss.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    pub bits: u64,
    pub one_way: Duration,
    pub queue: u64,
    /// Loss there and back.
    pub loss: [f64; 2],
}

impl Line {
    pub fn configs(self) -> [LinkConfig; 2] {
        self.loss.map(|loss| LinkConfig {
            queue: Queue::TailDropPackets(self.queue),
            loss: Loss::Independent(Probability::new(loss).expect("a share")),
            ..LinkConfig::new(
                Rate::bits_per_second(self.bits).expect("not zero"),
                self.one_way,
            )
        })
    }
}

/// Whose TCP a host runs.
#[derive(Debug, Clone)]
pub enum Stack {
    Ours(TcpConfig),
    Smoltcp(PeerConfig),
}

impl Stack {
    pub fn ours(congestion: &str) -> Self {
        let control = congestion.parse().expect("a name");
        let congestion = hosts_controller(&Names::default(), Some(&control), congestion, None);
        Self::Ours(TcpConfig {
            congestion: congestion.expect("a known name"),
            ..TcpConfig::default()
        })
    }

    /// Acknowledges every segment, as formulas for the rate assume.
    pub fn prompt(self) -> Self {
        match self {
            Self::Ours(config) => Self::Ours(TcpConfig {
                delayed_ack: None,
                ..config
            }),
            other @ Self::Smoltcp(_) => other,
        }
    }

    pub fn smoltcp(congestion: CongestionControl, buffer: usize) -> Self {
        Self::Smoltcp(PeerConfig { congestion, buffer })
    }

    pub fn client(&self, world: &World, ends: [SocketAddr; 2], what: Exchange) -> Box<dyn Process> {
        let [from, to] = ends;
        match self {
            Self::Ours(config) => {
                let mut host = TcpHost::new(world.seed().derive("client", 0));
                host.connect(Connect {
                    from,
                    to,
                    at: Instant::ZERO,
                    demand: Box::new(Once::new(what)),
                    until: None,
                    config: config.clone(),
                });
                Box::new(host)
            }
            Self::Smoltcp(config) => {
                let side = Side::Client(from.port(), v4(to), what);
                Box::new(Peer::new(*v4(from).ip(), side, *config))
            }
        }
    }

    pub fn server(&self, world: &World, at: SocketAddr) -> Box<dyn Process> {
        match self {
            Self::Ours(config) => {
                let host = TcpHost::new(world.seed().derive("server", 0));
                Box::new(host.listen(at.port(), config.clone()))
            }
            Self::Smoltcp(config) => {
                let side = Side::Server(at.port());
                Box::new(Peer::new(*v4(at).ip(), side, *config))
            }
        }
    }
}

pub struct Net {
    pub world: World,
    pub link: LinkId,
    pub client: ProcessId,
    pub server: ProcessId,
}

impl Net {
    /// A client and a server on one link, with one exchange.
    pub fn new(seed: u64, line: Line, [client, server]: [&Stack; 2], what: Exchange) -> Self {
        let mut world = World::new(seed);
        let near = world.add_node(NodeKind::Host);
        let far = world.add_node(NodeKind::Host);
        let [forward, backward] = line.configs();
        let link = world.connect(near, far, forward, backward);
        let from = SocketAddr::new(world.address(near, link), CLIENT_PORT);
        let to = SocketAddr::new(world.address(far, link), PORT);
        let client = client.client(&world, [from, to], what);
        let server = server.server(&world, to);
        Self {
            link,
            client: world.attach(near, client),
            server: world.attach(far, server),
            world,
        }
    }

    pub fn ours(&self, id: ProcessId) -> TcpReport {
        let mut reports = self.world.process::<TcpHost>(id).reports();
        reports.next().expect("one connection")
    }

    pub fn peer(&self, id: ProcessId) -> &Peer {
        self.world.process(id)
    }
}

pub fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(address) => panic!("{address} is no IPv4 address"),
    }
}

pub fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// 10 Mbit/s and a round trip of 50 ms, with a queue of 50 packets.
pub fn access(loss: f64) -> Line {
    Line {
        bits: 10_000_000,
        one_way: Duration::from_millis(25),
        queue: 50,
        loss: [loss; 2],
    }
}
