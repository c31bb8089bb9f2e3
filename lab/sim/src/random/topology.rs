//! Random networks: several routes from a client to a server, separate or through one bottleneck.

use crate::quic::PathPlan;
use crate::scene::{CLIENT_PORT, SERVER_PORT};
use crate::{Dice, Direction, LinkId, NodeId, NodeKind, World};
use anabranch_link::{CoDel, GilbertElliott, Jitter, LinkConfig, Loss, Probability, Queue, Rate};
use anabranch_proto::path::PathOptions;
use anabranch_proto::wire::frame::PathStatus;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A network, and its properties when nothing is wrong.
pub(super) struct Topology {
    pub(super) client: NodeId,
    pub(super) server: NodeId,
    /// The client's links.
    pub(super) access: Vec<LinkId>,
    pub(super) nats: Vec<NodeId>,
    /// Every link, with both directions as they were made.
    pub(super) links: Vec<(LinkId, [LinkConfig; 2])>,
    pub(super) client_sockets: Vec<SocketAddr>,
    pub(super) server_sockets: Vec<SocketAddr>,
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} access links, {} behind a NAT, server with {} addresses",
            self.access.len(),
            self.nats.len(),
            self.server_sockets.len()
        )?;
        for (link, [forward, backward]) in &self.links {
            write!(f, "\n  {link}: {forward:?}, {backward:?}")?;
        }
        Ok(())
    }
}

impl Topology {
    pub(super) fn random(dice: &mut Dice, world: &mut World) -> Self {
        let client = world.add_node(NodeKind::Host);
        let core = world.add_node(NodeKind::Router);
        let server = world.add_node(NodeKind::Host);
        let mut all = Self {
            client,
            server,
            access: Vec::new(),
            nats: Vec::new(),
            links: Vec::new(),
            client_sockets: Vec::new(),
            server_sockets: Vec::new(),
        };
        let near = if dice.below(3) == 0 {
            // All routes meet before the core.
            let meeting = world.add_node(NodeKind::Router);
            let config = random_link(dice);
            all.connect(world, meeting, core, [config.clone(), config]);
            meeting
        } else {
            core
        };
        for _ in 0..dice.pick(&[1, 2, 2, 2, 3, 4]) {
            let configs = [random_link(dice), random_link(dice)];
            let access = match dice.below(4) {
                0 => {
                    let nat = world.add_node(NodeKind::Nat);
                    all.nats.push(nat);
                    all.connect(world, nat, near, [wire(), wire()]);
                    all.connect(world, client, nat, configs)
                }
                1 => {
                    let hop = world.add_node(NodeKind::Router);
                    all.connect(world, hop, near, [wire(), wire()]);
                    all.connect(world, client, hop, configs)
                }
                _ => all.connect(world, client, near, configs),
            };
            all.access.push(access);
            let address = world.address(client, access);
            all.client_sockets
                .push(SocketAddr::new(address, CLIENT_PORT));
        }
        for _ in 0..dice.pick(&[1, 1, 2]) {
            let link = all.connect(world, core, server, [wire(), wire()]);
            let address = world.address(server, link);
            all.server_sockets
                .push(SocketAddr::new(address, SERVER_PORT));
        }
        all
    }

    fn connect(
        &mut self,
        world: &mut World,
        near: NodeId,
        far: NodeId,
        configs: [LinkConfig; 2],
    ) -> LinkId {
        let [forward, backward] = configs.clone();
        let link = world.connect(near, far, forward, backward);
        self.links.push((link, configs));
        link
    }

    /// A path over each interface, to some address of the server.
    pub(super) fn plans(&self, dice: &mut Dice) -> Vec<PathPlan> {
        let sockets = 0..self.client_sockets.len();
        let plan = |socket| {
            let remote = dice.pick(&self.server_sockets);
            let status = dice.pick(&[
                PathStatus::Available,
                PathStatus::Available,
                PathStatus::Available,
                PathStatus::Backup,
            ]);
            PathPlan {
                options: PathOptions {
                    status,
                    weight: dice.below(4) as u32 + 1,
                    priority: dice.below(3) as i32,
                    cost: dice.below(2) as u32,
                    ..PathOptions::default()
                },
                after: Duration::from_millis(dice.pick(&[0, 0, 50, 1000])),
                reopen: Some(Duration::from_millis(dice.pick(&[100, 1000, 5000]))),
                ..PathPlan::new(socket, remote)
            }
        };
        sockets.map(plan).collect()
    }

    /// Packets handed to links so far.
    pub(super) fn packets(&self, world: &World) -> u64 {
        let both = [Direction::Forward, Direction::Backward];
        let lines = self
            .links
            .iter()
            .flat_map(|(link, _)| both.map(|way| (*link, way)));
        lines
            .map(|(link, way)| world.link_stats(link, way).packets_in)
            .sum()
    }
}

fn wire() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(200),
        ..LinkConfig::default()
    }
}

pub(super) fn random_link(dice: &mut Dice) -> LinkConfig {
    let mbit = dice.pick(&[1, 2, 5, 10, 20, 50]);
    let rate = Rate::bits_per_second(mbit * 1_000_000).expect("a rate above 0");
    let bytes = (mbit * 125 * dice.pick(&[30, 60, 150])).max(12_000);
    let queue = match dice.below(5) {
        0 => Queue::TailDropPackets(dice.pick(&[10, 50, 200])),
        1 => Queue::CoDel(CoDel::default()),
        _ => Queue::TailDropBytes(bytes),
    };
    let probability = |share: f64| Probability::new(share).expect("a share");
    let loss = match dice.below(8) {
        0 => Loss::Independent(probability(0.005)),
        1 => Loss::Independent(probability(0.02)),
        2 => Loss::Independent(probability(0.06)),
        3 => GilbertElliott::from_mean(0.02, 5.0).map_or(Loss::None, Loss::GilbertElliott),
        _ => Loss::None,
    };
    let jitter = match dice.below(5) {
        0 => Jitter::Uniform(Duration::from_millis(dice.pick(&[1, 5, 20]))),
        1 => Jitter::Normal(Duration::from_millis(dice.pick(&[1, 5]))),
        _ => Jitter::None,
    };
    LinkConfig {
        queue,
        loss,
        jitter,
        reorder: dice.below(3) == 0,
        ..LinkConfig::new(
            rate,
            Duration::from_millis(dice.pick(&[1, 5, 10, 30, 80, 200])),
        )
    }
}
