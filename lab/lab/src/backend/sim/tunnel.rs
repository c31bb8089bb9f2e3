//! The product's tunnel in virtual time: its nodes on the gateways. Each flow is of a class of its
//! own, which the near node knows by the target's port.
//!
//! The tunnel starts with the run. A flow that shall find it in use already has a `start`.

use super::network::Built;
use crate::engine::{self, Setup};
use crate::scenario::{Flow, FlowKind};
use anabranch_proto::time::Instant;
use anabranch_schedulers::{Names, steered};
use anabranch_sim::ProcessId;
use anabranch_sim::quic::configs;
use anabranch_sim::tcp::TcpConfig;
use anabranch_sim::tunnel::Gateway;
use anabranch_tunnel::class::{Match, Transport};
use anabranch_tunnel::{Class, Classes};
use std::net::IpAddr;

/// Bytes that a node's sockets take from a host before the tunnel has: the first buffer of Linux
/// (`tcp_rmem`), which hardly grows where round trips are short.
const SOCKET: u64 = 128 << 10;

/// Installs the two nodes, the near one first. The flows go to these ports.
pub(super) fn install(
    built: &mut Built<'_>,
    names: &Names,
    port: impl Fn(usize) -> u16,
) -> Result<[ProcessId; 2], String> {
    let transport = &built.scenario.transport;
    let ends = engine::ends(&Setup::of(transport), names).map_err(|error| error.to_string())?;
    let mut config = ends.sender;
    anabranch_tunnel::streams::suit(&mut config.streams);
    config.scheduler = steered(config.scheduler);
    let (dialling, accepting) = configs(config.clone(), config);
    let (mut near, far) = built.hosts(accepting);
    let dialled = built.dial(&mut near, &dialling, Instant::ZERO);
    let [(session, _)] = dialled[..] else {
        return Err("a tunnel is one connection".to_owned());
    };
    let Some([_, (_, beside_targets)]) = built.inside else {
        return Err("a tunnel has hosts behind its nodes".to_owned());
    };
    let IpAddr::V4(from) = built.world.address(built.nodes[1], beside_targets) else {
        return Err("the targets have no IPv4 addresses".to_owned());
    };
    let seed = built.world.seed();
    let socket = TcpConfig {
        receive_buffer: SOCKET,
        ..TcpConfig::default()
    };
    let near = Gateway::near(near, session, seed, socket.clone()).classes(classes(built, port));
    let far = Gateway::far(far, from, seed, socket);
    Ok([
        built.world.attach(built.nodes[0], Box::new(near)),
        built.world.attach(built.nodes[1], Box::new(far)),
    ])
}

/// A class for each flow, by the port it goes to.
fn classes(built: &Built<'_>, port: impl Fn(usize) -> u16) -> Classes {
    let transport = |flow: &Flow| match flow.kind {
        FlowKind::Datagrams { .. } => Transport::Udp,
        _ => Transport::Tcp,
    };
    let flows = built.scenario.flows.iter().enumerate();
    let classes = flows.map(|(index, flow)| Class {
        name: format!("flow {}", index + 1),
        matches: vec![Match {
            transport: Some(transport(flow)),
            ports: vec![port(index)..=port(index)],
            ..Match::default()
        }],
        treatment: flow.marks.treatment(),
    });
    Classes::new(classes.collect())
}
