//! The changes a script can make to a world at a given time.

use super::{Direction, LinkId, NodeId, World, network::line_index};
use anabranch_link::{Jitter, LinkConfig, Loss, Queue, Rate};
use anabranch_proto::time::Instant;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Which directions of a link are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Directions {
    /// Both.
    #[default]
    Both,
    /// One.
    Only(Direction),
}

impl Directions {
    /// The directions, forward first.
    pub fn iter(self) -> impl Iterator<Item = Direction> {
        let all = [Direction::Forward, Direction::Backward];
        all.into_iter()
            .filter(move |one| self == Self::Both || self == Self::Only(*one))
    }
}

/// How a link changes. Packets already in it stay.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkChange {
    /// Everything.
    Config(LinkConfig),
    /// Everything except whether it is up.
    Properties(LinkConfig),
    /// The rate.
    Rate(Rate),
    /// The delay.
    Delay(Duration),
    /// The jitter.
    Jitter(Jitter),
    /// The loss.
    Loss(Loss),
    /// The queue.
    Queue(Queue),
    /// Whether it carries anything. The hosts are not told, so a link that is not up is a
    /// blackhole.
    Up(bool),
}

impl LinkChange {
    fn apply(&self, config: &mut LinkConfig) {
        match self {
            Self::Config(other) => *config = other.clone(),
            Self::Properties(other) => {
                *config = LinkConfig {
                    up: config.up,
                    ..other.clone()
                };
            }
            Self::Rate(rate) => config.rate = rate.clone(),
            Self::Delay(delay) => config.delay = *delay,
            Self::Jitter(jitter) => config.jitter = *jitter,
            Self::Loss(loss) => config.loss = *loss,
            Self::Queue(queue) => config.queue = *queue,
            Self::Up(up) => config.up = *up,
        }
    }
}

/// A change to a world.
pub enum Change {
    /// A link changes.
    Link {
        /// The link.
        link: LinkId,
        /// Which directions.
        directions: Directions,
        /// How.
        change: LinkChange,
    },
    /// A link is taken down or brought up in both directions, and its ends are told.
    Admin {
        /// The link.
        link: LinkId,
        /// Whether it carries anything from now on.
        up: bool,
    },
    /// A host gets a new address on a link and is told; packets to the old address are lost.
    Readdress {
        /// The host.
        node: NodeId,
        /// The link.
        link: LinkId,
        /// The new address; if `None`, the next unused one.
        address: Option<IpAddr>,
    },
    /// A NAT forgets its mappings without telling anyone.
    Rebind {
        /// The NAT.
        node: NodeId,
    },
    /// Anything else.
    Run(Box<dyn FnOnce(&mut World)>),
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link {
                link,
                directions,
                change,
            } => f
                .debug_struct("Link")
                .field("link", link)
                .field("directions", directions)
                .field("change", change)
                .finish(),
            Self::Admin { link, up } => f
                .debug_struct("Admin")
                .field("link", link)
                .field("up", up)
                .finish(),
            Self::Readdress { node, link, .. } => f
                .debug_struct("Readdress")
                .field("node", node)
                .field("link", link)
                .finish(),
            Self::Rebind { node } => f.debug_struct("Rebind").field("node", node).finish(),
            Self::Run(_) => f.write_str("Run"),
        }
    }
}

impl Change {
    /// Silently cuts or repairs both directions of a link.
    pub fn up(link: LinkId, up: bool) -> Self {
        Self::link(link, Directions::Both, LinkChange::Up(up))
    }

    /// Changes a link.
    pub fn link(link: LinkId, directions: Directions, change: LinkChange) -> Self {
        Self::Link {
            link,
            directions,
            change,
        }
    }
}

/// A rate that goes from one value to another in equal steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fade {
    /// When the first step happens.
    pub start: Instant,
    /// The time from the first step to the last.
    pub duration: Duration,
    /// How many steps; at least 1.
    pub steps: u32,
    /// The rate before the first step, in bits per second.
    pub from: u64,
    /// The rate after the last step, in bits per second. If it is 0, the link goes down.
    pub to: u64,
}

impl Fade {
    /// The rate of each step in bits per second, and when the step happens.
    pub fn rates(self) -> Vec<(Instant, u64)> {
        let steps = self.steps.max(1);
        let span = i128::from(self.to) - i128::from(self.from);
        let step = |step: u32| {
            let part = match steps {
                1 => Duration::ZERO,
                _ => self.duration * (step - 1) / (steps - 1),
            };
            let rate = i128::from(self.from) + span * i128::from(step) / i128::from(steps);
            (self.start + part, rate as u64)
        };
        (1..=steps).map(step).collect()
    }

    /// The steps, as changes to one link.
    pub fn changes(self, link: LinkId, directions: Directions) -> Vec<(Instant, Change)> {
        let mut all = Vec::new();
        for (step, (at, rate)) in self.rates().into_iter().enumerate() {
            let mut add = |change| all.push((at, Change::link(link, directions, change)));
            match Rate::bits_per_second(rate) {
                Some(rate) => {
                    if self.from == 0 && step == 0 {
                        add(LinkChange::Up(true));
                    }
                    add(LinkChange::Rate(rate));
                }
                None => add(LinkChange::Up(false)),
            }
        }
        all
    }
}

impl World {
    /// Applies a change now.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Link {
                link,
                directions,
                change,
            } => {
                for direction in directions.iter() {
                    self.reconfigure(link, direction, |config| change.apply(config));
                }
            }
            Change::Admin { link, up } => {
                for direction in Directions::Both.iter() {
                    self.reconfigure(link, direction, |config| config.up = up);
                }
                self.tell_interfaces(link, up);
            }
            Change::Readdress {
                node,
                link,
                address,
            } => {
                let (old, new) = self.network.readdress(node, link, address);
                for process in self.processes_of(node) {
                    let now = self.now;
                    let attached = &mut self.processes[process as usize];
                    attached.process.handle_readdress(now, old, new);
                    self.drain(process);
                }
            }
            Change::Rebind { node } => self.network.nodes[node.0 as usize].nat.rebind(),
            Change::Run(run) => run(self),
        }
    }

    fn reconfigure(
        &mut self,
        link: LinkId,
        direction: Direction,
        change: impl FnOnce(&mut LinkConfig),
    ) {
        let index = line_index(link, direction);
        let line = &mut self.network.lines[index as usize].link;
        let mut config = line.config().clone();
        change(&mut config);
        line.reconfigure(self.now.as_nanos(), config);
        self.arm_line(index);
    }

    fn tell_interfaces(&mut self, link: LinkId, up: bool) {
        let ends = Directions::Both.iter();
        let ends: Vec<NodeId> = ends
            .map(|direction| self.network.line(link, direction).to)
            .collect();
        for node in ends {
            let address = self.network.interface(node, link).address;
            for process in self.processes_of(node) {
                let now = self.now;
                let attached = &mut self.processes[process as usize];
                attached.process.handle_interface(now, address, up);
                self.drain(process);
            }
        }
    }

    fn processes_of(&self, node: NodeId) -> Vec<u32> {
        let count = self.processes.len() as u32;
        let on = |process: &u32| self.processes[*process as usize].node == node;
        (0..count).filter(on).collect()
    }
}
