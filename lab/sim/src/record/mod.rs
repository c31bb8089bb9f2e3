//! What is recorded while a connection runs: series, totals, and where the time went.
//!
//! A [`Recorder`] steps the world itself. Between two events nothing changes, so what it observes
//! after each step is exact: series are sampled at equal intervals, blocked time is added up event
//! by event. Observing changes nothing: the trace is the same with and without a recorder.

mod probe;
mod reseq;
#[cfg(test)]
mod tests;

pub use probe::{DecisionRow, PacketKind, PacketRow, Probe, Watch};
pub use reseq::{Histogram, PathBytes, Resequencing};

use crate::quic::{QuicHost, Session, SessionId};
use crate::world::FlowStats;
use crate::{ProcessId, World};
use anabranch_link::LinkStats;
use anabranch_proto::connection::{Connection, ConnectionStats, PathStats};
use anabranch_proto::path::PathCounters;
use anabranch_proto::path::PathState;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The default time between samples.
pub const STEP: Duration = Duration::from_millis(100);

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The host.
    pub host: ProcessId,
    /// Its connection.
    pub session: SessionId,
}

/// Time during which data could not be sent although a path had room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocked {
    /// The receiver's window was used up.
    pub receive_window: Duration,
    /// The send buffer was full of unacknowledged data.
    pub send_buffer: Duration,
    /// The scheduler chose to wait.
    pub scheduler: Duration,
}

impl Blocked {
    /// The sum of these times.
    pub fn total(&self) -> Duration {
        self.receive_window + self.send_buffer + self.scheduler
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            receive_window: self.receive_window.saturating_sub(before.receive_window),
            send_buffer: self.send_buffer.saturating_sub(before.send_buffer),
            scheduler: self.scheduler.saturating_sub(before.scheduler),
        }
    }
}

/// One interval of one path, or of the whole connection. Byte counts of transfers cover the
/// interval; all other values are those at its end.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SeriesRow {
    /// The end of the interval.
    pub at: Instant,
    /// The path; `None` for the connection.
    pub path: Option<PathId>,
    /// UDP payload sent.
    pub sent_bytes: u64,
    /// UDP payload received at the far end.
    pub delivered_bytes: u64,
    /// Stream and datagram bytes. For a path: those it was the first to deliver. For the
    /// connection: those the application received in order.
    pub goodput_bytes: u64,
    /// Stream bytes that the sender's application received in order from the other direction; only
    /// for the connection.
    pub returned_bytes: u64,
    /// Bytes acknowledged.
    pub acked_bytes: u64,
    /// Bytes declared lost.
    pub lost_bytes: u64,
    /// Stream bytes sent again.
    pub retransmitted_bytes: u64,
    /// Stream bytes sent as copies.
    pub copied_bytes: u64,
    /// Stream bytes moved away from a doubted path.
    pub reinjected_bytes: u64,
    /// Stream bytes received that had already arrived.
    pub duplicate_bytes: u64,
    /// Bytes in flight.
    pub inflight_bytes: u64,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Smoothed RTT; `None` for the connection.
    pub srtt: Option<Duration>,
    /// Mean one-way delay of the packets that arrived; `None` if none did.
    pub owd: Option<Duration>,
    /// Bytes in the queues along the way.
    pub queue_bytes: u64,
    /// The most bytes that waited for earlier bytes; only for the connection.
    pub reseq_bytes: u64,
    /// The most separate runs of such bytes; only for the connection.
    pub reseq_runs: u64,
    /// Bytes received but not yet read by the application, in order or not; only for the
    /// connection.
    pub receive_buffer_bytes: u64,
    /// Flow-control credit; only for the connection.
    pub flow_credit_bytes: u64,
    /// Bytes written but not yet acknowledged; only for the connection.
    pub send_buffer_bytes: u64,
    /// Time blocked; only for the connection.
    pub blocked: Blocked,
}

/// One path over the whole run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathTotals {
    /// The path.
    pub path: PathId,
    /// Its latest ends, the sender's first.
    pub ends: (IpAddr, IpAddr),
    /// The sender's counters.
    pub sent: PathCounters,
    /// The receiver's counters.
    pub received: PathCounters,
    /// What the path delivered first, and what it delivered again.
    pub bytes: PathBytes,
    /// What passed between its ends, for all connections.
    pub flow: FlowStats,
    /// Mean of the smoothed RTT over the samples.
    pub srtt_mean: Duration,
    /// The smoothed RTT that 95 % of the samples do not exceed.
    pub srtt_p95: Duration,
    /// Mean of the bytes in queues over the samples.
    pub queue_mean_bytes: f64,
    /// The largest number of bytes in queues in any sample.
    pub queue_max_bytes: u64,
    /// Time in which nothing was sent, at the resolution of samples.
    pub idle: Duration,
    /// Packets dropped on the way because a queue was full, of all senders.
    pub lost_queue: u64,
    /// Packets lost at random on the way, of all senders.
    pub lost_random: u64,
}

/// The whole run of one connection.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Totals {
    /// When the sender's handshake completed.
    pub established: Option<Instant>,
    /// The sender's final statistics.
    pub sender: ConnectionStats,
    /// The receiver's final statistics.
    pub receiver: ConnectionStats,
    /// Time blocked.
    pub blocked: Blocked,
    /// How long bytes waited for earlier bytes.
    pub reseq_waits: Histogram,
    /// The most bytes that waited.
    pub reseq_peak_bytes: u64,
    /// The most separate runs of bytes that waited.
    pub reseq_peak_runs: u64,
    /// Mean number of bytes that waited, over the time since the first arrival.
    pub reseq_mean_bytes: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Before {
    sent: PathCounters,
    received: PathCounters,
    bytes: PathBytes,
    flow: FlowStats,
    connection_goodput: u64,
    connection_returned: u64,
    connection_duplicate: u64,
    blocked: Blocked,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    sent: PathCounters,
    received: PathCounters,
    ends: (IpAddr, IpAddr),
}

/// Records one connection.
#[derive(Debug)]
pub struct Recorder {
    sender: End,
    receiver: End,
    probe: Probe,
    /// The connection's number in the probe.
    connection: usize,
    step: Duration,
    next: Instant,
    rows: Vec<SeriesRow>,
    before: BTreeMap<Option<PathId>, Before>,
    last: BTreeMap<PathId, Last>,
    blocked: Blocked,
    /// The obstacle after the last event, and since when it has existed.
    obstacle: (Option<Obstacle>, Instant),
    totals: Totals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    ReceiveWindow,
    SendBuffer,
}

impl Recorder {
    /// Records what flows from `sender` to `receiver`, with a sample every `step`. The transport
    /// settings of both hosts must use this probe's observers.
    pub fn new(sender: End, receiver: End, probe: Probe, step: Duration) -> Self {
        Self {
            connection: sender.session.0,
            sender,
            receiver,
            probe,
            step: step.max(Duration::from_micros(1)),
            next: Instant::ZERO,
            rows: Vec::new(),
            before: BTreeMap::new(),
            last: BTreeMap::new(),
            blocked: Blocked::default(),
            obstacle: (None, Instant::ZERO),
            totals: Totals::default(),
        }
    }

    /// Runs the world while the condition holds, at most until `end`. Returns whether the condition
    /// ceased to hold.
    pub fn run_while(
        &mut self,
        world: &mut World,
        end: Instant,
        mut condition: impl FnMut(&World) -> bool,
    ) -> bool {
        let before = world.now();
        if self.next <= before {
            self.next = before + self.step;
        }
        while condition(world) {
            let stop = self.next.min(end);
            if world.step_before(stop) {
                self.account(world);
                continue;
            }
            world.run_until(stop);
            self.account(world);
            if stop == self.next {
                self.sample(world);
                self.next += self.step;
            }
            if stop == end {
                return !condition(world);
            }
        }
        true
    }

    /// The series so far.
    pub fn rows(&self) -> &[SeriesRow] {
        &self.rows
    }

    /// The probe.
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// The totals of the connection, after one last sample.
    pub fn totals(&mut self, world: &mut World) -> Totals {
        self.account(world);
        if self.rows.last().is_none_or(|row| row.at < world.now()) {
            self.sample(world);
        }
        // A server that no packet reached has no session.
        let sessions = world.process::<QuicHost>(self.sender.host).sessions();
        let session = sessions.get(self.sender.session.0);
        self.totals.established = session.and_then(Session::established);
        self.totals.blocked = self.blocked_until(world.now());
        let totals = &mut self.totals;
        self.probe.with_order(self.connection, |order| {
            totals.reseq_waits = order.waits().clone();
            totals.reseq_peak_bytes = order.peak_bytes();
            totals.reseq_peak_runs = order.peak_runs();
            totals.reseq_mean_bytes = order.mean_bytes(world.now());
        });
        self.totals.clone()
    }

    /// The totals of each path that existed at any sample.
    pub fn paths(&self, world: &mut World) -> Vec<PathTotals> {
        let paths = self.last.iter();
        paths
            .map(|(path, last)| self.path_totals(world, *path, last))
            .collect()
    }

    fn path_totals(&self, world: &mut World, path: PathId, last: &Last) -> PathTotals {
        let rows = self.rows.iter().filter(|row| row.path == Some(path));
        let rows: Vec<&SeriesRow> = rows.collect();
        let count = rows.len().max(1);
        let mut rtts: Vec<Duration> = rows.iter().filter_map(|row| row.srtt).collect();
        rtts.sort_unstable();
        let rtt_sum: Duration = rtts.iter().sum();
        let p95 = rtts.get((rtts.len() * 95 / 100).min(rtts.len().saturating_sub(1)));
        let queue = rows.iter().map(|row| row.queue_bytes);
        let silent = rows.iter().filter(|row| row.sent_bytes == 0).count() as u32;
        let way = world.way(last.ends.0, last.ends.1);
        let links = way
            .iter()
            .map(|(link, direction)| world.link_stats(*link, *direction));
        let links: Vec<LinkStats> = links.collect();
        PathTotals {
            path,
            ends: last.ends,
            sent: last.sent,
            received: last.received,
            bytes: self
                .probe
                .with_order(self.connection, |order| order.path(path)),
            flow: world.flow_stats(last.ends.0, last.ends.1),
            srtt_mean: rtt_sum / rtts.len().max(1) as u32,
            srtt_p95: p95.copied().unwrap_or_default(),
            queue_mean_bytes: queue.clone().sum::<u64>() as f64 / count as f64,
            queue_max_bytes: queue.max().unwrap_or(0),
            idle: self.step * silent,
            lost_queue: links.iter().map(|l| l.dropped_full + l.dropped_early).sum(),
            lost_random: links.iter().map(|l| l.lost).sum(),
        }
    }

    fn blocked_until(&self, now: Instant) -> Blocked {
        let mut blocked = self.blocked;
        let current = now.since(self.obstacle.1);
        match self.obstacle.0 {
            Some(Obstacle::ReceiveWindow) => blocked.receive_window += current,
            Some(Obstacle::SendBuffer) => blocked.send_buffer += current,
            None => {}
        }
        blocked.scheduler = self.probe.held(self.connection, now);
        blocked
    }

    /// Records the obstacle after an event.
    fn account(&mut self, world: &World) {
        let now = world.now();
        let host = world.process::<QuicHost>(self.sender.host);
        let obstacle = host
            .connection(self.sender.session)
            .and_then(|connection| obstacle(connection, host.is_blocked()));
        if obstacle != self.obstacle.0 {
            self.blocked = self.blocked_until(now);
            self.obstacle = (obstacle, now);
        }
    }

    fn sample(&mut self, world: &mut World) {
        let now = world.now();
        let Some(sender) = connection(world, self.sender) else {
            return;
        };
        let paths: Vec<PathStats> = sender
            .paths()
            .filter_map(|id| sender.path_stats(id))
            .collect();
        let backlog = sender.backlog();
        self.totals.sender = sender.stats();
        let far = connection(world, self.receiver);
        let stats = far.map(Connection::stats).unwrap_or_default();
        let received: BTreeMap<PathId, PathCounters> = far
            .map(|far| {
                let known = far.paths().filter_map(|id| far.path_stats(id));
                known.map(|path| (path.id, path.counters)).collect()
            })
            .unwrap_or_default();
        let mut all = SeriesRow {
            at: now,
            ..SeriesRow::default()
        };
        for path in paths {
            let from_far = received.get(&path.id).copied();
            let row = self.path_row(world, &path, from_far);
            add(&mut all, &row);
            self.rows.push(row);
        }
        let before = self.before.entry(None).or_default();
        let streams = &stats.streams;
        all.goodput_bytes = streams.bytes_delivered - before.connection_goodput;
        all.duplicate_bytes = streams.duplicate_bytes - before.connection_duplicate;
        all.receive_buffer_bytes = streams
            .bytes_received
            .saturating_sub(streams.bytes_delivered);
        let returned = self.totals.sender.streams.bytes_delivered;
        all.returned_bytes = returned - before.connection_returned;
        before.connection_returned = returned;
        before.connection_goodput = streams.bytes_delivered;
        before.connection_duplicate = streams.duplicate_bytes;
        let earlier = before.blocked;
        let blocked = self.blocked_until(now);
        all.blocked = blocked.since(&earlier);
        self.before.entry(None).or_default().blocked = blocked;
        all.flow_credit_bytes = backlog.credit;
        all.send_buffer_bytes = backlog.unacked + backlog.unsent;
        (all.reseq_bytes, all.reseq_runs) = self.probe.take_recent_peaks(self.connection);
        self.totals.receiver = stats;
        self.rows.push(all);
    }

    fn path_row(
        &mut self,
        world: &mut World,
        path: &PathStats,
        received: Option<PathCounters>,
    ) -> SeriesRow {
        let ends = world.path_ends(self.sender.host, path);
        let key = Some(path.id);
        let before = self.before.get(&key).copied().unwrap_or_default();
        let received = received.unwrap_or(before.received);
        let bytes = self
            .probe
            .with_order(self.connection, |order| order.path(path.id));
        let flow = ends.map(|ends| world.flow_stats(ends.from, ends.to));
        let flow = flow.unwrap_or_default();
        let queue_bytes = ends.map_or(0, |ends| world.queued_between(ends.from, ends.to));
        // The counters of a path that moved start again between its new ends.
        let packets = flow.packets.saturating_sub(before.flow.packets);
        let delays = flow
            .delay_total_ns
            .saturating_sub(before.flow.delay_total_ns);
        let sent = path.counters;
        if let Some(ends) = ends {
            let ends = (ends.from, ends.to);
            let last = Last {
                sent,
                received,
                ends,
            };
            self.last.insert(path.id, last);
        }
        let now = Before {
            sent,
            received,
            bytes,
            flow,
            ..before
        };
        self.before.insert(key, now);
        SeriesRow {
            at: world.now(),
            path: key,
            sent_bytes: sent.sent_bytes - before.sent.sent_bytes,
            delivered_bytes: received
                .received_bytes
                .saturating_sub(before.received.received_bytes),
            goodput_bytes: bytes.first_copy - before.bytes.first_copy,
            acked_bytes: sent.acked_bytes - before.sent.acked_bytes,
            lost_bytes: sent.lost_bytes - before.sent.lost_bytes,
            retransmitted_bytes: sent.retransmitted_bytes - before.sent.retransmitted_bytes,
            copied_bytes: sent.copied_bytes - before.sent.copied_bytes,
            reinjected_bytes: sent.reinjected_bytes - before.sent.reinjected_bytes,
            duplicate_bytes: bytes.duplicate - before.bytes.duplicate,
            inflight_bytes: path.bytes_in_flight,
            cwnd_bytes: path.congestion_window,
            srtt: Some(path.smoothed_rtt).filter(|rtt| !rtt.is_zero()),
            owd: delays.checked_div(packets).map(Duration::from_nanos),
            queue_bytes,
            ..SeriesRow::default()
        }
    }
}

fn connection(world: &World, end: End) -> Option<&Connection> {
    world.process::<QuicHost>(end.host).connection(end.session)
}

/// What keeps a connection from sending although a path has room and the application wants to send.
fn obstacle(connection: &Connection, hungry: bool) -> Option<Obstacle> {
    if !hungry {
        return None;
    }
    let backlog = connection.backlog();
    if backlog.total() > 0 {
        return None;
    }
    let has_room = |path: PathStats| {
        let room = path.congestion_window.saturating_sub(path.bytes_in_flight);
        path.validated
            && !path.closing
            && path.state == PathState::Active
            && room >= u64::from(path.mtu)
    };
    let mut paths = connection
        .paths()
        .filter_map(|id| connection.path_stats(id));
    if !paths.any(has_room) {
        return None;
    }
    if backlog.credit == 0 {
        Some(Obstacle::ReceiveWindow)
    } else {
        Some(Obstacle::SendBuffer)
    }
}

fn add(all: &mut SeriesRow, row: &SeriesRow) {
    all.sent_bytes += row.sent_bytes;
    all.delivered_bytes += row.delivered_bytes;
    all.acked_bytes += row.acked_bytes;
    all.lost_bytes += row.lost_bytes;
    all.retransmitted_bytes += row.retransmitted_bytes;
    all.copied_bytes += row.copied_bytes;
    all.reinjected_bytes += row.reinjected_bytes;
    all.inflight_bytes += row.inflight_bytes;
    all.cwnd_bytes += row.cwnd_bytes;
    all.queue_bytes += row.queue_bytes;
}
