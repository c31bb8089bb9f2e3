//! Nodes, the links between them, and the routes packets take.

use super::nat::Nat;
use super::trace::Ends;
use super::{Direction, LinkId, NodeId, NodeKind};
use crate::Packet;
use crate::seed::Seed;
use anabranch_link::{Link, LinkConfig};
use anabranch_proto::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

/// The most addresses one end of a link may have, one after the other.
const MAX_ADDRESSES: u32 = 25_000;

/// A packet in transit, with what is recorded when it arrives.
#[derive(Debug, Clone)]
pub(super) struct Traveller {
    pub(super) packet: Packet,
    pub(super) ends: Ends,
    pub(super) sent: Instant,
    /// Index into the flows.
    pub(super) flow: u32,
}

/// One end of a link at a node.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) address: IpAddr,
    pub(super) link: LinkId,
    /// The outgoing direction.
    pub(super) out: u32,
    pub(super) neighbour: NodeId,
}

/// A node and its state.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) interfaces: Vec<Interface>,
    /// Processes bound to a port.
    pub(super) bound: Vec<(u16, u32)>,
    /// The process that receives all other packets.
    pub(super) process: Option<u32>,
    pub(super) nat: Nat,
}

impl Node {
    pub(super) fn owns(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|own| own.address == address)
    }

    /// The process that receives packets to this port.
    pub(super) fn receiver(&self, port: u16) -> Option<u32> {
        let bound = self.bound.iter().find(|(wanted, _)| *wanted == port);
        bound.map(|(_, process)| *process).or(self.process)
    }
}

/// One direction of a link, and where it leads.
#[derive(Debug)]
pub(super) struct Line {
    /// Boxed, because a packet moves from queue to queue and a link may hold thousands.
    pub(super) link: Link<Box<Traveller>>,
    pub(super) to: NodeId,
    /// The time of the earliest event queued for it.
    pub(super) armed: Option<Instant>,
}

/// Where an address is: its node, and the node before it on the link that the address belongs to.
#[derive(Debug, Clone, Copy)]
struct Place {
    node: NodeId,
    last_hop: NodeId,
    /// The direction from the last hop to the node.
    line: u32,
}

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Network {
    pub(super) nodes: Vec<Node>,
    /// Two for each link: forward, backward.
    pub(super) lines: Vec<Line>,
    places: BTreeMap<IpAddr, Place>,
    /// For each pair of nodes, the direction to leave by. Empty until first needed.
    routes: Vec<Vec<Option<u32>>>,
    /// For each node, the latest results of [`Self::next_line`].
    recent: Vec<[Option<(IpAddr, u32)>; 2]>,
}

impl Network {
    pub(super) fn add_node(&mut self, kind: NodeKind) -> NodeId {
        self.nodes.push(Node {
            kind,
            interfaces: Vec::new(),
            bound: Vec::new(),
            process: None,
            nat: Nat::default(),
        });
        self.forget_routes();
        NodeId(self.nodes.len() as u32 - 1)
    }

    pub(super) fn connect(
        &mut self,
        seed: Seed,
        ends: [NodeId; 2],
        configs: [LinkConfig; 2],
    ) -> LinkId {
        assert!(ends[0] != ends[1], "a link has two ends");
        let id = LinkId(self.lines.len() as u32 / 2);
        let first = id.0 * 2;
        let addresses = [0, 1].map(|end| default_address(id, end, 0));
        for (end, config) in configs.into_iter().enumerate() {
            let seed = seed.derive("link", u64::from(first) + end as u64);
            self.lines.push(Line {
                link: Link::new(config, seed.0),
                to: ends[1 - end],
                armed: None,
            });
        }
        for end in [0, 1] {
            let node = &mut self.nodes[ends[end].0 as usize];
            node.interfaces.push(Interface {
                address: addresses[end],
                link: id,
                out: first + end as u32,
                neighbour: ends[1 - end],
            });
            self.place(
                addresses[end],
                ends[end],
                ends[1 - end],
                first + 1 - end as u32,
            );
        }
        self.forget_routes();
        id
    }

    fn place(&mut self, address: IpAddr, node: NodeId, last_hop: NodeId, line: u32) {
        let place = Place {
            node,
            last_hop,
            line,
        };
        let before = self.places.insert(address, place);
        assert!(before.is_none(), "{address} is in use");
    }

    /// The interface of a node on a link.
    pub(super) fn interface(&self, node: NodeId, link: LinkId) -> &Interface {
        let interfaces = &self.nodes[node.0 as usize].interfaces;
        let found = interfaces.iter().find(|interface| interface.link == link);
        found.expect("the node is an end of the link")
    }

    /// Gives an interface another address, by default the next unused one; returns the old and the
    /// new address.
    pub(super) fn readdress(
        &mut self,
        node: NodeId,
        link: LinkId,
        address: Option<IpAddr>,
    ) -> (IpAddr, IpAddr) {
        let interface = self.interface(node, link);
        let (old, out, neighbour) = (interface.address, interface.out, interface.neighbour);
        let end = out % 2;
        let unused = |generation: &u32| {
            !self
                .places
                .contains_key(&default_address(link, end, *generation))
        };
        let new = address.unwrap_or_else(|| {
            let generation = (1..=MAX_ADDRESSES).find(unused).expect("an unused address");
            default_address(link, end, generation)
        });
        // The old address keeps its place, so that it is never assigned again and packets to it
        // find no host.
        self.place(new, node, neighbour, out ^ 1);
        let interfaces = &mut self.nodes[node.0 as usize].interfaces;
        for interface in interfaces.iter_mut().filter(|one| one.link == link) {
            interface.address = new;
        }
        self.forget_routes();
        (old, new)
    }

    /// The direction by which a packet leaves the host that sent it: that of the interface with the
    /// packet's source address.
    pub(super) fn first_line(&self, node: NodeId, from: IpAddr) -> Option<u32> {
        let interfaces = &self.nodes[node.0 as usize].interfaces;
        let own = interfaces.iter().find(|own| own.address == from);
        own.map(|interface| interface.out)
    }

    /// The direction by which a packet leaves the router it has reached.
    pub(super) fn next_line(&mut self, node: NodeId, to: IpAddr) -> Option<u32> {
        if self.routes.is_empty() {
            self.find_routes();
        }
        let recent = &mut self.recent[node.0 as usize];
        for (address, line) in recent.iter().flatten() {
            if *address == to {
                return Some(*line);
            }
        }
        let place = self.places.get(&to)?;
        let line = if place.last_hop == node {
            place.line
        } else if place.node == node {
            return None;
        } else {
            self.routes[node.0 as usize][place.last_hop.0 as usize]?
        };
        recent.rotate_right(1);
        recent[0] = Some((to, line));
        Some(line)
    }

    fn forget_routes(&mut self) {
        self.routes.clear();
        self.recent = vec![[None; 2]; self.nodes.len()];
    }

    /// Finds the shortest routes by number of links, never through hosts. Of equal routes, the one
    /// over the link created first wins.
    fn find_routes(&mut self) {
        let count = self.nodes.len();
        self.routes = vec![vec![None; count]; count];
        for start in 0..count {
            let mut first = vec![None; count];
            let mut seen = vec![false; count];
            seen[start] = true;
            let mut waiting = VecDeque::from([start]);
            while let Some(at) = waiting.pop_front() {
                if at != start && self.nodes[at].kind == NodeKind::Host {
                    continue;
                }
                for interface in &self.nodes[at].interfaces {
                    let next = interface.neighbour.0 as usize;
                    if !seen[next] {
                        seen[next] = true;
                        first[next] = first[at].or(Some(interface.out));
                        waiting.push_back(next);
                    }
                }
            }
            self.routes[start] = first;
        }
    }

    pub(super) fn line(&self, link: LinkId, direction: Direction) -> &Line {
        &self.lines[line_index(link, direction) as usize]
    }

    /// The outside of a NAT: the first link created with it as the near end.
    pub(super) fn outside(&self, node: NodeId) -> Option<&Interface> {
        let interfaces = &self.nodes[node.0 as usize].interfaces;
        interfaces
            .iter()
            .find(|interface| interface.out.is_multiple_of(2))
    }
}

pub(super) fn line_index(link: LinkId, direction: Direction) -> u32 {
    link.0 * 2 + u32::from(direction == Direction::Backward)
}

/// `10.x.y.z`, where x and y are the link's number and z is 1 and 2 for its ends; after one change
/// of address z is 3 and 4, and so on.
fn default_address(link: LinkId, end: u32, generation: u32) -> IpAddr {
    let [_, _, high, low] = link.0.to_be_bytes();
    let last = 1 + end + 2 * generation;
    let network = 10 + (last / 250) as u8;
    IpAddr::V4(Ipv4Addr::new(network, high, low, (last % 250) as u8))
}
