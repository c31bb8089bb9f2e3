//! Contenders that speak TCP: over one path, or through a bond or a tunnel of several.
//!
//! ```text
//! tcp              client ==path== server
//! bonding, tunnel  host -- client ==paths== server -- host      client and server are gateways
//! ```
//! Each flow has a connection of its own, and its exchanges follow one another: a request waits for
//! the answer to the one before. Flows of datagrams, which a tunnel carries too, are [`Calls`].

use super::calls::{self, Calls};
use super::network::Built;
use super::{Contest, Progress, apps, measure};
use crate::results::{Bin, Outcome, PathOutcome, Status};
use crate::scenario::{Flow, FlowKind, Kind, Way};
use anabranch_proto::spec::SpecError;
use anabranch_proto::time::Instant;
use anabranch_schedulers::Names;
use anabranch_sim::bond::{Bond, BondConfig, BondLink, OVERHEAD, Striping};
use anabranch_sim::profile;
use anabranch_sim::record::STEP;
use anabranch_sim::tcp::{
    Connect, Demand, ENDLESS, Exchange, TcpConfig, TcpHost, TcpId, TcpReport,
};
use anabranch_sim::{FlowStats, ProcessId, World};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Ports of the first flow, at the requesting and at the serving end.
const PORTS: [u16; 2] = [40_000, 5_000];

/// The port of a bond's tunnels.
const TUNNEL_PORT: u16 = 1194;

/// Content of a segment that fills a packet of 1500 bytes.
const SEGMENT: u64 = 1460;

/// Header bytes that a packet size does not count (IP and UDP), and the headers of IP and TCP.
const HEADERS: [u64; 2] = [28, 40];

/// The assumed rate of a link without a limit, in bits per second.
const UNLIMITED: u64 = 10_000_000_000;

/// The shortest request of a connection; uploads are requests.
const LEAST: u64 = 16;

/// One flow's connection.
#[derive(Debug)]
struct Lane {
    flow: usize,
    /// The host that sends the requests, and the one that receives the data; 0 is the client.
    asker: usize,
    sink: usize,
    id: TcpId,
    port: u16,
    /// Bytes of each unit, and the number of units.
    unit: u64,
    count: u64,
    received: u64,
    first: Option<Instant>,
    /// When each unit was complete.
    finished: Vec<Instant>,
}

/// The flows of a run over TCP.
#[derive(Debug)]
pub(super) struct Tcp {
    hosts: [ProcessId; 2],
    lanes: Vec<Lane>,
    calls: Calls,
    /// The nodes of a tunnel.
    gates: Option<[ProcessId; 2]>,
    way: Way,
    step: Duration,
    next: Instant,
    /// The bins so far, and the totals at the last sample.
    bins: Vec<Bin>,
    before: (u64, Vec<FlowStats>),
}

/// Installs the flows on the hosts, and the bond or tunnel if there is one.
pub(super) fn install(built: &mut Built<'_>, names: &Names) -> Result<Tcp, String> {
    let kind = built.scenario.transport.kind;
    let config = config(built, names).map_err(|error| error.to_string())?;
    let seed = built.world.seed();
    let mut hosts = ["client", "server"].map(|name| TcpHost::new(seed.derive(name, 0)));
    let (nodes, addresses) = if let Some(inside) = built.inside {
        let address = |(node, link)| built.world.address(node, link);
        (inside.map(|(node, _)| node), inside.map(address))
    } else {
        let (client, server) = built.ends(built.scenario.transport.paths[0]);
        ([built.nodes[0], built.nodes[1]], [client, server])
    };
    let mut lanes = Vec::new();
    let ports = |index: usize| PORTS.map(|first| first + index as u16);
    for (index, flow) in built.scenario.flows.iter().enumerate() {
        if matches!(flow.kind, FlowKind::Datagrams { .. }) {
            continue;
        }
        let (asker, [near, port]) = (asker(flow), ports(index));
        hosts[1 - asker] = std::mem::replace(&mut hosts[1 - asker], TcpHost::new(seed))
            .listen(port, config.clone());
        let id = hosts[asker].connect(Connect {
            from: SocketAddr::new(addresses[asker], near),
            to: SocketAddr::new(addresses[1 - asker], port),
            at: built.starts[index],
            demand: Box::new(Wishes::of(flow, built.starts[index])),
            until: None,
            config: config.clone(),
        });
        lanes.push(Lane::of(flow, index, id)?);
    }
    let [client, server] = hosts;
    let hosts = [(nodes[0], client), (nodes[1], server)]
        .map(|(node, host)| built.world.attach(node, Box::new(host)));
    let ends = |index: usize| {
        let ports = ports(index);
        [0, 1].map(|side| SocketAddr::new(addresses[side], ports[side]))
    };
    let calls = calls::install(built, &ends);
    let mut gates = None;
    match kind {
        Kind::Bonding | Kind::Mlppp => bond(built),
        Kind::Tunnel => {
            gates = Some(super::tunnel::install(built, names, |flow| ports(flow)[1])?);
        }
        _ => {}
    }
    Ok(Tcp {
        hosts,
        lanes,
        calls,
        gates,
        way: built.way(),
        step: built.scenario.record.series.unwrap_or(STEP),
        next: Instant::ZERO,
        bins: Vec::new(),
        before: (
            0,
            vec![FlowStats::default(); built.scenario.network.paths.len()],
        ),
    })
}

fn config(built: &Built<'_>, names: &Names) -> Result<TcpConfig, SpecError> {
    let transport = &built.scenario.transport;
    let settings = &transport.settings;
    let usual = TcpConfig::default();
    // A tunnel's is that of the connection between its nodes: hosts know nothing of it.
    let congestion = transport.congestion.as_ref();
    let congestion = congestion.filter(|_| transport.kind != Kind::Tunnel);
    let packet = settings.packet_size.map(|bytes| bytes + HEADERS[0]);
    let mss = packet.map_or(SEGMENT, |packet| packet - HEADERS[1]);
    let most = match transport.kind {
        Kind::Bonding | Kind::Mlppp => SEGMENT - u64::from(OVERHEAD),
        _ => SEGMENT,
    };
    let delayed_ack = match settings.ack_every {
        Some(1) => None,
        _ => settings.ack_delay.or(usual.delayed_ack),
    };
    let (own, window) = (usual.congestion.name(), settings.initial_window);
    Ok(TcpConfig {
        mss: mss.min(most) as u16,
        congestion: profile::hosts_controller(names, congestion, own, window)?,
        sack: settings.sack.unwrap_or(usual.sack),
        delayed_ack,
        receive_buffer: settings.receive_buffer.unwrap_or(usual.receive_buffer),
        send_buffer: settings.send_buffer.unwrap_or(usual.send_buffer),
        ..usual
    })
}

/// Installs the two ends of the bond on the gateways.
fn bond(built: &mut Built<'_>) {
    let transport = &built.scenario.transport;
    let scheduler = transport.scheduler.as_ref().map(|spec| spec.name.as_str());
    let weights = apps::weights(built);
    let weights = transport.paths.iter().map(|path| weights[*path]).collect();
    let striping = match (transport.kind, transport.settings.chunk, scheduler) {
        (Kind::Mlppp, Some(bytes), _) => Striping::EqualFragments(bytes as u32),
        (Kind::Mlppp, None, _) => Striping::Proportional,
        (_, _, Some("weighted")) => Striping::Weighted(weights),
        (_, _, Some("delivery-delay" | "ecf")) => Striping::EarliestArrival,
        _ => Striping::RoundRobin,
    };
    for (side, way) in [Way::Forward, Way::Backward].into_iter().enumerate() {
        let paths = transport.paths.clone();
        let links = paths.into_iter().map(|path| tunnel(built, path, way));
        let links = links.collect();
        let end = Bond::new(BondConfig::new(striping.clone()), links);
        built.world.attach(built.nodes[side], Box::new(end));
    }
}

fn tunnel(built: &mut Built<'_>, path: usize, way: Way) -> BondLink {
    let (client, server) = built.ends(path);
    let (from, to) = match way {
        Way::Forward => (client, server),
        Way::Backward => (server, client),
    };
    let hops = built.world.way(from, to);
    let delay = |(link, line)| built.world.link_config(link, line).delay;
    BondLink {
        local: SocketAddr::new(from, TUNNEL_PORT),
        remote: SocketAddr::new(to, TUNNEL_PORT),
        rate: built.scenario.path_rate(path, way).unwrap_or(UNLIMITED),
        latency: hops.into_iter().map(delay).sum(),
    }
}

/// The exchanges that a flow's requesting end wants, in order.
#[derive(Debug)]
struct Wishes(VecDeque<(Instant, Exchange)>);

impl Wishes {
    fn of(flow: &Flow, start: Instant) -> Self {
        let exchange = |bytes| match flow.way {
            Way::Forward => Exchange::upload(bytes),
            Way::Backward => Exchange::download(bytes),
        };
        Self(match flow.kind {
            FlowKind::BulkBytes(bytes) => [(start, exchange(bytes))].into(),
            FlowKind::BulkTime(_) => [(start, exchange(ENDLESS))].into(),
            FlowKind::Files { count, size, gap } => (0..count)
                .map(|index| (apps::later(start, gap, index), exchange(size)))
                .collect(),
            FlowKind::Requests {
                count,
                size,
                answer,
                every,
            } => {
                let asked = Exchange {
                    request: size,
                    response: answer,
                };
                (0..count)
                    .map(|index| (apps::later(start, every, index), asked))
                    .collect()
            }
            FlowKind::Datagrams { .. } => VecDeque::new(),
        })
    }
}

impl Demand for Wishes {
    fn next(&mut self, _: Instant) -> Option<(Instant, Exchange)> {
        self.0.pop_front()
    }
}

/// The host that receives a flow's data; 0 is the client.
fn sink(flow: &Flow) -> usize {
    usize::from(flow.way == Way::Forward)
}

/// The host that opens its connection.
fn asker(flow: &Flow) -> usize {
    match flow.kind {
        // The answers are the data of this flow, so the receiving host sends the requests.
        FlowKind::Requests { .. } => sink(flow),
        _ => 0,
    }
}

impl Lane {
    fn of(flow: &Flow, index: usize, id: TcpId) -> Result<Self, String> {
        let (asker, sink) = (asker(flow), sink(flow));
        let (unit, count) = match flow.kind {
            FlowKind::BulkBytes(bytes) => (bytes, 1),
            FlowKind::BulkTime(_) => (ENDLESS, 0),
            FlowKind::Files { count, size, .. } => (size, count),
            FlowKind::Requests { count, answer, .. } => (answer, count),
            FlowKind::Datagrams { .. } => return Err("datagrams over TCP".into()),
        };
        let uploads = asker != sink;
        Ok(Self {
            flow: index,
            asker,
            sink,
            id,
            port: PORTS[1] + index as u16,
            unit: if uploads { unit.max(LEAST) } else { unit },
            count,
            received: 0,
            first: None,
            finished: Vec::new(),
        })
    }

    /// The report of the end that receives the data; `None` before its connection exists.
    fn sink_report(&self, world: &World, hosts: [ProcessId; 2]) -> Option<TcpReport> {
        let sink = world.process::<TcpHost>(hosts[self.sink]);
        if self.sink == self.asker {
            return Some(sink.report(self.id));
        }
        sink.reports()
            .find(|report| report.local.port() == self.port)
    }

    fn source_report(&self, world: &World, hosts: [ProcessId; 2]) -> Option<TcpReport> {
        let source = world.process::<TcpHost>(hosts[1 - self.sink]);
        if self.sink != self.asker {
            return Some(source.report(self.id));
        }
        source
            .reports()
            .find(|report| report.local.port() == self.port)
    }

    fn note(&mut self, world: &World, hosts: [ProcessId; 2]) {
        let report = self.sink_report(world, hosts);
        let received = report.map_or(0, |report| report.received_bytes);
        if received == self.received {
            return;
        }
        self.received = received;
        self.first.get_or_insert(world.now());
        while (self.finished.len() as u64) < self.count
            && received >= self.unit * (self.finished.len() as u64 + 1)
        {
            self.finished.push(world.now());
        }
    }

    fn is_done(&self) -> bool {
        self.finished.len() as u64 == self.count
    }
}

impl Tcp {
    /// Runs while `wanted` holds, at most until `end`; returns whether it ceased to hold.
    fn run_while(
        &mut self,
        built: &mut Built<'_>,
        end: Instant,
        wanted: fn(&[Lane], &Calls, &World) -> bool,
    ) -> bool {
        if self.next <= built.world.now() {
            self.next = built.world.now() + self.step;
        }
        loop {
            let stop = self.next.min(end);
            let (lanes, calls, hosts) = (&mut self.lanes, &mut self.calls, self.hosts);
            let ended = built.world.run_while_until(stop, |world| {
                for lane in &mut *lanes {
                    lane.note(world, hosts);
                }
                calls.note(world);
                wanted(lanes, calls, world)
            });
            if ended || built.halt.load(Ordering::Relaxed) {
                return ended;
            }
            if stop == self.next {
                self.sample(built);
                self.next += self.step;
            }
            if stop == end {
                return !wanted(&self.lanes, &self.calls, &built.world);
            }
        }
    }

    fn sample(&mut self, built: &Built<'_>) {
        if built.scenario.record.series.is_none() {
            return;
        }
        let t_s = measure::seconds(built.world.now().since(Instant::ZERO));
        let received = self.received(&built.world);
        let mut whole = Bin {
            t_s,
            goodput_bytes: received - self.before.0,
            ..Bin::default()
        };
        self.before.0 = received;
        for lane in &self.lanes {
            let Some(source) = lane.source_report(&built.world, self.hosts) else {
                continue;
            };
            whole.inflight_bytes += source.in_flight;
            whole.cwnd_bytes += source.window;
            let rtt = Some(source.smoothed_rtt).filter(|rtt| !rtt.is_zero());
            whole.srtt_s = whole.srtt_s.or(rtt.map(measure::seconds));
        }
        for (path, before) in self.before.1.iter_mut().enumerate() {
            let flow = built.flow_stats(path, self.way);
            let packets = flow.packets.saturating_sub(before.packets);
            let delays = flow.delay_total_ns.saturating_sub(before.delay_total_ns);
            let bin = Bin {
                t_s,
                path: path as u32 + 1,
                sent_bytes: flow.bytes_sent.saturating_sub(before.bytes_sent),
                delivered_bytes: flow.bytes.saturating_sub(before.bytes),
                owd_s: (packets > 0).then(|| delays as f64 / packets as f64 / 1e9),
                ..Bin::default()
            };
            *before = flow;
            whole.sent_bytes += bin.sent_bytes;
            whole.delivered_bytes += bin.delivered_bytes;
            self.bins.push(bin);
        }
        self.bins.push(whole);
    }

    fn received(&self, world: &World) -> u64 {
        let lanes: u64 = self.lanes.iter().map(|lane| lane.received).sum();
        lanes + self.calls.bytes(world)
    }

    /// The outcome of the run.
    pub(super) fn outcome(mut self, built: &mut Built<'_>, progress: &Progress) -> Outcome {
        self.sample(built);
        let begin = built.first_start();
        let since = |at: Instant| measure::seconds(at.since(begin));
        let lanes = self.lanes.iter();
        let called = self.calls.first_and_last();
        let first = lanes.clone().filter_map(|lane| lane.first);
        let first = first.chain(called[0]).min();
        let last = lanes.clone().filter_map(|lane| lane.finished.last()).max();
        let last = last.copied().filter(|_| progress.done);
        let completion = last.filter(|_| progress.cold.is_none());
        let last = last.max(called[1].filter(|_| progress.done));
        let sinks = lanes
            .clone()
            .filter_map(|lane| lane.sink_report(&built.world, self.hosts));
        let sinks: Vec<TcpReport> = sinks.collect();
        let mut times = self.unit_times(built);
        let of_datagrams = self.calls.units(&built.world);
        times.extend(of_datagrams.times);
        let datagrams = self
            .gates
            .map(|gates| self.calls.outcomes(&built.world, gates));
        let datagrams = datagrams.unwrap_or_default();
        let reordered = datagrams.iter().map(|flow| flow.reordered);
        let bytes = self.received(&built.world);
        let opened = sinks.iter().filter_map(|report| report.opened).min();
        let held = sinks.iter().map(|report| report.received.peak_held_bytes);
        let again = sinks.iter().map(|report| report.received.duplicate_bytes);
        let mut outcome = Outcome {
            status: match (sinks.iter().all(|report| report.intact), progress.done) {
                (false, _) => Status::Failed,
                (true, true) => Status::Ok,
                (true, false) => Status::Timeout,
            },
            reason: if progress.done {
                String::new()
            } else {
                "the limit of virtual time was reached".to_owned()
            },
            bytes,
            handshake_s: opened.map(since),
            first_byte_s: first.map(since),
            completion_s: completion.map(since),
            goodput_bps: measure::goodput(progress, bytes, last, built.world.now()),
            reseq_peak_bytes: Some(held.sum()),
            duplicate_bytes: Some(again.sum()),
            sent_units: Some(of_datagrams.sent),
            late_units: of_datagrams.late,
            reordered_units: reordered.reduce(|sum, one| sum + one),
            events: Some(built.world.events()),
            packets: Some(measure::packets(built)),
            trace_hash: Some(format!("{:016x}", built.world.trace_hash())),
            paths: self.paths(built),
            datagrams,
            series: self.bins,
            ..Outcome::default()
        };
        outcome.add_units(times, built.scenario.record.units);
        outcome
    }

    /// How long each file or request took, in seconds, with the time that a request waited for its
    /// turn.
    fn unit_times(&self, built: &Built<'_>) -> Vec<f64> {
        let mut times = Vec::new();
        for lane in &self.lanes {
            let asker = built.world.process::<TcpHost>(self.hosts[lane.asker]);
            let start = built.starts[lane.flow];
            match built.scenario.flows[lane.flow].kind {
                FlowKind::Files { gap, .. } => {
                    // A file starts only when the requesting end has seen the one before complete.
                    let before = asker.completions(lane.id).iter().map(|done| done.ended);
                    let before = std::iter::once(start).chain(before);
                    let begun = (0..).zip(before).map(|(index, before)| {
                        let wanted = apps::later(start, gap, index);
                        wanted.max(before)
                    });
                    let done = lane.finished.iter().zip(begun);
                    times.extend(done.map(|(end, begun)| measure::seconds(end.since(begun))));
                }
                FlowKind::Requests { every, .. } => {
                    let wanted = (0..).map(|index| apps::later(start, every, index));
                    let done = lane.finished.iter().zip(wanted);
                    times.extend(done.map(|(end, wanted)| measure::seconds(end.since(wanted))));
                }
                _ => {}
            }
        }
        times
    }

    fn paths(&self, built: &mut Built<'_>) -> Vec<PathOutcome> {
        let mut all = measure::flow_outcomes(built);
        for (path, one) in all.iter_mut().enumerate() {
            let (client, server) = built.ends(path);
            let hops = match self.way {
                Way::Forward => built.world.way(client, server),
                Way::Backward => built.world.way(server, client),
            };
            let hops = hops
                .into_iter()
                .map(|(link, line)| built.world.link_stats(link, line));
            let lost = hops.fold((0, 0), |(full, random), link| {
                (
                    full + link.dropped_full + link.dropped_early,
                    random + link.lost,
                )
            });
            (one.lost_queue, one.lost_random) = (Some(lost.0), Some(lost.1));
        }
        all
    }
}

impl Contest for Tcp {
    fn run_until(&mut self, built: &mut Built<'_>, end: Instant) {
        self.run_while(built, end, |_, _, _| true);
    }

    fn run_until_done(&mut self, built: &mut Built<'_>, end: Instant) -> bool {
        self.run_while(built, end, |lanes, calls, world| {
            !lanes.iter().all(Lane::is_done) || !calls.are_done(world)
        })
    }

    fn delivered(&self, built: &Built<'_>) -> u64 {
        self.received(&built.world)
    }
}
