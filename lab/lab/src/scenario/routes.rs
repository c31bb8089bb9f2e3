//! What a network can carry: the route of each path, and the most that all paths carry together.

use super::topology::{Interface, NetLink, Network, NodeKind};
use super::workload::Way;
use std::collections::VecDeque;

impl Network {
    /// The links of a path from the client to the server, and whether each is crossed forward.
    /// Between the first and the last link the route is the shortest, and of equally short ones the
    /// one over the link described first, as packets are forwarded. `None` if there is no route.
    pub fn route(&self, path: usize) -> Option<Vec<(usize, bool)>> {
        self.way(self.path_ends(path))
    }

    /// The ends of a path, the client's first.
    pub fn path_ends(&self, path: usize) -> [Interface; 2] {
        let path = &self.paths[path];
        [(0, path.client_link), (1, path.server_link)].map(|(node, link)| Interface { node, link })
    }

    /// The ends of the shortest way from one host to another; of equally short ones, that over the
    /// links described first. `None` if there is no way.
    pub fn nearest_ends(&self, hosts: [usize; 2]) -> Option<[Interface; 2]> {
        let of = |node: usize| {
            let links = self.links.iter().enumerate();
            let own = links.filter(move |(_, one)| one.ends.0 == node || one.ends.1 == node);
            own.map(move |(link, _)| Interface { node, link })
        };
        let pairs = of(hosts[0]).flat_map(|from| of(hosts[1]).map(move |to| [from, to]));
        let ways = pairs.filter_map(|ends| Some((ends, self.way(ends)?.len())));
        ways.min_by_key(|(_, length)| *length).map(|(ends, _)| ends)
    }

    /// The links from one end to another, found as for [`Self::route`].
    pub fn way(&self, [from, to]: [Interface; 2]) -> Option<Vec<(usize, bool)>> {
        let (first, last) = (from.link, to.link);
        let forward = self.links[first].ends.0 == from.node;
        let mut route = vec![(first, forward)];
        let mut at = end(&self.links[first], forward);
        if at == to.node {
            return (first == last).then_some(route);
        }
        let goal = far_end(&self.links[last], to.node);
        if !self.passes_on(at) || !self.passes_on(goal) {
            return None;
        }
        let towards = self.distances(goal);
        while at != goal {
            // A router looks only as far as the last hop before the destination.
            let here = towards[at]?;
            let out = self.links.iter().enumerate().find_map(|(index, link)| {
                let forward = link.ends.0 == at;
                let next = end(link, forward);
                let beside = forward || link.ends.1 == at;
                let closer = towards[next].is_some_and(|distance| distance + 1 == here);
                (beside && closer).then_some((index, forward, next))
            });
            let (index, forward, next) = out?;
            route.push((index, forward));
            at = next;
        }
        route.push((last, self.links[last].ends.1 == to.node));
        Some(route)
    }

    /// The link on the outside of a NAT of the simulator: the first one that starts at it.
    pub fn outside(&self, nat: usize) -> Option<usize> {
        self.links.iter().position(|link| link.ends.0 == nat)
    }

    fn passes_on(&self, node: usize) -> bool {
        self.nodes[node].kind != NodeKind::Host
    }

    /// For each forwarding node, its distance from `goal` in links.
    fn distances(&self, goal: usize) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.nodes.len()];
        distances[goal] = Some(0);
        let mut waiting = VecDeque::from([(goal, 0)]);
        while let Some((at, distance)) = waiting.pop_front() {
            for link in &self.links {
                let next = match link.ends {
                    (first, second) if first == at => second,
                    (first, second) if second == at => first,
                    _ => continue,
                };
                if distances[next].is_none() && self.passes_on(next) {
                    distances[next] = Some(distance + 1);
                    waiting.push_back((next, distance + 1));
                }
            }
        }
        distances
    }

    /// The rate of the narrowest link of a path, in bits per second; `None` if all links are
    /// unlimited.
    pub fn path_rate(&self, path: usize, way: Way) -> Option<u64> {
        let route = self.route(path)?;
        let rates = route.into_iter().map(|hop| self.rate_of(hop, way));
        rates.flatten().min()
    }

    /// The most that all paths carry together, in bits per second, each link counted once; `None`
    /// if it is unlimited.
    pub fn joint_rate(&self, way: Way) -> Option<u64> {
        let mut hops: Vec<(usize, bool)> = Vec::new();
        for path in 0..self.paths.len() {
            for hop in self.route(path)? {
                if !hops.contains(&hop) {
                    hops.push(hop);
                }
            }
        }
        let mut room = Room::default();
        for (link, forward) in hops {
            let ends = self.links[link].ends;
            let (from, to) = if forward { ends } else { (ends.1, ends.0) };
            let rate = self.rate_of((link, forward), way);
            room.arcs.push((from, to, rate.unwrap_or(Room::ENDLESS)));
        }
        room.flow(self.nodes.len())
    }

    /// The rate of a link on a route from the client, for data in this direction.
    fn rate_of(&self, (link, forward): (usize, bool), way: Way) -> Option<u64> {
        let link = &self.links[link];
        if forward == (way == Way::Forward) {
            link.forward.rate()
        } else {
            link.backward.rate()
        }
    }
}

/// The node reached by crossing a link forward or backward.
fn end(link: &NetLink, forward: bool) -> usize {
    if forward { link.ends.1 } else { link.ends.0 }
}

fn far_end(link: &NetLink, near: usize) -> usize {
    end(link, link.ends.0 == near)
}

/// The remaining capacity of each arc between two nodes.
#[derive(Debug, Default)]
struct Room {
    arcs: Vec<(usize, usize, u64)>,
}

impl Room {
    /// More than the sum of all rates that a file can contain.
    const ENDLESS: u64 = u64::MAX / 4;

    /// The maximum flow from node 0 to node 1, by shortest augmenting paths; `None` if it is
    /// unlimited.
    fn flow(mut self, nodes: usize) -> Option<u64> {
        let mut total = 0_u64;
        // Flow over an arc may be taken back over the reverse arc.
        let back = self.arcs.iter().map(|(from, to, _)| (*to, *from, 0));
        let back: Vec<_> = back.collect();
        let count = self.arcs.len();
        self.arcs.extend(back);
        while let Some(way) = self.augment(nodes) {
            let least = way.iter().map(|arc| self.arcs[*arc].2).min()?;
            if least >= Self::ENDLESS / 2 {
                return None;
            }
            total += least;
            for arc in way {
                self.arcs[arc].2 -= least;
                let other = if arc < count {
                    arc + count
                } else {
                    arc - count
                };
                self.arcs[other].2 += least;
            }
        }
        Some(total)
    }

    /// The arcs of a shortest path from node 0 to node 1 that has capacity left on each.
    fn augment(&self, nodes: usize) -> Option<Vec<usize>> {
        let mut by: Vec<Option<usize>> = vec![None; nodes];
        let mut waiting = VecDeque::from([0]);
        while let Some(at) = waiting.pop_front() {
            for (arc, (from, to, room)) in self.arcs.iter().enumerate() {
                if *from == at && *room > 0 && *to != 0 && by[*to].is_none() {
                    by[*to] = Some(arc);
                    waiting.push_back(*to);
                }
            }
        }
        let mut way = Vec::new();
        let mut at = 1;
        while at != 0 {
            let arc = by[at]?;
            way.push(arc);
            at = self.arcs[arc].0;
        }
        Some(way)
    }
}
