//! A run's network, built of namespaces and removed when dropped.

use super::Links;
use super::layout::{Hop, Layout};
use crate::backend::drawn;
pub(super) use crate::backend::refusal::Refusal;
use crate::scenario::{NodeKind, Scenario, Way};
use anabranch_link::{Jitter, LinkConfig, Rate};
use anabranch_sim::Seed;
use anabranch_testbed::emulate::{End, LinkLayer, LinkPlan};
use anabranch_testbed::{Address, Node, Testbed};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

/// The largest IP packet on a link.
pub(super) const MTU: u32 = 1500;

/// The last byte of the first address a client gets by a handover; lower ones belong to the links'
/// ends.
const FIRST_MOVE: u8 = 3;

/// Settings of every namespace, apart from forwarding.
const SETTINGS: [(&str, &str); 6] = [
    // A host answers on all its addresses, whichever interface a packet came in on.
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // Nobody is told of a shorter route than the scenario's.
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    // No connection learns from an earlier one.
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/conf/all/accept_redirects", "0"),
];

/// The variables that decide how TCP behaves, recorded with each run.
pub(super) const RECORDED: [&str; 10] = [
    "ipv4/tcp_rmem",
    "ipv4/tcp_wmem",
    "ipv4/tcp_sack",
    "ipv4/tcp_timestamps",
    "ipv4/tcp_window_scaling",
    "ipv4/tcp_slow_start_after_idle",
    "ipv4/tcp_recovery",
    "ipv4/tcp_ecn",
    "mptcp/scheduler",
    "mptcp/path_manager",
];

/// Namespaces, links and routes of one run. When it is dropped, links go first, then processes and
/// namespaces.
#[derive(Debug)]
pub(super) struct Net<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) layout: Layout<'a>,
    pub(super) layer: Box<dyn LinkLayer>,
    pub(super) nodes: Vec<Node>,
    /// The current properties of the links, by link and direction.
    pub(super) configs: Vec<[LinkConfig; 2]>,
    /// How often the client's address has changed on each link.
    moves: Vec<u8>,
    _bed: Testbed,
}

impl<'a> Net<'a> {
    /// Builds the network of a scenario, with the values that `seed` draws.
    pub(super) fn build(
        scenario: &'a Scenario,
        seed: u64,
        links: Links,
        pcap: Option<&Path>,
    ) -> Result<Self, Refusal> {
        let network = &scenario.network;
        let layout = Layout::of(scenario);
        if let Some(lost) = (0..network.paths.len()).find(|path| layout.hops(*path).is_empty()) {
            let name = &network.paths[lost].name;
            let what = format!("path `{name}`: no way leads from its first link to its last");
            return Err(Refusal::Failed(what));
        }
        let mut bed = Testbed::new("lab")?;
        let mut nodes = Vec::new();
        for (index, node) in network.nodes.iter().enumerate() {
            // Names in a file may contain characters that namespace names may not.
            let safe = node.name.replace('_', "-");
            let safe: String = safe.chars().take(32).collect();
            let made = bed.node(&format!("{index}-{safe}"))?;
            let forwards = if node.kind == NodeKind::Host {
                "0"
            } else {
                "1"
            };
            made.set_sysctl("ipv4/ip_forward", forwards)?;
            for (path, value) in SETTINGS {
                made.set_sysctl(path, value)?;
            }
            nodes.push(made);
        }
        let configs: Vec<[LinkConfig; 2]> = (0..network.links.len())
            .map(|link| drawn::links(scenario, link, seed))
            .collect();
        let plans = plans(scenario, &layout, &nodes, &configs, seed, pcap)?;
        let layer = links.build(plans)?;
        let mut net = Self {
            scenario,
            layout,
            layer,
            nodes,
            moves: vec![0; configs.len()],
            configs,
            _bed: bed,
        };
        for node in 0..net.nodes.len() {
            let commands = net.layout.commands(node);
            if !commands.is_empty() {
                net.nodes[node].ip(&commands)?;
            }
            if net.scenario.network.nodes[node].kind == NodeKind::Nat {
                net.translate(node)?;
            }
        }
        Ok(net)
    }

    /// Packets that leave a NAT towards the server get the address of the interface they leave by,
    /// and a random port.
    fn translate(&mut self, node: usize) -> Result<(), Refusal> {
        let outside = self.layout.outside(node);
        let devices: Vec<&str> = outside.iter().map(|l| self.layout.interface(*l)).collect();
        for device in devices {
            if super::tools::has("nft") {
                let rules = format!(
                    "add table ip lab; add chain ip lab out {{ type nat hook postrouting priority \
                     100; }}; add rule ip lab out oifname \"{device}\" masquerade fully-random"
                );
                self.nodes[node].run("nft", &[&rules])?;
            } else if super::tools::has("iptables") {
                let words = ["-t", "nat", "-A", "POSTROUTING", "-o", device];
                let target = ["-j", "MASQUERADE", "--random-fully"];
                self.nodes[node].run("iptables", &[&words[..], &target[..]].concat())?;
            } else {
                let what = "a NAT: install nftables or iptables";
                return Err(Refusal::Unsupported(what.to_owned()));
            }
        }
        Ok(())
    }

    /// Gives the client another address on a link. The node at the other end needs no ARP to find
    /// it: all hardware addresses are known in advance.
    pub(super) fn readdress(&mut self, link: usize) -> Result<(), Refusal> {
        let (first, last) = (FIRST_MOVE, u8::MAX - 1);
        let at = |moves: u8| Ipv4Addr::new(10, 77, link as u8, moves);
        let count = self.moves[link];
        let own = self.layout.own(0, link);
        let old = if count == 0 {
            own
        } else {
            at(first + count - 1)
        };
        if first + count > last {
            let what = format!("more than {} handovers on a link", last - first + 1);
            return Err(Refusal::Unsupported(what));
        }
        let new = at(first + count);
        let ends = self.scenario.network.links[link].ends;
        let far = if ends.0 == 0 { ends.1 } else { ends.0 };
        let device = self.layout.interface(link);
        let known = self.nodes[far].run(
            "ip",
            &["neighbour", "show", &own.to_string(), "dev", device],
        )?;
        if let Some(mac) = known
            .split_whitespace()
            .skip_while(|word| *word != "lladdr")
            .nth(1)
        {
            let entry = format!("neighbour replace {new} lladdr {mac} dev {device} nud permanent");
            self.nodes[far].ip(&[entry])?;
        }
        self.nodes[0].ip(&self.layout.readdressed(link, [old, new]))?;
        self.moves[link] += 1;
        Ok(())
    }

    /// Makes a NAT forget its mappings.
    pub(super) fn forget_mappings(&mut self, node: usize) -> Result<(), String> {
        let done = self.nodes[node].run("conntrack", &["-F"]);
        done.map(drop).map_err(|error| error.to_string())
    }

    /// The links that data of a path crosses in one direction, first to last.
    pub(super) fn hops(&self, path: usize, way: Way) -> Vec<Hop> {
        let mut hops = self.layout.hops(path);
        if way == Way::Backward {
            hops.reverse();
            for hop in &mut hops {
                hop.forward = !hop.forward;
            }
        }
        hops
    }

    /// The addresses of a path's ends, the client's first.
    pub(super) fn ends(&self, path: usize) -> [IpAddr; 2] {
        self.layout.ends(path).map(IpAddr::V4)
    }

    /// The one-way delay of packets of this mean size when they wait in no queue; `None` if the
    /// delay or a rate varies.
    pub(super) fn base_delay(&self, hops: &[Hop], bytes: f64) -> Option<Duration> {
        let mut total = Duration::ZERO;
        for hop in hops {
            let config = &self.configs[hop.link][usize::from(!hop.forward)];
            if config.jitter != Jitter::None {
                return None;
            }
            total += config.delay;
            match &config.rate {
                Rate::Unlimited => {}
                Rate::Fixed {
                    bits_per_second, ..
                } => total += Duration::from_secs_f64(bytes * 8.0 / bits_per_second.get() as f64),
                Rate::Trace(_) => return None,
            }
        }
        Some(total)
    }

    /// The TCP variables of the client's namespace, as `name=value`.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let read = |name: &&str| {
            let value = self.nodes[0].sysctl(name).ok()?;
            Some(((*name).to_owned(), value.replace('\t', " ")))
        };
        RECORDED.iter().filter_map(read).collect()
    }
}

fn plans(
    scenario: &Scenario,
    layout: &Layout<'_>,
    nodes: &[Node],
    configs: &[[LinkConfig; 2]],
    seed: u64,
    pcap: Option<&Path>,
) -> Result<Vec<LinkPlan>, Refusal> {
    let mut plans = Vec::new();
    for (index, link) in scenario.network.links.iter().enumerate() {
        let end = |end: usize, node: usize| -> Result<End, Refusal> {
            let address = Address::new(IpAddr::V4(layout.address(index, end)), 24)?;
            Ok(End {
                node: nodes[node].clone(),
                interface: layout.interface(index).to_owned(),
                addresses: vec![address],
                mtu: MTU,
            })
        };
        plans.push(LinkPlan {
            name: link.name.clone(),
            ends: [end(0, link.ends.0)?, end(1, link.ends.1)?],
            configs: configs[index].clone(),
            seed: Seed(seed).derive("emulated link", index as u64).0,
            pcap: pcap.map(|folder| folder.join(format!("{}.pcapng", link.name))),
        });
    }
    Ok(plans)
}
