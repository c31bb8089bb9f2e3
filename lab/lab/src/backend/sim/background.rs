//! Background traffic.

use super::network::{Beside, Built};
use crate::backend::drawn;
use crate::results::Shared;
use crate::scenario::{
    Background, BackgroundKind, Interface, Network, NodeKind, TcpCongestion, Way,
};
use anabranch_proto::time::Instant;
use anabranch_schedulers::Names;
use anabranch_sim::ProcessId;
use anabranch_sim::profile::hosts_controller;
use anabranch_sim::tcp::{Connect, Demand, ENDLESS, Exchange, Once, TcpConfig, TcpHost};
use anabranch_sim::traffic::{UdpFlow, UdpSink, UdpSource};
use std::net::SocketAddr;
use std::time::Duration;

/// Ports of the first piece, at its first and at its second end; no flow uses these.
const PORTS: [u16; 2] = [20_000, 30_000];

/// The simulator's congestion control for TCP by the kernel's; none for BBR, as its TCP measures no
/// delivery rates.
pub(super) fn controller(congestion: TcpCongestion) -> Option<&'static str> {
    match congestion {
        TcpCongestion::Reno => Some("new-reno"),
        TcpCongestion::Cubic => Some("cubic"),
        TcpCongestion::Bbr => None,
    }
}

/// Installs all background traffic on the hosts.
pub(super) fn install(built: &mut Built<'_>, names: &Names) -> Result<(), String> {
    for (index, one) in built.scenario.background.iter().enumerate() {
        let processes = match one.kind {
            BackgroundKind::Udp { rate, size } => udp(built, index, one, (rate, size)),
            BackgroundKind::Tcp { congestion } => {
                let demand = match one.way {
                    Way::Forward => Exchange::upload(ENDLESS),
                    Way::Backward => Exchange::download(ENDLESS),
                };
                let controller = controller(congestion).ok_or("no such TCP here")?;
                let congestion = hosts_controller(names, None, controller, None);
                let config = TcpConfig {
                    congestion: congestion.map_err(|error| error.to_string())?,
                    ..TcpConfig::default()
                };
                connection(built, index, one, 0, Box::new(Once::new(demand)), config)
            }
            BackgroundKind::Web { size, pause } => {
                // The end that reads is the one that sends requests.
                let asker = usize::from(one.way == Way::Forward);
                let seed = built.world.seed().0;
                let demand = Box::new(drawn::reader(index, size, pause, seed));
                connection(built, index, one, asker, demand, TcpConfig::default())
            }
        };
        let ends = one.ends;
        built.beside.push(Beside { ends, processes });
    }
    Ok(())
}

/// What all of it got so far.
pub(super) fn outcomes(built: &Built<'_>) -> Vec<Shared> {
    let all = built.scenario.background.iter().zip(&built.beside);
    all.enumerate()
        .map(|(index, (one, beside))| {
            let to = usize::from(one.way == Way::Forward);
            let (world, process) = (&built.world, beside.processes[to]);
            let bytes = match one.kind {
                BackgroundKind::Udp { .. } => {
                    world.process::<UdpSink>(process).stats(index as u64).bytes
                }
                BackgroundKind::Tcp { .. } | BackgroundKind::Web { .. } => {
                    let reports = world.process::<TcpHost>(process).reports();
                    reports.map(|report| report.received_bytes).sum()
                }
            };
            let stop = one.stop.map(|stop| Instant::ZERO + stop);
            let end = stop.map_or(world.now(), |stop| stop.min(world.now()));
            let time = end.since(begins(built, index));
            Shared::new(one.kind.name(), bytes, time)
        })
        .collect()
}

/// Whether the NATs on its way let it pass: the simulator's pass only UDP that is sent from inside.
pub(super) fn passes_nats(network: &Network, one: &Background) -> bool {
    let way = network.way(one.ends).unwrap_or_default();
    way.windows(2).all(|hops| {
        let [(near, forward), (far, _)] = [hops[0], hops[1]];
        let ends = network.links[near].ends;
        let between = if forward { ends.1 } else { ends.0 };
        if network.nodes[between].kind != NodeKind::Nat {
            return true;
        }
        let (comes, goes) = match one.way {
            Way::Forward => (near, far),
            Way::Backward => (far, near),
        };
        let outside = network.outside(between);
        let udp = matches!(one.kind, BackgroundKind::Udp { .. });
        ![Some(comes), Some(goes)].contains(&outside) || (udp && Some(goes) == outside)
    })
}

/// The sockets at its ends.
fn sockets(built: &Built<'_>, index: usize, ends: [Interface; 2]) -> [SocketAddr; 2] {
    [0, 1].map(|side| {
        let Interface { node, link } = ends[side];
        let address = built.world.address(built.nodes[node], built.links[link]);
        SocketAddr::new(address, PORTS[side] + index as u16)
    })
}

fn begins(built: &Built<'_>, index: usize) -> Instant {
    let seed = built.world.seed().0;
    Instant::ZERO + drawn::background_start(built.scenario, index, seed)
}

fn udp(
    built: &mut Built<'_>,
    index: usize,
    one: &Background,
    (rate, size): (u64, u64),
) -> [ProcessId; 2] {
    let sockets = sockets(built, index, one.ends);
    let from = usize::from(one.way == Way::Backward);
    let end = one.stop.unwrap_or(built.scenario.stop);
    let flow = UdpFlow {
        id: index as u64,
        from: sockets[from],
        to: sockets[1 - from],
        size: size as usize,
        interval: Duration::ZERO,
        start: begins(built, index),
        end: Instant::ZERO + end,
    };
    let nodes = one.ends.map(|end| built.nodes[end.node]);
    let source = Box::new(UdpSource::new().with(flow.at_rate(rate)));
    let sender = built
        .world
        .attach_at(nodes[from], sockets[from].port(), source);
    let (far, sink) = (sockets[1 - from].port(), Box::new(UdpSink::new()));
    let receiver = built.world.attach_at(nodes[1 - from], far, sink);
    in_order(from, sender, receiver)
}

fn connection(
    built: &mut Built<'_>,
    index: usize,
    one: &Background,
    asker: usize,
    demand: Box<dyn Demand>,
    config: TcpConfig,
) -> [ProcessId; 2] {
    let sockets = sockets(built, index, one.ends);
    let seed = built.world.seed();
    let mut near = TcpHost::new(seed.derive("beside", 2 * index as u64));
    near.connect(Connect {
        from: sockets[asker],
        to: sockets[1 - asker],
        at: begins(built, index),
        demand,
        until: one.stop.map(|stop| Instant::ZERO + stop),
        config: config.clone(),
    });
    let port = sockets[1 - asker].port();
    let far = TcpHost::new(seed.derive("beside", 2 * index as u64 + 1)).listen(port, config);
    let nodes = one.ends.map(|end| built.nodes[end.node]);
    let world = &mut built.world;
    let near = world.attach_at(nodes[asker], sockets[asker].port(), Box::new(near));
    let far = world.attach_at(nodes[1 - asker], port, Box::new(far));
    in_order(asker, near, far)
}

fn in_order(first: usize, one: ProcessId, other: ProcessId) -> [ProcessId; 2] {
    if first == 0 {
        [one, other]
    } else {
        [other, one]
    }
}
