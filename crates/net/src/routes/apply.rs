//! Reading and changing the kernel's routes and rules.

use super::{FIRST_TABLE, MAX_INDEX, PROTOCOL, Plan, RULE_PRIORITY, Route, Routing, Rule, Step};
use crate::interfaces::{list_with, routes};
use crate::netlink::{NetlinkError, ip_of, open};
use futures_util::TryStreamExt;
use nix::errno::Errno;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};
use std::net::IpAddr;

/// The routes and rules that carry our marks, as the kernel has them.
///
/// # Errors
///
/// Netlink is not available.
pub async fn state() -> Result<Routing, NetlinkError> {
    state_with(&open()?).await
}

async fn state_with(handle: &Handle) -> Result<Routing, NetlinkError> {
    let routes = routes(handle).await?.iter().filter_map(our_route).collect();
    let mut rules = Vec::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let found: Vec<RuleMessage> = handle
            .rule()
            .get(version)
            .execute()
            .try_collect()
            .await
            .map_err(|error| NetlinkError::new("listing rules", error))?;
        rules.extend(found);
    }
    Ok(Routing {
        routes,
        rules: rules.iter().filter_map(our_rule).collect(),
    })
}

/// Carries out a plan. Adding what exists already or deleting what is gone is not an error, so an
/// interrupted plan can be applied again.
///
/// # Errors
///
/// The kernel refused a step; earlier steps have been carried out and can be [reverted](revert).
pub async fn apply(plan: &Plan) -> Result<(), NetlinkError> {
    let handle = open()?;
    for step in &plan.steps {
        let result = match step {
            Step::AddRoute(route) => {
                handle
                    .route()
                    .add(route_message(route))
                    .replace()
                    .execute()
                    .await
            }
            Step::DeleteRoute(route) => handle.route().del(route_message(route)).execute().await,
            Step::AddRule(rule) => add_rule(&handle, rule).await,
            Step::DeleteRule(rule) => handle.rule().del(rule_message(rule)).execute().await,
        };
        if let Err(error) = result {
            let error = NetlinkError::new(plan.describe(step), error);
            let harmless: &[Errno] = match step {
                Step::AddRoute(_) | Step::AddRule(_) => &[Errno::EEXIST],
                Step::DeleteRoute(_) | Step::DeleteRule(_) => {
                    &[Errno::ESRCH, Errno::ENOENT, Errno::ENODEV]
                }
            };
            if !error
                .os_error()
                .is_some_and(|errno| harmless.contains(&errno))
            {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Removes every route and rule that carries our marks, and nothing else. Returns what was done.
///
/// # Errors
///
/// The kernel refused; another call continues where this one stopped.
pub async fn revert() -> Result<Plan, NetlinkError> {
    let handle = open()?;
    let interfaces = list_with(&handle).await?;
    let plan = state_with(&handle)
        .await?
        .plan_to(&Routing::default(), &interfaces);
    apply(&plan).await?;
    Ok(plan)
}

fn is_our_table(table: u32) -> bool {
    (FIRST_TABLE..=FIRST_TABLE + MAX_INDEX).contains(&table)
}

fn our_route(message: &RouteMessage) -> Option<Route> {
    if message.header.protocol != RouteProtocol::Other(PROTOCOL) {
        return None;
    }
    let any: IpAddr = match message.header.address_family {
        AddressFamily::Inet => [0, 0, 0, 0].into(),
        AddressFamily::Inet6 => [0; 16].into(),
        _ => return None,
    };
    let mut route = Route {
        table: message.header.table.into(),
        destination: (any, message.header.destination_prefix_length),
        gateway: None,
        index: 0,
        source: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Destination(ip) => route.destination.0 = ip_of(ip)?,
            RouteAttribute::Gateway(ip) => route.gateway = ip_of(ip),
            RouteAttribute::PrefSource(ip) => route.source = ip_of(ip),
            RouteAttribute::Oif(index) => route.index = *index,
            _ => {}
        }
    }
    is_our_table(route.table).then_some(route)
}

fn our_rule(message: &RuleMessage) -> Option<Rule> {
    let (mut from, mut table) = (None, u32::from(message.header.table));
    let (mut protocol, mut priority) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(ip) => from = Some(*ip),
            RuleAttribute::Table(id) => table = *id,
            RuleAttribute::Protocol(id) => protocol = Some(*id),
            RuleAttribute::Priority(value) => priority = Some(*value),
            _ => {}
        }
    }
    let ours = protocol == Some(RouteProtocol::Other(PROTOCOL))
        && priority == Some(RULE_PRIORITY)
        && is_our_table(table);
    ours.then_some(Rule { from: from?, table })
}

fn route_message(route: &Route) -> RouteMessage {
    let scope = if route.gateway.is_none() && route.destination.0.is_ipv4() {
        RouteScope::Link
    } else {
        RouteScope::Universe
    };
    let (destination, length) = route.destination;
    match destination {
        IpAddr::V4(destination) => {
            let mut builder = RouteMessageBuilder::<std::net::Ipv4Addr>::new()
                .destination_prefix(destination, length)
                .output_interface(route.index)
                .table_id(route.table)
                .protocol(RouteProtocol::Other(PROTOCOL))
                .scope(scope)
                .kind(RouteType::Unicast);
            if let Some(IpAddr::V4(gateway)) = route.gateway {
                builder = builder.gateway(gateway);
            }
            if let Some(IpAddr::V4(source)) = route.source {
                builder = builder.pref_source(source);
            }
            builder.build()
        }
        IpAddr::V6(destination) => {
            let mut builder = RouteMessageBuilder::<std::net::Ipv6Addr>::new()
                .destination_prefix(destination, length)
                .output_interface(route.index)
                .table_id(route.table)
                .protocol(RouteProtocol::Other(PROTOCOL))
                .scope(scope)
                .kind(RouteType::Unicast);
            if let Some(IpAddr::V6(gateway)) = route.gateway {
                builder = builder.gateway(gateway);
            }
            if let Some(IpAddr::V6(source)) = route.source {
                builder = builder.pref_source(source);
            }
            builder.build()
        }
    }
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.action = RuleAction::ToTable;
    message.header.family = if rule.from.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    message.header.src_len = if rule.from.is_ipv4() { 32 } else { 128 };
    message.attributes = vec![
        RuleAttribute::Source(rule.from),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Priority(RULE_PRIORITY),
        RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
    ];
    message
}

async fn add_rule(handle: &Handle, rule: &Rule) -> Result<(), rtnetlink::Error> {
    let mut request = handle.rule().add();
    *request.message_mut() = rule_message(rule);
    request.execute().await
}
