//! What the kernel is told and asked of addresses and routes.

use anabranch_masque::ip::Prefix;
use anabranch_net::routes::{FIRST_TABLE, PROTOCOL};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::{Error, Handle, RouteMessageBuilder};
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

/// A line to the kernel.
#[derive(Debug, Clone)]
pub(crate) struct Kernel(Handle);

impl Kernel {
    pub(crate) fn open() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        Ok(Self(handle))
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
        use futures_util::TryStreamExt as _;
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
