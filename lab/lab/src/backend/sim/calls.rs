//! Flows of datagrams between hosts that know nothing of the tunnel between them.
//!
//! ```text
//! forward   host --UDP-- near node ==tunnel== far node --UDP--> host
//! backward  the host behind the near node calls, and the other sends to where the call came from
//! ```

use super::apps::{self, Units};
use super::measure::seconds;
use super::network::Built;
use crate::results::DatagramFlow;
use crate::scenario::{FlowKind, Way};
use crate::stats::quantile;
use anabranch_proto::time::{Duration, Instant};
use anabranch_sim::app::DatagramStats;
use anabranch_sim::record::Histogram;
use anabranch_sim::traffic::{UdpFlow, UdpSink, UdpSource};
use anabranch_sim::tunnel::{Gateway, UdpRelayed};
use anabranch_sim::{ProcessId, World};
use std::net::SocketAddr;

/// How long after the last datagram those that have not come are waited for.
const LINGER: Duration = Duration::from_secs(2);

/// One flow of datagrams.
#[derive(Debug)]
struct Call {
    flow: usize,
    /// The hosts' ends, that of the host behind the near node first.
    ends: [SocketAddr; 2],
    source: ProcessId,
    sink: ProcessId,
    way: Way,
    end: Instant,
    received: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

/// Installs the flows on the hosts, between these ends of each flow, the client's first.
pub(super) fn install(built: &mut Built<'_>, ends: &dyn Fn(usize) -> [SocketAddr; 2]) -> Calls {
    let Some(inside) = built.inside else {
        return Calls::default();
    };
    let mut calls = Vec::new();
    for (index, flow) in built.scenario.flows.iter().enumerate() {
        let FlowKind::Datagrams {
            size,
            every,
            duration,
            deadline,
        } = flow.kind
        else {
            continue;
        };
        let (ends, start) = (ends(index), built.starts[index]);
        let from = usize::from(flow.way == Way::Backward);
        let sent = UdpFlow {
            id: index as u64,
            from: ends[from],
            to: ends[1 - from],
            size: size as usize,
            interval: every,
            start,
            end: start + duration,
        };
        let sink = UdpSink::new().measure(sent.id, deadline.unwrap_or(apps::NEVER));
        let (source, sink) = match flow.way {
            Way::Forward => (UdpSource::new().with(sent), sink),
            Way::Backward => (
                UdpSource::new().called(sent),
                sink.call(ends[0], ends[1], start),
            ),
        };
        let world = &mut built.world;
        let port = |side: usize| ends[side].port();
        let source = world.attach_at(inside[from].0, port(from), Box::new(source));
        let sink = world.attach_at(inside[1 - from].0, port(1 - from), Box::new(sink));
        calls.push(Call {
            flow: index,
            ends,
            source,
            sink,
            way: flow.way,
            end: sent.end,
            received: 0,
            first: None,
            last: None,
        });
    }
    Calls(calls)
}

impl Call {
    fn stats<'a>(&self, world: &'a World) -> &'a DatagramStats {
        let sink = world.process::<UdpSink>(self.sink);
        let stats = sink.measured(self.flow as u64);
        stats.expect("each flow is measured")
    }

    fn sent(&self, world: &World) -> u64 {
        world.process::<UdpSource>(self.source).sent().sum()
    }

    fn is_done(&self, world: &World) -> bool {
        let now = world.now();
        now >= self.end && (self.received == self.sent(world) || now >= self.end + LINGER)
    }

    /// What the near and the far node saw of the flow.
    fn relayed<'a>(&self, world: &'a World, nodes: [ProcessId; 2]) -> [Option<&'a UdpRelayed>; 2] {
        let [host, target] = self.ends;
        let mut near = world.process::<Gateway>(nodes[0]).udp();
        let mut far = world.process::<Gateway>(nodes[1]).udp();
        [
            near.find(|seen| seen.ends == [host, target]),
            far.find(|seen| seen.ends[0] == target),
        ]
    }

    fn outcome(&self, world: &World, nodes: [ProcessId; 2]) -> DatagramFlow {
        let stats = self.stats(world);
        let mut ends = self.relayed(world, nodes);
        if self.way == Way::Backward {
            ends.reverse();
        }
        let [into, out] = ends;
        let held = out.map(|seen| &seen.held).filter(|held| held.total() > 0);
        let delays: Vec<f64> = stats.delays.iter().copied().map(seconds).collect();
        DatagramFlow {
            flow: self.flow as u32 + 1,
            sent: self.sent(world),
            delivered: stats.received,
            late: stats.received - stats.in_time,
            dropped: into.map_or(0, |seen| seen.dropped),
            reordered_before: out.map_or(0, |seen| seen.reordered),
            reordered: stats.reordered,
            copies: out.map_or(0, |seen| seen.repeated),
            held: held.map_or(0, Histogram::total),
            held_mean_s: held.map(|held| seconds(held.mean())),
            held_p99_s: held.map(|held| seconds(held.quantile(0.99))),
            held_max_s: held.map(|held| seconds(held.max())),
            delay_p50_s: quantile(&delays, 0.5),
            delay_p95_s: quantile(&delays, 0.95),
            delay_p99_s: quantile(&delays, 0.99),
            delay_max_s: quantile(&delays, 1.0),
            jitter_s: (stats.received > 1).then(|| seconds(stats.jitter)),
        }
    }
}

impl Calls {
    /// Looks what has come since the last time.
    pub(super) fn note(&mut self, world: &World) {
        for call in &mut self.0 {
            let received = call.stats(world).received;
            if received != call.received {
                call.received = received;
                call.first.get_or_insert(world.now());
                call.last = Some(world.now());
            }
        }
    }

    pub(super) fn are_done(&self, world: &World) -> bool {
        self.0.iter().all(|call| call.is_done(world))
    }

    /// Bytes that have arrived.
    pub(super) fn bytes(&self, world: &World) -> u64 {
        self.0.iter().map(|call| call.stats(world).bytes).sum()
    }

    /// When the first and the last datagram came.
    pub(super) fn first_and_last(&self) -> [Option<Instant>; 2] {
        let all = self.0.iter();
        let first = all.clone().filter_map(|call| call.first).min();
        [first, all.filter_map(|call| call.last).max()]
    }

    /// What became of the datagrams.
    pub(super) fn units(&self, world: &World) -> Units {
        let mut units = Units::default();
        for call in &self.0 {
            let (stats, sent) = (call.stats(world), call.sent(world));
            units.sent += sent;
            units.late += sent.saturating_sub(stats.in_time);
            let delays = stats.delays.iter().copied();
            units.times.extend(delays.map(seconds));
        }
        units
    }

    /// What became of the datagrams of each flow.
    pub(super) fn outcomes(&self, world: &World, nodes: [ProcessId; 2]) -> Vec<DatagramFlow> {
        let all = self.0.iter();
        all.map(|call| call.outcome(world, nodes)).collect()
    }
}
