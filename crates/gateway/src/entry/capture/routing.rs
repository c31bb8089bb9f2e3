//! Policy routing: what is marked as captured is for this machine, whatever its destination.
//!
//! ```text
//! ip rule add iif br0 fwmark 0xb000001 lookup 716999 priority 7169 protocol 171
//! ip route add local default dev lo table 716999 proto 171
//! ip rule add iif br0 fwmark 0xb000003 lookup 716998 priority 7169 protocol 171
//! ip route add unreachable default table 716998 metric 4294967294 proto 171
//! ```
//! The second table has the routes by the device of a near end, too, when that is there: it makes
//! and removes them itself, and finds them again where it takes over a device that was kept.
//! The rule names the interface, so that the kernel's check of source addresses, which looks a
//! packet's mark up too if it is told to, does not take every source for one of this machine.

use super::{CAPTURED, CARRIED, CaptureError, Source};
use crate::ip::kernel::{IP_TABLE, Kernel, Route};
use anabranch_masque::ip::Prefix;
use anabranch_net::interfaces::{Interface, Kind};
use anabranch_net::routes::{FIRST_TABLE, PROTOCOL, RULE_PRIORITY};
use futures_util::TryStreamExt as _;
use nix::errno::Errno;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Our routing table: none of those of the uplinks.
const TABLE: u32 = FIRST_TABLE - 1;
const TABLES: [u32; 2] = [TABLE, IP_TABLE];
/// Our rules come before those of the uplinks.
const PRIORITY: u32 = RULE_PRIORITY - 1;

const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

fn open() -> Result<Handle, CaptureError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(CaptureError::Socket)?;
    tokio::spawn(connection);
    Ok(handle)
}

/// Puts rules and routes for these sources, in the place of those that are there; none for IPv6 on
/// a machine without it. Routes by the device stay as they are.
pub(super) async fn put(sources: &[Source], interfaces: &[Interface]) -> Result<(), CaptureError> {
    let handle = open()?;
    let kernel = Kernel::open().map_err(CaptureError::Socket)?;
    let loopback = interfaces.iter().find(|one| one.kind == Kind::Loopback);
    let loopback = loopback.map_or(1, |one| one.index);
    let mut stale = our_rules(&handle).await?;
    for family in FAMILIES {
        let is_there = |result: Result<(), rtnetlink::Error>| match result {
            Err(error) if family == AddressFamily::Inet6 => {
                tracing::info!("IPv6 is not captured but rejected: {error}");
                Ok(false)
            }
            Err(error) => Err(CaptureError::Routing("a route cannot be added", error)),
            Ok(()) => Ok(true),
        };
        let request = handle.route().add(route(family, loopback)).replace();
        if !is_there(request.execute().await)? {
            continue;
        }
        let added = kernel.add_route(nowhere(family)).await;
        added.map_err(|error| CaptureError::Routing("a route cannot be added", error))?;
        for wanted in rules(family, sources) {
            if let Some(at) = stale.iter().position(|one| is_same(one, &wanted)) {
                stale.swap_remove(at);
                continue;
            }
            let mut request = handle.rule().add();
            *request.message_mut() = wanted;
            let added = request.execute().await;
            added.map_err(|error| CaptureError::Routing("a rule cannot be added", error))?;
        }
    }
    for one in stale {
        remove_rule(&handle, one).await?;
    }
    Ok(())
}

/// Removes all rules and routes of ours; returns in words what they were.
pub(super) async fn remove() -> Result<Vec<String>, CaptureError> {
    let refused = |what| move |error| CaptureError::Routing(what, error);
    let handle = open()?;
    let (mut rules, mut routes) = (0, 0);
    for one in our_rules(&handle).await? {
        remove_rule(&handle, one).await?;
        rules += 1;
    }
    let all = [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ];
    for all in all {
        let found = handle.route().get(all).execute();
        let found: Result<Vec<RouteMessage>, _> = found.try_collect().await;
        let found = found.map_err(refused("routes cannot be listed"))?;
        for one in found.into_iter().filter(is_our_route) {
            match handle.route().del(one).execute().await {
                // It went with its device meanwhile.
                Err(error) if is_gone(&error) => {}
                removed => {
                    removed.map_err(refused("a route cannot be removed"))?;
                    routes += 1;
                }
            }
        }
    }
    let mut words = Vec::new();
    if rules > 0 {
        words.push(format!(
            "removed {rules} routing rules (priority {PRIORITY})"
        ));
    }
    if routes > 0 {
        words.push(format!(
            "removed {routes} routes (tables {IP_TABLE} and {TABLE})"
        ));
    }
    Ok(words)
}

async fn our_rules(handle: &Handle) -> Result<Vec<RuleMessage>, CaptureError> {
    let mut rules = Vec::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let found = handle.rule().get(version).execute();
        let found: Result<Vec<RuleMessage>, _> = found.try_collect().await;
        let refused = |error| CaptureError::Routing("rules cannot be listed", error);
        let found = found.map_err(refused)?;
        rules.extend(found.into_iter().filter(is_our_rule));
    }
    Ok(rules)
}

async fn remove_rule(handle: &Handle, rule: RuleMessage) -> Result<(), CaptureError> {
    let removed = handle.rule().del(rule).execute().await;
    removed.map_err(|error| CaptureError::Routing("a rule cannot be removed", error))
}

fn is_gone(error: &rtnetlink::Error) -> bool {
    let rtnetlink::Error::NetlinkError(message) = error else {
        return false;
    };
    let gone = [Errno::ESRCH, Errno::ENOENT, Errno::ENODEV];
    gone.contains(&Errno::from_raw(-message.raw_code()))
}

fn is_our_rule(message: &RuleMessage) -> bool {
    let has = |wanted: &RuleAttribute| message.attributes.contains(wanted);
    TABLES
        .iter()
        .any(|table| has(&RuleAttribute::Table(*table)))
        && has(&RuleAttribute::Priority(PRIORITY))
        && has(&RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)))
}

fn is_our_route(message: &RouteMessage) -> bool {
    let is_in = |table: &u32| message.attributes.contains(&RouteAttribute::Table(*table));
    message.header.protocol == RouteProtocol::Other(PROTOCOL) && TABLES.iter().any(is_in)
}

/// The route that rejects packets marked as carried as long as there is no device.
fn nowhere(family: AddressFamily) -> Route {
    let any = match family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Route {
        to: Prefix::around(any, 0).unwrap_or(Prefix::host(any)),
        device: None,
        table: Some(IP_TABLE),
        mtu: None,
    }
}

/// The rules that these sources need.
fn rules(family: AddressFamily, sources: &[Source]) -> Vec<RuleMessage> {
    let mut rules = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        if sources[..at].contains(source) {
            continue;
        }
        let interface = match source {
            Source::Host => "lo",
            Source::Lan(name) => name,
        };
        let tables = [(CAPTURED, TABLE), (CARRIED, IP_TABLE)];
        rules.extend(tables.map(|to| rule(family, interface, to)));
    }
    rules
}

/// Whether the kernel has told of a rule that is wanted.
fn is_same(found: &RuleMessage, wanted: &RuleMessage) -> bool {
    let mut attributes = wanted.attributes.iter();
    found.header.family == wanted.header.family
        && attributes.all(|one| found.attributes.contains(one))
}

fn rule(family: AddressFamily, interface: &str, (mark, table): (u32, u32)) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Iifname(interface.into()),
        RuleAttribute::FwMark(mark),
        RuleAttribute::FwMask(u32::MAX),
        RuleAttribute::Table(table),
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
    ];
    message
}

fn route(family: AddressFamily, loopback: u32) -> RouteMessage {
    macro_rules! local_default {
        ($address:ty, $any:expr) => {
            RouteMessageBuilder::<$address>::new()
                .destination_prefix($any, 0)
                .output_interface(loopback)
                .table_id(TABLE)
                .protocol(RouteProtocol::Other(PROTOCOL))
                .scope(RouteScope::Host)
                .kind(RouteType::Local)
                .build()
        };
    }
    if family == AddressFamily::Inet {
        local_default!(Ipv4Addr, Ipv4Addr::UNSPECIFIED)
    } else {
        local_default!(Ipv6Addr, Ipv6Addr::UNSPECIFIED)
    }
}
