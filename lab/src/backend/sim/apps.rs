//! A scenario's flows as applications.

use super::network::Built;
use crate::scenario::{FlowKind, Profile, Way};
use anabranch_proto::time::Instant;
use anabranch_sim::app::{
    Amount, Bulk, ChunkSink, Chunks, DatagramSink, DatagramSource, File, Files, Processing,
    Receiver, Request, Requests, Responder,
};
use anabranch_sim::quic::{QuicHost, SessionId};
use anabranch_sim::scene::FIRST;
use anabranch_sim::{ProcessId, World};
use std::time::Duration;

/// A deadline for datagrams that have none.
const NEVER: Duration = Duration::from_secs(1 << 30);

/// Bytes of a chunk of a stripe, unless the scenario says.
const STRIPE_CHUNK: u64 = 10_000;

/// Puts the flows on the hosts.
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
                // A little longer than is measured, so that the end of the flow does not show.
                let amount = Amount::Duration(time + Duration::from_secs(1));
                streams[far] += 1;
                source = source.app(Bulk::new(FIRST, amount, *start));
            }
            FlowKind::Files { count, size, gap } => {
                streams[far] += count;
                let file = |index: u64| File::new(later(*start, gap, index), size);
                source = source.app(Files::new(FIRST, (0..count).map(file).collect(), 1));
            }
            FlowKind::Requests { .. } => {
                // The answers are what flows; so whoever gets them asks.
                sink = sink.app(requests(&flow.kind, *start));
                source = source.app(Responder::default());
            }
            FlowKind::Datagrams {
                size,
                rate,
                duration,
                deadline,
            } => {
                let interval = Duration::from_secs_f64(size as f64 * 8.0 / rate as f64);
                let end = *start + duration;
                let made = DatagramSource::new(FIRST, size as usize, interval, *start, end);
                source = source.app(made);
                sink = sink.app(DatagramSink::new(FIRST, deadline.unwrap_or(NEVER)));
            }
        }
        hosts = if near == 0 {
            [source, sink]
        } else {
            [sink, source]
        };
    }
    let [mut client, mut server] = hosts;
    if streams[0] > 0 {
        client = client.app(Receiver::new(streams[0]));
    }
    if streams[1] > 0 {
        server = server.app(Receiver::new(streams[1]));
    }
    (client, server)
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

/// A file in chunks over several connections per path, dealt out as the scheduler's name says.
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
    if built.flows_backward() {
        (client.app(ChunkSink::new(bytes)), server.app(chunks))
    } else {
        (client.app(chunks), server.app(ChunkSink::new(bytes)))
    }
}

/// Turns in a round for each path of the scenario: those of the weighted scheduler, else one.
pub(super) fn weights(built: &Built<'_>) -> Vec<u32> {
    let paths = built.scenario.network.paths.iter().enumerate();
    let paths: Vec<(usize, u32)> = paths.map(|(index, path)| (index, path.weight)).collect();
    let scheduler = built.scenario.transport.scheduler.as_ref();
    crate::engine::turns(scheduler.map(ToString::to_string).as_deref(), &paths)
}

/// Application bytes a host has got so far.
pub(super) fn delivered(world: &World, host: ProcessId) -> u64 {
    let host = world.process::<QuicHost>(host);
    let streams: u64 = host
        .all::<Receiver>()
        .map(|receiver| receiver.total().bytes)
        .sum();
    let chunks: u64 = host
        .all::<ChunkSink>()
        .map(|sink| sink.stats().delivered)
        .sum();
    let datagrams: u64 = host
        .all::<DatagramSink>()
        .map(|sink| sink.stats().bytes)
        .sum();
    let answers: u64 = host
        .all::<Requests>()
        .flat_map(Requests::history)
        .map(|exchange| exchange.received)
        .sum();
    streams + chunks + datagrams + answers
}

/// When a host got its first and its last byte.
pub(super) fn first_and_last(world: &World, host: ProcessId) -> (Option<Instant>, Option<Instant>) {
    let host = world.process::<QuicHost>(host);
    let mut first: Vec<Instant> = Vec::new();
    let mut last: Vec<Instant> = Vec::new();
    for receiver in host.all::<Receiver>() {
        first.extend(receiver.total().first_byte);
        last.extend(receiver.total().last_byte);
    }
    last.extend(host.all::<ChunkSink>().filter_map(|sink| sink.stats().last));
    for exchange in host.all::<Requests>().flat_map(Requests::history) {
        first.extend(exchange.first_byte);
        last.extend(exchange.finished);
    }
    (first.into_iter().min(), last.into_iter().max())
}

/// Times of the units of all flows in seconds, and how many were late or lost.
pub(super) fn units(world: &World, [from, to]: [ProcessId; 2]) -> (Vec<f64>, u64) {
    let (source, sink) = (
        world.process::<QuicHost>(from),
        world.process::<QuicHost>(to),
    );
    let (mut times, mut late) = (Vec::new(), 0);
    for files in source.all::<Files>() {
        for receiver in sink.all::<Receiver>() {
            let done = files
                .completions(receiver, FIRST)
                .filter_map(|(_, time)| time);
            times.extend(done.map(|time| time.as_secs_f64()));
        }
    }
    for exchange in sink.all::<Requests>().flat_map(Requests::history) {
        // Waiting for the turn counts: the person asked then.
        let done = exchange.finished.map(|at| at.since(exchange.request.at));
        times.extend(done.map(|time| time.as_secs_f64()));
    }
    let sent: u64 = source
        .all::<DatagramSource>()
        .map(DatagramSource::sent)
        .sum();
    for datagrams in sink.all::<DatagramSink>() {
        let stats = datagrams.stats();
        late += sent.saturating_sub(stats.in_time);
        times.extend(stats.delays.iter().map(Duration::as_secs_f64));
    }
    (times, late)
}
