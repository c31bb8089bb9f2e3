//! What the kernel is told and asked of addresses and routes.

use super::is_forwarded;
use anabranch_masque::ip::Prefix;
use anabranch_net::error::NetlinkError;
use anabranch_net::interfaces;
use anabranch_net::routes::{FIRST_TABLE, PROTOCOL};
use futures_util::TryStreamExt as _;
use nix::errno::Errno;
use rtnetlink::packet_core::Nla as _;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::link::{InfoData, InfoTun, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use rtnetlink::{Error, Handle, LinkUnspec, RouteMessageBuilder};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The table of routes by the device of a near end: beside that of its capture.
pub(crate) const IP_TABLE: u32 = FIRST_TABLE - 2;

/// The metric of a route that counts only where there is no other.
const LAST: u32 = u32::MAX - 1;

/// A route of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) to: Prefix,
    /// By this device; without one it leads nowhere, and senders are told.
    pub(crate) device: Option<u32>,
    /// The main table if there is none.
    pub(crate) table: Option<u32>,
    /// The longest packet, if it is not that of the device.
    pub(crate) mtu: Option<u16>,
}

impl Route {
    fn message(&self) -> RouteMessage {
        let (kind, scope) = match self.device {
            Some(_) => (RouteType::Unicast, RouteScope::Link),
            None => (RouteType::Unreachable, RouteScope::Universe),
        };
        macro_rules! message {
            ($family:ty, $ip:expr) => {{
                let mut builder = RouteMessageBuilder::<$family>::new()
                    .destination_prefix($ip, self.to.length())
                    .protocol(RouteProtocol::Other(PROTOCOL))
                    .kind(kind)
                    .scope(scope);
                if let Some(device) = self.device {
                    builder = builder.output_interface(device);
                } else {
                    builder = builder.priority(LAST);
                }
                if let Some(table) = self.table {
                    builder = builder.table_id(table);
                }
                builder.build()
            }};
        }
        let mut message = match self.to.address() {
            IpAddr::V4(ip) => message!(Ipv4Addr, ip),
            IpAddr::V6(ip) => message!(Ipv6Addr, ip),
        };
        if let Some(mtu) = self.mtu {
            let metrics = vec![RouteMetric::Mtu(u32::from(mtu))];
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        message
    }
}

/// A device, as the kernel tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) mtu: u16,
    /// Whether it is a TUN device with one queue, of packets without anything before them.
    pub(crate) is_plain_tun: bool,
}

impl Link {
    fn of(message: &LinkMessage) -> Self {
        let attributes = &message.attributes;
        let mtu = attributes.iter().find_map(|one| match one {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        });
        let tun = attributes.iter().find_map(|one| match one {
            LinkAttribute::LinkInfo(info) => info.iter().find_map(|one| match one {
                LinkInfo::Data(InfoData::Tun(tun)) => Some(tun.as_slice()),
                _ => None,
            }),
            _ => None,
        });
        Self {
            index: message.header.index,
            mtu: mtu.unwrap_or(0).min(u32::from(u16::MAX)) as u16,
            is_plain_tun: tun.is_some_and(is_plain),
        }
    }
}

/// Whether these are attributes of a TUN device without a header before packets and with one queue
/// (`if_link.h`).
fn is_plain(tun: &[InfoTun]) -> bool {
    const TYPE: u16 = 3;
    const PACKET_INFORMATION: u16 = 4;
    const VIRTIO_HEADER: u16 = 5;
    const MULTI_QUEUE: u16 = 7;
    let has = |kind: u16, wanted: u8| {
        tun.iter().any(|one| {
            let mut value = vec![0; one.value_len()];
            one.emit_value(&mut value);
            one.kind() == kind && value == [wanted]
        })
    };
    let others = [PACKET_INFORMATION, VIRTIO_HEADER, MULTI_QUEUE];
    has(TYPE, 1) && others.iter().all(|one| has(*one, 0))
}

/// The addresses of a device that packets of others can have, with the lengths of their prefixes;
/// those of IPv4 first.
pub(crate) async fn addresses(device: u32) -> Result<Vec<(IpAddr, u8)>, NetlinkError> {
    let all = interfaces::list().await?;
    let addresses = all.iter().filter(|one| one.index == device);
    let addresses = addresses.flat_map(|one| &one.addresses);
    let addresses = addresses.map(|one| (one.ip, one.prefix_len));
    let mut addresses: Vec<_> = addresses.filter(|(ip, _)| is_forwarded(*ip)).collect();
    addresses.sort_unstable();
    Ok(addresses)
}

/// Where a route leads to, if it is ours, by this device and in this table.
fn destination(message: &RouteMessage, device: u32, table: u32) -> Option<Prefix> {
    let has = |wanted: &RouteAttribute| message.attributes.contains(wanted);
    let is_ours = message.header.protocol == RouteProtocol::Other(PROTOCOL)
        && has(&RouteAttribute::Oif(device))
        && has(&RouteAttribute::Table(table));
    if !is_ours {
        return None;
    }
    let to = message.attributes.iter().find_map(|one| match one {
        RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    });
    let any = match message.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Prefix::around(to.unwrap_or(any), message.header.destination_prefix_length)
}

/// A line to the kernel.
#[derive(Debug, Clone)]
pub(crate) struct Kernel(Handle);

impl Kernel {
    pub(crate) fn open() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        Ok(Self(handle))
    }

    /// The device of this name, if there is one.
    pub(crate) async fn link(&self, name: &str) -> Result<Option<Link>, Error> {
        let found = self.0.link().get().match_name(name).execute();
        let found: Result<Vec<LinkMessage>, Error> = found.try_collect().await;
        match found {
            Ok(found) => Ok(found.first().map(Link::of)),
            Err(Error::NetlinkError(message))
                if Errno::from_raw(-message.raw_code()) == Errno::ENODEV =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn set_up(&self, device: u32) -> Result<(), Error> {
        let up = LinkUnspec::new_with_index(device).up().build();
        self.0.link().set(up).execute().await
    }

    pub(crate) async fn set_mtu(&self, device: u32, mtu: u16) -> Result<(), Error> {
        let mtu = LinkUnspec::new_with_index(device).mtu(mtu.into()).build();
        self.0.link().set(mtu).execute().await
    }

    /// Where our routes by this device lead to that are in this table; the main table if there is
    /// none.
    pub(crate) async fn routes(
        &self,
        device: u32,
        table: Option<u32>,
    ) -> Result<Vec<Prefix>, Error> {
        let table = table.unwrap_or(u32::from(RouteHeader::RT_TABLE_MAIN));
        let mut routes = Vec::new();
        for all in [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ] {
            let found: Vec<RouteMessage> = self.0.route().get(all).execute().try_collect().await?;
            let ours = found.iter();
            routes.extend(ours.filter_map(|one| destination(one, device, table)));
        }
        Ok(routes)
    }

    /// Gives a device an address.
    pub(crate) async fn add_address(
        &self,
        device: u32,
        ip: IpAddr,
        length: u8,
    ) -> Result<(), Error> {
        let request = self.0.address().add(device, ip, length).replace();
        request.execute().await
    }

    /// Takes an address from a device. That it has none is fine.
    pub(crate) async fn remove_address(&self, device: u32, ip: IpAddr, length: u8) {
        let found = self.0.address().get().set_link_index_filter(device);
        let found = found
            .set_address_filter(ip)
            .set_prefix_length_filter(length);
        let Ok(found) = found.execute().try_collect::<Vec<_>>().await else {
            return;
        };
        for message in found {
            // It may have gone by itself.
            let _ = self.0.address().del(message).execute().await;
        }
    }

    pub(crate) async fn add_route(&self, route: Route) -> Result<(), Error> {
        let request = self.0.route().add(route.message()).replace();
        request.execute().await
    }

    /// Removes a route. That there is none is fine.
    pub(crate) async fn remove_route(&self, route: Route) {
        let _ = self.0.route().del(route.message()).execute().await;
    }
}

/// Whether the kernel passes packets on that come in by an interface, or by any if there is none.
pub(crate) fn forwards(is_v4: bool, interface: Option<&str>) -> bool {
    let is_on = |path: &str| {
        let value = fs::read_to_string(path);
        value.is_ok_and(|value| value.trim() != "0")
    };
    match (is_v4, interface) {
        (true, None) => is_on("/proc/sys/net/ipv4/ip_forward"),
        (true, Some(name)) => is_on(&format!("/proc/sys/net/ipv4/conf/{name}/forwarding")),
        // There is one switch of IPv6 for all.
        (false, _) => is_on("/proc/sys/net/ipv6/conf/all/forwarding"),
    }
}

/// The bit of the capability to change networks (`capability.h`).
pub(crate) const CAP_NET_ADMIN: u64 = 1 << 12;

/// The capabilities that this process has (`capability.h`).
pub(crate) fn rights() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    rights.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_core::DefaultNla;

    #[test]
    fn devices_with_frames_headers_or_several_queues_are_told_from_ours() {
        // Of what is told of one, its kind and the switches for headers and queues.
        let is_plain = |of: [u8; 4]| {
            let told = [3, 4, 5, 7].into_iter().zip(of);
            let told = told.map(|(kind, value)| InfoTun::Other(DefaultNla::new(kind, vec![value])));
            is_plain(&told.collect::<Vec<_>>())
        };
        assert!(is_plain([1, 0, 0, 0]));
        for other in [[2, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]] {
            assert!(!is_plain(other), "{other:?}");
        }
        assert!(!super::is_plain(&[]));
    }
}
