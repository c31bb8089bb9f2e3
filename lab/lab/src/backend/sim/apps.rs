//! A scenario's flows as applications.

use super::network::Built;
use super::ordered::Ordered;
use crate::scenario::{Flow, FlowKind, Profile, Way};
use anabranch_proto::time::Instant;
use anabranch_sim::app::{
    Amount, Bulk, ChunkSink, Chunks, DatagramSource, File, Files, Processing, Receiver, Request,
    Requests, Responder,
};
use anabranch_sim::quic::{QuicHost, SessionId};
use anabranch_sim::scene::FIRST;
use anabranch_sim::{ProcessId, World};
use std::time::Duration;

/// The deadline of datagrams that have none.
pub(super) const NEVER: Duration = Duration::from_secs(1 << 30);

/// Bytes of a chunk of a stripe, unless the scenario sets it.
const STRIPE_CHUNK: u64 = 10_000;

/// Installs the flows on the hosts.
pub(super) fn install(
    built: &Built<'_>,
    lanes: &[(SessionId, usize)],
    client: QuicHost,
    server: QuicHost,
) -> (QuicHost, QuicHost) {
    if built.scenario.transport.profile == Profile::Stripe {
        return install_stripe(built, lanes, client, server);
    }
    let (mut hosts, mut streams) = ([client, server], [0, 0]);
    let mut sinks: [Option<(u16, Ordered)>; 2] = [None, None];
    for (flow, start) in built.scenario.flows.iter().zip(&built.starts) {
        let (near, far) = match flow.way {
            Way::Forward => (0, 1),
            Way::Backward => (1, 0),
        };
        let [client, server] = hosts;
        let (mut source, mut sink) = if near == 0 {
            (client, server)
        } else {
            (server, client)
        };
        match flow.kind {
            FlowKind::BulkBytes(bytes) => {
                streams[far] += 1;
                source = source.app(Bulk::new(FIRST, Amount::Bytes(bytes), *start));
            }
            FlowKind::BulkTime(time) => {
                // The last flow runs a little longer than is measured, so that the end of its
                // transfer does not affect the figures.
                let last = built.over_at() == Some(*start + time);
                let more = Duration::from_secs(u64::from(last));
                let amount = Amount::Duration(time + more);
                streams[far] += 1;
                source = source.app(Bulk::new(FIRST, amount, *start));
            }
            FlowKind::Files { count, size, gap } => {
                streams[far] += count;
                let file = |index: u64| File::new(later(*start, gap, index), size);
                source = source.app(Files::new(FIRST, (0..count).map(file).collect(), 1));
            }
            FlowKind::Requests { .. } => {
                // The answers are the data of this flow, so the receiving host sends the requests.
                sink = sink.app(requests(&flow.kind, *start));
                source = source.app(Responder::default());
            }
            FlowKind::Datagrams { deadline, .. } => {
                // One sink reads the datagrams of all flows and tells them apart by number.
                let (late, wait) = (deadline.unwrap_or(NEVER), flow.marks.resequence);
                let (number, into) = match sinks[far].take() {
                    None => (0, Ordered::new(FIRST, late, wait)),
                    Some((last, into)) => (last + 1, into.and(last + 1, late, wait)),
                };
                sinks[far] = Some((number, into));
                source = source.app(datagrams(flow, *start, number));
            }
        }
        hosts = if near == 0 {
            [source, sink]
        } else {
            [sink, source]
        };
    }
    let ([client, server], [sink, other]) = (hosts, sinks);
    (
        with_receivers(client, sink, streams[0]),
        with_receivers(server, other, streams[1]),
    )
}

/// A host that reads what arrives: datagrams, and this many streams.
fn with_receivers(mut host: QuicHost, sink: Option<(u16, Ordered)>, streams: u64) -> QuicHost {
    if let Some((_, sink)) = sink {
        host = host.app(sink);
    }
    if streams > 0 {
        host = host.app(Receiver::new(streams).verify());
    }
    host
}

/// The datagrams of a flow, which has this number among the flows in its direction.
fn datagrams(flow: &Flow, start: Instant, number: u16) -> DatagramSource {
    let FlowKind::Datagrams {
        size,
        every,
        duration,
        deadline,
    } = flow.kind
    else {
        unreachable!("the flow is one of datagrams");
    };
    DatagramSource::new(FIRST, size as usize, every, start, start + duration)
        .numbered(number)
        .deadline(deadline)
        .flows(flow.marks.flows)
        .critical(flow.marks.critical)
}

/// The requests of a flow.
fn requests(kind: &FlowKind, start: Instant) -> Requests {
    let mut requests = Vec::new();
    if let FlowKind::Requests {
        count,
        size,
        answer,
        every,
    } = *kind
    {
        let request = |index: u64| Request {
            at: later(start, every, index),
            up: size,
            down: answer,
        };
        requests.extend((0..count).map(request));
    }
    Requests::new(FIRST, requests, usize::MAX)
}

pub(super) fn later(start: Instant, gap: Duration, index: u64) -> Instant {
    start + gap.saturating_mul(index.min(u64::from(u32::MAX)) as u32)
}

/// Installs a file that is sent in chunks over several connections per path, distributed as the
/// scheduler's name says.
fn install_stripe(
    built: &Built<'_>,
    lanes: &[(SessionId, usize)],
    client: QuicHost,
    server: QuicHost,
) -> (QuicHost, QuicHost) {
    let transport = &built.scenario.transport;
    let weights = weights(built);
    let lanes: Vec<(SessionId, u32)> = lanes
        .iter()
        .map(|(session, path)| (*session, weights[*path]))
        .collect();
    let bytes = built
        .scenario
        .flows
        .iter()
        .filter_map(|flow| flow.kind.bytes())
        .sum();
    let chunk = transport.settings.chunk.unwrap_or(STRIPE_CHUNK);
    let processing = transport.settings.processing.unwrap_or(false);
    let chunks =
        Chunks::new(&lanes, bytes, chunk).processing(processing.then_some(Processing::BTH));
    let sink = ChunkSink::new(bytes).verify(chunk);
    if built.flows_backward() {
        (client.app(sink), server.app(chunks))
    } else {
        (client.app(chunks), server.app(sink))
    }
}

/// The turns of each path in a round: the weighted scheduler's weights, else one.
pub(super) fn weights(built: &Built<'_>) -> Vec<u32> {
    let paths = built.scenario.network.paths.iter().enumerate();
    let paths: Vec<(usize, u32)> = paths
        .map(|(index, path)| (index, path.usage.weight))
        .collect();
    let scheduler = built.scenario.transport.scheduler.as_ref();
    crate::engine::turns(scheduler, &paths)
}

/// Application bytes that both hosts have received so far, since flows may go both ways.
pub(super) fn delivered(world: &World, hosts: [ProcessId; 2]) -> u64 {
    hosts.iter().map(|host| delivered_to(world, *host)).sum()
}

fn delivered_to(world: &World, host: ProcessId) -> u64 {
    let host = world.process::<QuicHost>(host);
    let streams = host
        .all::<Receiver>()
        .map(|receiver| receiver.total().bytes);
    let chunks = host.all::<ChunkSink>().map(|sink| sink.stats().delivered);
    let datagrams = host.all::<Ordered>().flat_map(Ordered::all);
    let datagrams = datagrams.map(|(_, stats)| stats.bytes);
    let answers = host.all::<Requests>().flat_map(Requests::history);
    let answers = answers.map(|exchange| exchange.received);
    streams.chain(chunks).chain(datagrams).chain(answers).sum()
}

/// Bytes that arrived with other content than was sent.
pub(super) fn corrupt(world: &World, hosts: [ProcessId; 2]) -> u64 {
    let of = |host: &ProcessId| -> u64 {
        let host = world.process::<QuicHost>(*host);
        let streams = host
            .all::<Receiver>()
            .map(|receiver| receiver.total().corrupt);
        let chunks = host.all::<ChunkSink>().map(|sink| sink.stats().corrupt);
        let answers = host.all::<Requests>().flat_map(Requests::history);
        let answers = answers.map(|exchange| exchange.corrupt);
        streams.chain(chunks).chain(answers).sum()
    };
    hosts.iter().map(of).sum()
}

/// When the first and the last byte of all flows arrived.
pub(super) fn first_and_last(
    world: &World,
    hosts: [ProcessId; 2],
) -> (Option<Instant>, Option<Instant>) {
    let mut first: Vec<Instant> = Vec::new();
    let mut last: Vec<Instant> = Vec::new();
    for host in hosts.map(|host| world.process::<QuicHost>(host)) {
        for receiver in host.all::<Receiver>() {
            first.extend(receiver.total().first_byte);
            last.extend(receiver.total().last_byte);
        }
        last.extend(host.all::<ChunkSink>().filter_map(|sink| sink.stats().last));
        for exchange in host.all::<Requests>().flat_map(Requests::history) {
            first.extend(exchange.first_byte);
            last.extend(exchange.finished);
        }
    }
    (first.into_iter().min(), last.into_iter().max())
}

/// What became of the units of all flows.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// How long each took that arrived, in seconds.
    pub(super) times: Vec<f64>,
    /// Datagrams that were to be sent.
    pub(super) sent: u64,
    /// Of these, how many were late or lost.
    pub(super) late: u64,
}

/// What became of the units of all flows.
pub(super) fn units(world: &World, [one, other]: [ProcessId; 2]) -> Units {
    let mut units = Units::default();
    for (from, to) in [(one, other), (other, one)] {
        units_to(world, from, to, &mut units);
    }
    units
}

/// Datagrams of all flows that were read after later ones; `None` if no flow has datagrams.
pub(super) fn reordered(world: &World, hosts: [ProcessId; 2]) -> Option<u64> {
    let hosts = hosts.iter().map(|host| world.process::<QuicHost>(*host));
    let counts = hosts
        .flat_map(QuicHost::all::<Ordered>)
        .flat_map(|sink| sink.all().map(|(_, stats)| stats.reordered));
    counts.reduce(|sum, count| sum + count)
}

/// Adds the units sent in this direction.
fn units_to(world: &World, from: ProcessId, to: ProcessId, units: &mut Units) {
    let times = &mut units.times;
    let (source, sink) = (
        world.process::<QuicHost>(from),
        world.process::<QuicHost>(to),
    );
    for files in source.all::<Files>() {
        for receiver in sink.all::<Receiver>() {
            let done = files
                .completions(receiver, FIRST)
                .filter_map(|(_, time)| time);
            times.extend(done.map(|time| time.as_secs_f64()));
        }
    }
    for exchange in sink.all::<Requests>().flat_map(Requests::history) {
        // A request's time includes the wait for its turn, since its user asked then.
        let done = exchange.finished.map(|at| at.since(exchange.request.at));
        times.extend(done.map(|time| time.as_secs_f64()));
    }
    let sent = |flow: u16| -> u64 {
        let sources = source.all::<DatagramSource>();
        let sources = sources.filter(|source| source.number() == flow);
        sources.map(DatagramSource::sent).sum()
    };
    for (flow, stats) in sink.all::<Ordered>().flat_map(Ordered::all) {
        let sent = sent(flow);
        units.sent += sent;
        units.late += sent.saturating_sub(stats.in_time);
        times.extend(stats.delays.iter().map(Duration::as_secs_f64));
    }
}
