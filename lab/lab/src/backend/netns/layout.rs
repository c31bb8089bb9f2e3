//! The addresses of all nodes and the routes of all packets, worked out before anything is built.
//!
//! Link number `n` is the network `10.77.n.0/24`, with `.1` at its first end and `.2` at its
//! second. Routes are shortest, as in the simulator. They lead through hosts only to addresses that
//! cannot be reached otherwise: a host answers on all its addresses, whichever interface a packet
//! came in on. Where several interfaces lead away from a host, the source address decides, through
//! rules and a routing table for each interface, as in the scripts of the first and the second
//! paper. A server also looks at where an answer goes: the answer leaves by the link of the path
//! whose client link it is for.

use crate::scenario::{NetLink, Network, NodeKind, Scenario};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// The number of the first interface's routing table; lower numbers include the system's own.
const TABLE: usize = 1000;

/// Priorities of the rules, in this order: both addresses of a path, the destination of an answer,
/// the source of a packet, the interface its socket is bound to.
const PRIORITY: [u32; 4] = [100, 200, 300, 400];

/// Names that are taken or have a meaning of their own.
const RESERVED: [&str; 3] = ["lo", "all", "default"];

/// The longest interface name, in bytes.
const NAME_BYTES: usize = 15;

/// A step of a path: a link, and whether it is crossed from its first end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) link: usize,
    pub(super) forward: bool,
}

/// The network's addresses and routes.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    network: &'a Network,
    interfaces: Vec<String>,
}

impl<'a> Layout<'a> {
    pub(super) fn of(scenario: &'a Scenario) -> Self {
        let network = &scenario.network;
        let mut interfaces: Vec<String> = Vec::new();
        for (index, link) in network.links.iter().enumerate() {
            let name = &link.name;
            let usable = name.len() <= NAME_BYTES && !RESERVED.contains(&name.as_str());
            interfaces.push(if usable && !interfaces.contains(name) {
                name.clone()
            } else {
                format!("link{}.{index}", index + 1)
            });
        }
        Self {
            network,
            interfaces,
        }
    }

    /// The name of a link's interfaces, which is the same at both ends.
    pub(super) fn interface(&self, link: usize) -> &str {
        &self.interfaces[link]
    }

    /// The address of one end of a link; 0 is the first end.
    #[allow(
        clippy::unused_self,
        reason = "where addresses come from is the layout's business"
    )]
    pub(super) fn address(&self, link: usize, end: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, link as u8, end as u8 + 1)
    }

    /// The address of a node on a link that it is attached to.
    pub(super) fn own(&self, node: usize, link: usize) -> Ipv4Addr {
        self.address(link, end_of(&self.network.links[link], node))
    }

    /// The addresses of a path's ends, the client's first.
    pub(super) fn ends(&self, path: usize) -> [Ipv4Addr; 2] {
        let path = &self.network.paths[path];
        [self.own(0, path.client_link), self.own(1, path.server_link)]
    }

    /// The links of a path from the client to the server; empty if the server cannot be reached.
    pub(super) fn hops(&self, path: usize) -> Vec<Hop> {
        let path = &self.network.paths[path];
        let hop = |link: usize, from: usize| Hop {
            link,
            forward: self.network.links[link].ends.0 == from,
        };
        let mut hops = vec![hop(path.client_link, 0)];
        let mut at = far(&self.network.links[path.client_link], 0);
        while at != 1 && hops.len() <= self.network.links.len() {
            let link = match self.attached(at).find(|link| *link == path.server_link) {
                Some(link) => link,
                None => match self.next_hop(at, path.server_link) {
                    Some(link) => link,
                    None => return Vec::new(),
                },
            };
            hops.push(hop(link, at));
            at = far(&self.network.links[link], at);
        }
        hops
    }

    /// The links that a node is attached to.
    fn attached(&self, node: usize) -> impl Iterator<Item = usize> {
        let links = self.network.links.iter().enumerate();
        links
            .filter(move |(_, link)| link.ends.0 == node || link.ends.1 == node)
            .map(|(index, _)| index)
    }

    /// The link through which a forwarding node reaches the network of another link. Routers at
    /// that link are preferred; a host may be the destination, but nothing is routed through it.
    fn next_hop(&self, from: usize, link: usize) -> Option<usize> {
        let ends = self.network.links[link].ends;
        let goals = [ends.0, ends.1];
        let forwards = |node: usize| self.network.nodes[node].kind != NodeKind::Host;
        let (routers, hosts): (Vec<usize>, Vec<usize>) =
            goals.into_iter().partition(|node| forwards(*node));
        self.first_link(from, &routers)
            .or_else(|| self.first_link(from, &hosts))
    }

    fn first_link(&self, from: usize, goals: &[usize]) -> Option<usize> {
        let mut first: Vec<Option<usize>> = vec![None; self.network.nodes.len()];
        let mut waiting = VecDeque::from([from]);
        while let Some(at) = waiting.pop_front() {
            if at != from && goals.contains(&at) {
                return first[at];
            }
            if at != from && self.network.nodes[at].kind == NodeKind::Host {
                continue;
            }
            for link in self.attached(at) {
                let next = far(&self.network.links[link], at);
                if next != from && first[next].is_none() {
                    first[next] = first[at].or(Some(link));
                    waiting.push_back(next);
                }
            }
        }
        None
    }

    /// The `ip` commands for a node, one a line.
    pub(super) fn commands(&self, node: usize) -> Vec<String> {
        match self.network.nodes[node].kind {
            NodeKind::Host => self.host(node),
            NodeKind::Router | NodeKind::Nat => self.router(node),
        }
    }

    fn router(&self, node: usize) -> Vec<String> {
        let links = 0..self.network.links.len();
        let elsewhere = links.filter(|link| !self.attached(node).any(|own| own == *link));
        let route = |link: usize| {
            let by = self.next_hop(node, link)?;
            let (gateway, device) = (self.other(by, node), self.interface(by));
            Some(format!(
                "route add 10.77.{link}.0/24 via {gateway} dev {device}"
            ))
        };
        elsewhere.filter_map(route).collect()
    }

    fn host(&self, node: usize) -> Vec<String> {
        let mut commands = Vec::new();
        for (order, link) in self.attached(node).enumerate() {
            let (own, gateway) = (self.own(node, link), self.other(link, node));
            commands.extend(self.table(link, own, gateway, order));
            let (table, device) = (TABLE + link, self.interface(link));
            let [.., from, bound] = PRIORITY;
            commands.push(format!(
                "rule add from 10.77.{link}.0/24 lookup {table} priority {from}"
            ));
            commands.push(format!(
                "rule add oif {device} lookup {table} priority {bound}"
            ));
        }
        if node == 1 {
            commands.extend(self.answers());
        }
        commands
    }

    /// The commands that give the client another address on one of its links. `old` is removed
    /// before `new` is added, as in a network that a host leaves and rejoins, and the routes lost
    /// with it are restored.
    pub(super) fn readdressed(&self, link: usize, [old, new]: [Ipv4Addr; 2]) -> Vec<String> {
        let device = self.interface(link);
        let order = self.attached(0).position(|own| own == link);
        let mut commands = vec![
            format!("address delete {old}/24 dev {device}"),
            format!("address add {new}/24 dev {device}"),
        ];
        commands.extend(self.table(link, new, self.other(link, 0), order.unwrap_or(0)));
        commands
    }

    /// The routing table of one interface, and its route in the main table, whose metric grows with
    /// `order`.
    fn table(&self, link: usize, own: Ipv4Addr, gateway: Ipv4Addr, order: usize) -> [String; 2] {
        let route = format!(
            "route replace default via {gateway} dev {} src {own}",
            self.interface(link)
        );
        let metric = 100 + order;
        [
            format!("{route} table {}", TABLE + link),
            format!("{route} metric {metric}"),
        ]
    }

    /// The rules by which the server routes its answers.
    fn answers(&self) -> Vec<String> {
        let [exact, to, ..] = PRIORITY;
        let mut rules: Vec<String> = Vec::new();
        let mut add = |rule: String| {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        };
        for path in &self.network.paths {
            let (client, table) = (path.client_link, TABLE + path.server_link);
            let own = self.own(1, path.server_link);
            add(format!(
                "rule add from {own} to 10.77.{client}.0/24 lookup {table} priority {exact}"
            ));
        }
        let mut known = Vec::new();
        for path in &self.network.paths {
            if !known.contains(&path.client_link) {
                known.push(path.client_link);
                let (client, table) = (path.client_link, TABLE + path.server_link);
                add(format!(
                    "rule add to 10.77.{client}.0/24 lookup {table} priority {to}"
                ));
            }
        }
        rules
    }

    /// The address at the other end of a node's link.
    fn other(&self, link: usize, node: usize) -> Ipv4Addr {
        self.address(link, 1 - end_of(&self.network.links[link], node))
    }

    /// The links by which a NAT reaches the server; what leaves by them gets their addresses.
    pub(super) fn outside(&self, nat: usize) -> Vec<usize> {
        let mut links: Vec<usize> = Vec::new();
        for path in &self.network.paths {
            let direct = self.attached(nat).find(|link| *link == path.server_link);
            let by = direct.or_else(|| self.next_hop(nat, path.server_link));
            links.extend(by.filter(|link| !links.contains(link)));
        }
        links
    }
}

/// The node at this end of a link.
fn node_at(link: &NetLink, end: usize) -> usize {
    [link.ends.0, link.ends.1][end]
}

/// Which end of a link a node is at.
fn end_of(link: &NetLink, node: usize) -> usize {
    usize::from(link.ends.0 != node)
}

/// The node at the other end of a link.
fn far(link: &NetLink, node: usize) -> usize {
    node_at(link, 1 - end_of(link, node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Changes, Plan};
    use crate::scenario::Document;
    use std::sync::Arc;

    fn scenario(text: &str) -> Arc<Scenario> {
        let document = Document::parse("t.toml", text).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        Arc::clone(&plan.runs[0].scenario)
    }

    fn graph(rest: &str) -> Arc<Scenario> {
        scenario(&format!(
            "format = 1\nname = \"g\"\nstop = \"9s\"\n{rest}\n\
             [[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n"
        ))
    }

    const CHAINS: &str = r#"
[[node]]
name = "r1"
[[node]]
name = "r2"
[[link]]
name = "c-r1"
ends = ["client", "r1"]
[[link]]
name = "r1-s"
ends = ["r1", "server"]
[[link]]
name = "c-r2"
ends = ["r2", "client"]
[[link]]
name = "a-name-beyond-fifteen"
ends = ["r2", "server"]
[[path]]
client = "c-r1"
server = "r1-s"
[[path]]
client = "c-r2"
server = "a-name-beyond-fifteen"
"#;

    #[test]
    fn every_link_is_a_network_and_every_interface_has_a_table() {
        let scenario = graph(CHAINS);
        let layout = Layout::of(&scenario);
        assert_eq!(
            layout.ends(0).map(|a| a.to_string()),
            ["10.77.0.1", "10.77.1.2"]
        );
        assert_eq!(
            layout.ends(1).map(|a| a.to_string()),
            ["10.77.2.2", "10.77.3.2"]
        );
        assert_eq!(
            (layout.interface(0), layout.interface(3)),
            ("c-r1", "link4.3")
        );
        let client = layout.commands(0).join("\n");
        for line in [
            "route replace default via 10.77.0.2 dev c-r1 src 10.77.0.1 table 1000",
            "rule add from 10.77.2.0/24 lookup 1002 priority 300",
            "rule add oif c-r2 lookup 1002 priority 400",
        ] {
            assert!(client.contains(line), "{line}\n{client}");
        }
    }

    #[test]
    fn answers_of_a_server_leave_by_the_link_of_the_path() {
        let scenario = graph(CHAINS);
        let server = Layout::of(&scenario).commands(1).join("\n");
        for line in [
            "rule add from 10.77.1.2 to 10.77.0.0/24 lookup 1001 priority 100",
            // Answers to the second client link leave this way from any source: a subflow may lead
            // to the server's first address.
            "rule add to 10.77.2.0/24 lookup 1003 priority 200",
        ] {
            assert!(server.contains(line), "{line}\n{server}");
        }
    }

    #[test]
    fn routers_lead_to_an_address_of_a_host_by_the_host_itself_if_need_be() {
        let scenario = graph(CHAINS);
        let layout = Layout::of(&scenario);
        let hop = |link, forward| Hop { link, forward };
        assert_eq!(layout.hops(0), [hop(0, true), hop(1, true)]);
        assert_eq!(layout.hops(1), [hop(2, false), hop(3, true)]);
        let second = layout.commands(3).join("\n");
        // The router at the other end of the network r1-s can be reached through hosts only.
        assert!(
            second.contains("route add 10.77.1.0/24 via 10.77.3.2 dev link4.3"),
            "{second}"
        );
        assert!(
            second.contains("route add 10.77.0.0/24 via 10.77.2.2 dev c-r2"),
            "{second}"
        );
    }

    #[test]
    fn further_hosts_are_led_to_and_lead_out_as_the_client_and_the_server() {
        let further = "[[node]]\nname = \"neighbour\"\nkind = \"host\"\n\
                       [[node]]\nname = \"far\"\nkind = \"host\"\n\
                       [[link]]\nname = \"n-r1\"\nends = [\"neighbour\", \"r1\"]\n\
                       [[link]]\nname = \"r1-r2\"\nends = [\"r1\", \"r2\"]\n\
                       [[link]]\nname = \"r2-f\"\nends = [\"r2\", \"far\"]\n\
                       [[background]]\nkind = \"tcp\"\nends = [\"neighbour\", \"far\"]\n";
        let scenario = graph(&format!("{CHAINS}{further}"));
        let layout = Layout::of(&scenario);
        let [near, far] = scenario.background[0].ends;
        let address = |end: crate::scenario::Interface| layout.own(end.node, end.link).to_string();
        assert_eq!([near, far].map(address), ["10.77.4.1", "10.77.6.2"]);
        for (node, line) in [
            (2, "route add 10.77.6.0/24 via 10.77.5.2 dev r1-r2"),
            (3, "route add 10.77.4.0/24 via 10.77.5.1 dev r1-r2"),
            (
                4,
                "route replace default via 10.77.4.2 dev n-r1 src 10.77.4.1 table 1004",
            ),
            (
                5,
                "route replace default via 10.77.6.1 dev r2-f src 10.77.6.2 metric 100",
            ),
            (5, "rule add from 10.77.6.0/24 lookup 1006 priority 300"),
        ] {
            let commands = layout.commands(node).join("\n");
            assert!(commands.contains(line), "{line}\n{commands}");
        }
    }

    #[test]
    fn a_shared_link_is_on_both_paths_and_longer_ways_are_found() {
        let scenario = graph(
            "[[node]]\nname = \"in\"\n[[node]]\nname = \"out\"\nkind = \"nat\"\n\
             [[link]]\nname = \"a\"\nends = [\"client\", \"in\"]\n\
             [[link]]\nname = \"b\"\nends = [\"client\", \"in\"]\n\
             [[link]]\nname = \"middle\"\nends = [\"in\", \"out\"]\n\
             [[link]]\nname = \"last\"\nends = [\"out\", \"server\"]\n\
             [[path]]\nclient = \"a\"\nserver = \"last\"\n\
             [[path]]\nclient = \"b\"\nserver = \"last\"\n",
        );
        let layout = Layout::of(&scenario);
        let links = |path| -> Vec<usize> { layout.hops(path).iter().map(|h| h.link).collect() };
        assert_eq!((links(0), links(1)), (vec![0, 2, 3], vec![1, 2, 3]));
        assert_eq!(layout.outside(3), [3]);
        let rules = layout.commands(1);
        assert_eq!(
            rules
                .iter()
                .filter(|rule| rule.contains("priority 100"))
                .count(),
            2
        );
    }
}
