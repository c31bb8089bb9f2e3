//! Policy routing: makes packets with an interface's source address leave through that interface.
//!
//! A socket bound to an address still follows the routing table, which usually has only one default
//! route. So each interface gets a table of its own with its subnet and its default route, and a
//! rule sends packets from its addresses there:
//!
//! ```text
//! ip route replace 192.0.2.0/24 dev eth0 src 192.0.2.7 scope link table 717002 proto 171
//! ip route replace default via 192.0.2.1 dev eth0 src 192.0.2.7 table 717002 proto 171
//! ip rule add from 192.0.2.7 lookup 717002 priority 7170 protocol 171
//! ```
//!
//! Everything added is marked by a protocol number, a range of tables and a priority, all three. So
//! the kernel's own state records what was added: reverting finds it even after a crash, and
//! touches nothing else.

mod apply;
#[cfg(test)]
mod tests;

pub use apply::{apply, revert, state};

use crate::interfaces::{Address, Interface, Kind};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// The routing protocol number that marks our routes and rules; neither the kernel's list
/// (`rtnetlink.h`) nor iproute2's `rt_protos` uses it.
pub const PROTOCOL: u8 = 171;

/// Table numbers start here, plus the interface index.
pub const FIRST_TABLE: u32 = 717_000;

/// The largest interface index that can have a table.
const MAX_INDEX: u32 = 99_999;

/// Priority of our rules: before `main` (32766) and after `local` (0).
pub const RULE_PRIORITY: u32 = 7170;

/// A route in one of our tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The table.
    pub table: u32,
    /// The destination: a subnet; length 0 means the default route.
    pub destination: (IpAddr, u8),
    /// The next hop, if the destination is not on the link.
    pub gateway: Option<IpAddr>,
    /// The interface's index.
    pub index: u32,
    /// The source address for packets that do not have one yet.
    pub source: Option<IpAddr>,
}

/// A rule that sends packets from an address to a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The source address.
    pub from: IpAddr,
    /// The table.
    pub table: u32,
}

/// A set of routes and rules: either the wanted or the existing ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routing {
    /// The routes.
    pub routes: BTreeSet<Route>,
    /// The rules.
    pub rules: BTreeSet<Rule>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Add a route.
    AddRoute(Route),
    /// Add a rule.
    AddRule(Rule),
    /// Delete a route.
    DeleteRoute(Route),
    /// Delete a rule.
    DeleteRule(Rule),
}

/// The changes to make, in order; displayed as the commands that would make them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The changes.
    pub steps: Vec<Step>,
    /// Names of the interfaces involved, for display.
    names: Vec<(u32, String)>,
}

/// Why an interface gets no table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Skipped {
    /// The interface is not up, or has no carrier or no address.
    #[error("{0} is down or has no address")]
    Unusable(String),
    /// The interface has a single subnet and no gateway.
    #[error("{0} has no gateway: it reaches its own subnet only")]
    NoGateway(String),
    /// The interface's index is beyond the range of tables.
    #[error("{0} has an interface number beyond {MAX_INDEX}")]
    Index(String),
}

impl Routing {
    /// The routes and rules for these interfaces, and which interfaces need or get none. Interfaces
    /// without a gateway still get their subnet, so that answers leave the way requests came.
    pub fn wanted(interfaces: &[Interface]) -> (Self, Vec<Skipped>) {
        let mut wanted = Self::default();
        let mut skipped = Vec::new();
        for interface in interfaces
            .iter()
            .filter(|interface| interface.kind != Kind::Loopback)
        {
            let name = || interface.name.clone();
            if !interface.is_usable() {
                skipped.push(Skipped::Unusable(name()));
            } else if interface.index > MAX_INDEX {
                skipped.push(Skipped::Index(name()));
            } else {
                wanted.add(interface);
                if interface.gateways.is_empty() && !interface.default_route {
                    skipped.push(Skipped::NoGateway(name()));
                }
            }
        }
        (wanted, skipped)
    }

    fn add(&mut self, interface: &Interface) {
        let table = FIRST_TABLE + interface.index;
        // IPv6 routes link-local packets by interface anyway.
        let global = interface
            .addresses
            .iter()
            .filter(|address| !link_local_v6(address.ip));
        let mut first_of_family = [true, true];
        for address in global {
            self.rules.insert(Rule {
                from: address.ip,
                table,
            });
            self.add_subnet(table, interface.index, *address);
            let family = usize::from(address.ip.is_ipv6());
            if std::mem::take(&mut first_of_family[family]) {
                self.add_default(table, interface, address.ip);
            }
        }
    }

    fn add_subnet(&mut self, table: u32, index: u32, address: Address) {
        let destination = (address.network(), address.prefix_len);
        // Two addresses of one subnet share the route; the first is the source address of unbound
        // packets.
        if self
            .routes
            .iter()
            .all(|other| (other.table, other.destination) != (table, destination))
        {
            let source = Some(address.ip);
            self.routes.insert(Route {
                table,
                destination,
                gateway: None,
                index,
                source,
            });
        }
    }

    fn add_default(&mut self, table: u32, interface: &Interface, source: IpAddr) {
        let gateway = interface.gateway(source.is_ipv4());
        // Point-to-point links have default routes without a next hop.
        let point_to_point = interface.default_route && interface.gateways.is_empty();
        if gateway.is_some() || point_to_point {
            let any: IpAddr = if source.is_ipv4() {
                [0, 0, 0, 0].into()
            } else {
                [0; 16].into()
            };
            let (index, source) = (interface.index, Some(source));
            self.routes.insert(Route {
                table,
                destination: (any, 0),
                gateway,
                index,
                source,
            });
        }
    }

    /// The changes that turn this into `wanted`. Rules are deleted first and added last, so that no
    /// packet is sent to an incomplete table.
    pub fn plan_to(&self, wanted: &Self, interfaces: &[Interface]) -> Plan {
        let mut steps = Vec::new();
        let gone = self.rules.difference(&wanted.rules).cloned();
        steps.extend(gone.map(Step::DeleteRule));
        let gone = self.routes.difference(&wanted.routes).cloned();
        // The gateway of a default route must be reachable while the route exists: delete the
        // default route first.
        let (defaults, subnets): (Vec<Route>, Vec<Route>) =
            gone.partition(|route| route.destination.1 == 0);
        steps.extend(defaults.into_iter().chain(subnets).map(Step::DeleteRoute));
        let new = wanted.routes.difference(&self.routes).cloned();
        let (defaults, subnets): (Vec<Route>, Vec<Route>) =
            new.partition(|route| route.destination.1 == 0);
        steps.extend(subnets.into_iter().chain(defaults).map(Step::AddRoute));
        let new = wanted.rules.difference(&self.rules).cloned();
        steps.extend(new.map(Step::AddRule));
        let names = interfaces
            .iter()
            .map(|interface| (interface.index, interface.name.clone()));
        Plan {
            steps,
            names: names.collect(),
        }
    }
}

fn link_local_v6(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

impl Plan {
    /// Whether nothing has to change.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn describe(&self, step: &Step) -> String {
        match step {
            Step::AddRoute(route) => {
                format!(
                    "{} route replace {}",
                    ip_command(route.destination.0),
                    self.route(route)
                )
            }
            Step::DeleteRoute(route) => {
                format!(
                    "{} route del {}",
                    ip_command(route.destination.0),
                    self.route(route)
                )
            }
            Step::AddRule(rule) => {
                format!("{} rule add {}", ip_command(rule.from), describe_rule(rule))
            }
            Step::DeleteRule(rule) => {
                format!("{} rule del {}", ip_command(rule.from), describe_rule(rule))
            }
        }
    }

    fn route(&self, route: &Route) -> String {
        use fmt::Write;
        let (destination, length) = route.destination;
        let mut text = if length == 0 {
            "default".into()
        } else {
            format!("{destination}/{length}")
        };
        let name = self.names.iter().find(|(index, _)| *index == route.index);
        let name = name.map_or_else(|| format!("if{}", route.index), |(_, name)| name.clone());
        // Writing to a string cannot fail.
        if let Some(gateway) = route.gateway {
            let _ = write!(text, " via {gateway}");
        }
        let _ = write!(text, " dev {name}");
        if let Some(source) = route.source {
            let _ = write!(text, " src {source}");
        }
        if route.gateway.is_none() && destination.is_ipv4() {
            text.push_str(" scope link");
        }
        let _ = write!(text, " table {} proto {PROTOCOL}", route.table);
        text
    }
}

fn ip_command(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "ip" } else { "ip -6" }
}

fn describe_rule(rule: &Rule) -> String {
    format!(
        "from {} lookup {} priority {RULE_PRIORITY} protocol {PROTOCOL}",
        rule.from, rule.table
    )
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{}", self.describe(step))?;
        }
        Ok(())
    }
}
