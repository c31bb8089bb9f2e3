//! What is known of a connection and its paths: counters and estimates, as values.

use crate::datagram::Tuple;
use crate::path::PathState;
use crate::path::liveness::Rest;
use crate::path::manager::Slot;
use crate::path::state::{Path, PathCounters};
use crate::placement::{BlockedStats, SchedulerStats};
use crate::recovery::OneWay;
use crate::streams::StreamStats;
use crate::time::Instant;
use anabranch_wire::PathId;
use anabranch_wire::frame::PathStatus;
use std::time::Duration;

/// What is known of one path. Sizes in bytes, rates in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathStats {
    /// The path.
    pub id: PathId,
    /// The path's route: both ends and the socket.
    pub tuple: Tuple,
    /// Whether its far end is proven, so that it may carry data.
    pub validated: bool,
    /// Whether it was given up.
    pub closing: bool,
    /// The status data is scheduled by.
    pub status: PathStatus,
    /// Whether the path answers.
    pub state: PathState,
    /// How long the path rests until this end asks whether it is there; `None` means for ever.
    pub keep_alive: Option<Duration>,
    /// Smoothed RTT.
    pub smoothed_rtt: Duration,
    /// Mean deviation of the RTT.
    pub rttvar: Duration,
    /// Smallest RTT.
    pub min_rtt: Duration,
    /// Latest RTT sample.
    pub latest_rtt: Duration,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// The usable part of the congestion window, in bytes: less than all if a mechanism caps it.
    pub usable_window: u64,
    /// Slow-start threshold, in bytes; `u64::MAX` in the first slow start.
    pub ssthresh: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// Estimated delivery rate, in bytes per second; 0 if unknown.
    pub delivery_rate: u64,
    /// Capacity of the bottleneck estimated from packet pairs, in bytes per second; `None` until
    /// enough were seen.
    pub pair_rate: Option<u64>,
    /// Largest UDP payload known to pass.
    pub mtu: u16,
    /// Whether ECN works on the route.
    pub ecn: bool,
    /// Probe time-outs since the last acknowledgement.
    pub pto_count: u32,
    /// The path by which acknowledgements of its packets came last.
    pub acks_came_by: Option<PathId>,
    /// By how many microseconds packets take longer to the peer than on the fastest path, queues
    /// included; `None` unless that can be [measured](crate::Connection::forward_difference).
    pub forward_delay_us: Option<i64>,
    /// By how many microseconds packets take longer from the peer than on the fastest path;
    /// measured by timestamps alone.
    pub backward_delay_us: Option<i64>,
    /// Paths with the same number are known to share a bottleneck (RFC 8382); 0 means not known to
    /// share one.
    pub bottleneck: u16,
    /// Packets that the peer has sent on it, by their numbers; it may have skipped some (RFC 9000,
    /// section 21.4).
    pub peer_packets: u64,
    /// What the path carried.
    pub counters: PathCounters,
}

impl PathStats {
    /// Whether the path is open: its far end is proven, and nobody gave it up. It may be
    /// [silent](Self::state) all the same.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.validated && !self.closing
    }

    pub(crate) fn of(slot: &Slot, path: &Path, rest: Rest, one_way: &OneWay, now: Instant) -> Self {
        let route = path.route();
        Self {
            id: path.id(),
            tuple: route.tuple(),
            validated: route.is_validated(),
            closing: slot.is_closing(),
            status: slot.status(),
            state: path.state(),
            keep_alive: path.liveness().longest_rest(rest),
            smoothed_rtt: route.rtt().smoothed(),
            rttvar: route.rtt().rttvar(),
            min_rtt: route.rtt().min(),
            latest_rtt: route.rtt().latest(),
            congestion_window: route.congestion_window(),
            usable_window: path.window(),
            ssthresh: route.ssthresh(),
            bytes_in_flight: route.bytes_in_flight(),
            delivery_rate: route.delivery_rate(),
            pair_rate: path.pairs().estimate(),
            mtu: route.max_datagram_size(),
            ecn: route.is_ecn_capable(),
            pto_count: path.liveness().pto_count(),
            acks_came_by: path.liveness().acks_came_by(),
            forward_delay_us: one_way.forward(now, path.id()),
            backward_delay_us: one_way.backward(now, path.id()),
            bottleneck: 0,
            peer_packets: path
                .space()
                .received()
                .largest()
                .map_or(0, |largest| largest + 1),
            counters: *path.counters(),
        }
    }
}

/// What is known of a connection.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConnectionStats {
    /// Streams and datagrams.
    pub streams: StreamStats,
    /// The scheduler's decisions.
    pub scheduler: SchedulerStats,
    /// What kept it from sending while paths had room.
    pub blocked: BlockedStats,
    /// Packets or datagrams that could not be used.
    pub packets_dropped: u64,
    /// Packets received twice.
    pub duplicate_packets: u64,
    /// Timestamps and acknowledgement delays of the peer that were not believed.
    pub delay_outliers: u64,
    /// Times the peer's clock was set, as its timestamps show.
    pub clock_steps: u64,
    /// Key updates, by either side.
    pub keys_updated: u64,
    /// Packets of all levels and paths that were not authentic: a cipher allows so many (RFC 9001,
    /// section 6.6).
    pub failed_opens: u64,
}
