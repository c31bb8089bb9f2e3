//! The machine's network interfaces: their current state, and changes.
//!
//! Decides which interfaces count as uplinks by default. Which ones a user wants is decided in
//! [`spec`].

pub mod spec;
#[cfg(test)]
mod tests;
mod watch;

pub use watch::{Change, Watch};

use crate::netlink::{self, NetlinkError};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use rtnetlink::{Handle, RouteMessageBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most destinations remembered per interface. An interface with more routes takes part in
/// routing between networks and is assumed to lead everywhere.
const MAX_DESTINATIONS: usize = 1024;

/// The kind of an interface, as far as the choice of paths is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Loops back to this machine.
    Loopback,
    /// A network card or modem, or a VLAN, bond or team of them.
    Uplink,
    /// A tunnel: its packets leave by another interface.
    Tunnel,
    /// Plumbing between virtual machines, containers and namespaces: bridges, veth pairs and the
    /// like.
    Virtual,
}

/// An address of an interface, with its subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of its subnet's prefix, in bits.
    pub prefix_len: u8,
}

impl Address {
    /// The subnet's address: the prefix, with all other bits zero.
    pub fn network(&self) -> IpAddr {
        match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix_len))
                    .unwrap_or(0);
                Ipv4Addr::from_bits(ip.to_bits() & mask).into()
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix_len))
                    .unwrap_or(0);
                Ipv6Addr::from_bits(ip.to_bits() & mask).into()
            }
        }
    }

    /// Whether `ip` is in the same subnet.
    pub fn covers(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.ip.is_ipv4()
            && Self {
                ip,
                prefix_len: self.prefix_len,
            }
            .network()
                == self.network()
    }
}

/// A network interface, as reported by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number for it; a new number each time it is plugged in.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Whether the administrator has switched it on.
    pub up: bool,
    /// Whether it has a carrier and so can pass packets.
    pub running: bool,
    /// The largest IP packet in bytes.
    pub mtu: u32,
    /// Usable addresses: excludes IPv6 addresses that are tentative, failed duplicate detection or
    /// are deprecated.
    pub addresses: Vec<Address>,
    /// Next hops of its default routes, best first; only the first one of each address family is
    /// used.
    pub gateways: Vec<IpAddr>,
    /// Whether the main routing table has a default route out of it.
    pub default_route: bool,
    /// Destinations of the routes out of it, in any table.
    pub destinations: BTreeSet<Address>,
}

impl Interface {
    /// Whether it can carry a path at the moment.
    pub fn is_usable(&self) -> bool {
        self.up && self.running && !self.addresses.is_empty()
    }

    /// Whether it leads to other networks by default, so that `auto` uses it. A bridge or veth pair
    /// does if the machine's default route goes through it (this is how containers reach the
    /// outside).
    pub fn is_uplink(&self) -> bool {
        match self.kind {
            Kind::Uplink => true,
            Kind::Virtual => self.default_route,
            Kind::Tunnel | Kind::Loopback => false,
        }
    }

    /// Whether some route out of it covers `ip`. Without one, packets bound to the interface are
    /// sent as if their destination were on the link, and are lost.
    pub fn reaches(&self, ip: IpAddr) -> bool {
        self.destinations.len() >= MAX_DESTINATIONS
            || self.destinations.iter().any(|network| network.covers(ip))
    }

    /// The address from which to reach `remote`: of the same family, in the same subnet if
    /// possible, and of the same scope.
    pub fn address_towards(&self, remote: IpAddr) -> Option<IpAddr> {
        let mut candidates: Vec<&Address> = self
            .addresses
            .iter()
            .filter(|address| address.ip.is_ipv4() == remote.is_ipv4())
            .filter(|address| is_link_local(address.ip) == is_link_local(remote))
            .filter(|address| address.ip.is_loopback() == remote.is_loopback())
            .collect();
        candidates.sort_by_key(|address| !address.covers(remote));
        candidates.first().map(|address| address.ip)
    }

    /// The gateway for IPv4 or IPv6.
    pub fn gateway(&self, v4: bool) -> Option<IpAddr> {
        self.gateways
            .iter()
            .copied()
            .find(|gateway| gateway.is_ipv4() == v4)
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// All interfaces of this network namespace, in order of index.
///
/// # Errors
///
/// Netlink is not available.
pub async fn list() -> Result<Vec<Interface>, NetlinkError> {
    list_with(&netlink::open()?).await
}

pub(crate) async fn list_with(handle: &Handle) -> Result<Vec<Interface>, NetlinkError> {
    let mut interfaces = BTreeMap::new();
    let mut links = handle.link().get().execute();
    while let Some(link) = next(&mut links, "listing interfaces").await? {
        let interface = from_link(link);
        interfaces.insert(interface.index, interface);
    }
    let mut addresses = handle.address().get().execute();
    while let Some(message) = next(&mut addresses, "listing addresses").await? {
        if let Some(interface) = interfaces.get_mut(&message.header.index) {
            interface.addresses.extend(from_address(&message));
        }
    }
    let mut defaults = Vec::new();
    for message in routes(handle).await? {
        defaults.extend(default_route(&message));
        for (interface, network) in destinations(&message) {
            if let Some(interface) = interfaces.get_mut(&interface)
                && interface.destinations.len() < MAX_DESTINATIONS
            {
                interface.destinations.insert(network);
            }
        }
    }
    defaults.sort_by_key(|route| route.metric);
    for route in defaults {
        if let Some(interface) = interfaces.get_mut(&route.interface) {
            interface.default_route = true;
            interface.gateways.extend(route.gateway);
        }
    }
    Ok(interfaces.into_values().collect())
}

/// All routes of both families, from all tables.
pub(crate) async fn routes(handle: &Handle) -> Result<Vec<RouteMessage>, NetlinkError> {
    let v4 = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let v6 = RouteMessageBuilder::<Ipv6Addr>::new().build();
    let mut found = Vec::new();
    // One after the other: a netlink socket handles one dump at a time.
    for family in [v4, v6] {
        let mut routes = handle.route().get(family).execute();
        while let Some(route) = next(&mut routes, "listing routes").await? {
            found.push(route);
        }
    }
    Ok(found)
}

async fn next<T>(
    stream: &mut (impl futures_util::Stream<Item = Result<T, rtnetlink::Error>> + Unpin),
    what: &str,
) -> Result<Option<T>, NetlinkError> {
    stream
        .try_next()
        .await
        .map_err(|error| NetlinkError::new(what, error))
}

fn from_link(link: LinkMessage) -> Interface {
    let flags = link.header.flags;
    let mut interface = Interface {
        index: link.header.index,
        name: String::new(),
        kind: if flags.contains(LinkFlags::Loopback) {
            Kind::Loopback
        } else {
            Kind::Uplink
        },
        up: flags.contains(LinkFlags::Up),
        running: flags.contains(LinkFlags::Running),
        mtu: 0,
        addresses: Vec::new(),
        gateways: Vec::new(),
        default_route: false,
        destinations: BTreeSet::new(),
    };
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
            LinkAttribute::LinkInfo(infos) if interface.kind != Kind::Loopback => {
                let kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(classify(&kind)),
                    _ => None,
                });
                interface.kind = kind.unwrap_or(Kind::Uplink);
            }
            _ => {}
        }
    }
    interface
}

fn classify(kind: &InfoKind) -> Kind {
    match kind {
        InfoKind::Vlan
        | InfoKind::MacVlan
        | InfoKind::IpVlan
        | InfoKind::Bond
        | InfoKind::Team
        | InfoKind::VirtWifi
        | InfoKind::Wwan
        | InfoKind::RmNet
        | InfoKind::Dsa
        | InfoKind::Ipoib => Kind::Uplink,
        InfoKind::Veth
        | InfoKind::Bridge
        | InfoKind::Dummy
        | InfoKind::Ifb
        | InfoKind::Vrf
        | InfoKind::MacVtap
        | InfoKind::IpVtap
        | InfoKind::Nlmon
        | InfoKind::Netkit
        | InfoKind::Netdevsim
        | InfoKind::Vcan
        | InfoKind::Vxcan
        | InfoKind::Can => Kind::Virtual,
        // TUN, WireGuard, GRE, VXLAN and unknown kinds: none of them carries packets by itself.
        _ => Kind::Tunnel,
    }
}

fn from_address(message: &AddressMessage) -> Option<Address> {
    let unusable = AddressHeaderFlags::Tentative
        | AddressHeaderFlags::Dadfailed
        | AddressHeaderFlags::Deprecated;
    if message.header.flags.intersects(unusable) {
        return None;
    }
    // On point-to-point links `Address` is the peer's address and `Local` is ours; elsewhere IPv6
    // has only `Address`.
    let local = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Local(ip) => Some(*ip),
            _ => None,
        });
    let ip = local.or_else(|| {
        message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Address(ip) => Some(*ip),
                _ => None,
            })
    })?;
    Some(Address {
        ip,
        prefix_len: message.header.prefix_len,
    })
}

/// The interfaces a route leaves by, each with the route's destination.
fn destinations(message: &RouteMessage) -> Vec<(u32, Address)> {
    let header = &message.header;
    if header.kind != RouteType::Unicast {
        return Vec::new();
    }
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Vec::new(),
    };
    let mut network = Address {
        ip: any,
        prefix_len: header.destination_prefix_length,
    };
    let mut interfaces = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interfaces.push(*index),
            RouteAttribute::MultiPath(hops) => {
                interfaces.extend(hops.iter().map(|hop| hop.interface_index));
            }
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => network.ip = (*ip).into(),
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => network.ip = (*ip).into(),
            _ => {}
        }
    }
    interfaces
        .into_iter()
        .map(|index| (index, network))
        .collect()
}

struct DefaultRoute {
    interface: u32,
    gateway: Option<IpAddr>,
    metric: u32,
}

fn default_route(message: &RouteMessage) -> Option<DefaultRoute> {
    let header = &message.header;
    let mut route = DefaultRoute {
        interface: 0,
        gateway: None,
        metric: 0,
    };
    let mut table = u32::from(header.table);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.interface = *index,
            RouteAttribute::Gateway(address) => route.gateway = netlink::ip_of(address),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Table(id) => table = *id,
            _ => {}
        }
    }
    let is_default = header.destination_prefix_length == 0
        && header.kind == RouteType::Unicast
        && table == u32::from(RouteHeader::RT_TABLE_MAIN);
    is_default.then_some(route)
}
