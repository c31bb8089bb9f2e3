//! What a view shows: paths, what waits, what is to be placed. The objects are made once for a
//! connection and get new values before each call.

use anabranch_proto::path::PathState;
use anabranch_proto::sched::{Backlog, PathView, StreamView, Unit, UnitKind};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::frame::PathStatus;
use pyo3::prelude::*;

/// Seconds since the beginning.
pub(crate) fn seconds(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e9
}

/// A path as it is now. The same object stands for the same path in every call.
#[pyclass(name = "PathView", module = "anabranch")]
#[derive(Debug)]
pub(crate) struct PyPath {
    pub(super) view: PathView,
    pub(super) now: Instant,
}

macro_rules! getters {
    (
        $type:ty, $self:ident {
            $($(#[$about:meta])* $name:ident: $kind:ty = $value:expr;)*
        }
        $($rest:tt)*
    ) => {
        #[pymethods]
        impl $type {
            $(
                $(#[$about])*
                #[getter]
                fn $name(&$self) -> $kind {
                    $value
                }
            )*
            $($rest)*
        }
    };
}

getters!(PyPath, self {
    /// The path's number in the connection, from 0.
    id: u32 = self.view.id.0;
    /// "available" or "backup", as its far end prefers.
    status: &'static str = match self.view.status {
        PathStatus::Available => "available",
        PathStatus::Backup => "backup",
    };
    /// "active", or "doubtful" once it went silent.
    state: &'static str = match self.view.state {
        PathState::Active => "active",
        PathState::Doubtful => "doubtful",
    };
    /// Smoothed RTT in seconds; 0 until the first sample, which means unknown, not fast.
    smoothed_rtt: f64 = self.view.smoothed_rtt.as_secs_f64();
    /// Mean deviation of the RTT in seconds.
    rttvar: f64 = self.view.rttvar.as_secs_f64();
    /// The latest RTT sample in seconds.
    latest_rtt: f64 = self.view.latest_rtt.as_secs_f64();
    /// The smallest RTT in seconds.
    min_rtt: f64 = self.view.min_rtt.as_secs_f64();
    /// By how many seconds packets take longer to the peer than on the fastest path; None where
    /// that is not known.
    forward_delay: Option<f64> = self.view.forward_delay_us.map(|us| us as f64 / 1e6);
    /// Mean deviation of the forward delay in seconds.
    forward_jitter: f64 = self.view.forward_jitter_us as f64 / 1e6;
    /// Congestion window in bytes.
    congestion_window: u64 = self.view.congestion_window;
    /// Slow-start threshold in bytes; None until the first loss.
    ssthresh: Option<u64> = Some(self.view.ssthresh).filter(|bytes| *bytes != u64::MAX);
    /// Bytes sent and neither acknowledged nor declared lost.
    bytes_in_flight: u64 = self.view.bytes_in_flight;
    /// Bytes that earlier decisions gave to the path and that are not sent yet.
    queued: u64 = self.view.queued;
    /// Free congestion window in bytes.
    room: u64 = self.view.room();
    /// Estimated delivery rate in bytes per second; 0 if unknown.
    delivery_rate: u64 = self.view.delivery_rate;
    /// The rate of the pacer in bytes per second; 0 if it does not limit.
    pacing_rate: u64 = self.view.pacing_rate;
    /// When the pacer lets the next packet go, in seconds as `view.now`.
    pacer_ready: f64 = seconds(self.view.pacer_ready);
    /// The share of packets lost lately, 0 to 1.
    loss: f64 = f64::from(self.view.loss);
    /// Probe time-outs since the last acknowledgement.
    pto_count: u32 = self.view.pto_count;
    /// When the last acknowledgement came, in seconds as `view.now`; None before the first.
    last_ack: Option<f64> = self.view.last_ack.map(seconds);
    /// Whether the controller is recovering from loss.
    in_recovery: bool = self.view.in_recovery;
    /// Whether the path had room that was not used.
    app_limited: bool = self.view.app_limited;
    /// Bytes of the largest packet's payload.
    max_datagram_size: u16 = self.view.max_datagram_size;
    /// The user's weight; 1 unless set.
    weight: u32 = self.view.weight;
    /// The user's priority, higher first; 0 unless set.
    priority: i32 = self.view.priority;
    /// The user's cost per byte, in units of the user's choice; 0 unless set.
    cost: u32 = self.view.cost;
    /// Paths with the same number share a bottleneck; 0 means not known to share one.
    bottleneck: u16 = self.view.bottleneck;
    /// Whether there is something to copy on it; only for schedulers that set `wants_copies`.
    copyable: bool = self.view.copyable;
    /// When the data that a copy would repeat was sent, in seconds as `view.now`.
    copyable_since: Option<f64> = self.view.copyable_since.map(seconds);
    /// Whether window and pacer let one full packet go now.
    can_send: bool = self.view.can_send(self.now);
}
    fn __repr__(&self) -> String {
        let rtt = self.view.smoothed_rtt.as_secs_f64() * 1e3;
        format!("<PathView {} rtt={rtt:.1}ms room={}B>", self.view.id.0, self.view.room())
    }
);

/// What waits on the connection, in bytes.
#[pyclass(name = "Backlog", module = "anabranch")]
#[derive(Debug, Default)]
pub(crate) struct PyBacklog(pub(super) Backlog);

getters!(PyBacklog, self {
    /// Stream bytes never sent, as far as flow control lets them go.
    unsent: u64 = self.0.unsent;
    /// Stream bytes to be sent again.
    retransmit: u64 = self.0.retransmit;
    /// Bytes of datagrams.
    datagrams: u64 = self.0.datagrams;
    /// Flow-control credit of the connection left for new stream bytes.
    credit: u64 = self.0.credit;
    /// Sent and unacknowledged stream bytes.
    unacked: u64 = self.0.unacked;
    /// When the oldest of them was first sent, in seconds as `view.now`.
    oldest_unacked: Option<f64> = self.0.oldest_unacked.map(seconds);
    /// Stream bytes that may be under way in all before something stops us.
    send_window: u64 = self.0.send_window;
    /// Whether new data waits that credit or the send buffer stops, and nothing else can be sent.
    blocked: bool = self.0.blocked;
    /// Everything that waits.
    total: u64 = self.0.total();
});

/// What one decision is about.
#[pyclass(name = "Unit", module = "anabranch")]
#[derive(Debug, Default)]
pub(crate) struct PyUnit(pub(super) Unit);

getters!(PyUnit, self {
    /// "fresh", "retransmission", "datagram", or "idle": nothing waits but a question of copies.
    kind: &'static str = match self.0.kind {
        UnitKind::Fresh => "fresh",
        UnitKind::Retransmission => "retransmission",
        UnitKind::Datagram => "datagram",
        UnitKind::Idle => "idle",
    };
    /// How many bytes the decision covers.
    bytes: u64 = self.0.bytes;
    /// The ids of the paths that carried this data before.
    carried_by: Vec<u32> = self.0.carried_by.iter().map(|id| id.0).collect();
    /// The kind of traffic, 0 to 7; 0 unless the application set another.
    traffic_class: u8 = self.0.class;
    /// The flow of a datagram; 0 means none.
    flow: u64 = self.0.flow;
    /// When a datagram loses its worth, in seconds as `view.now`.
    deadline: Option<f64> = self.0.deadline.map(seconds);
    /// How much later than by the fastest path a datagram may arrive, in seconds.
    max_skew: Option<f64> = self.0.max_skew.map(|skew| skew.as_secs_f64());
    /// Whether losing or delaying it costs more than its bytes.
    critical: bool = self.0.critical;
});

/// A stream that could send now; only for schedulers that set `wants_streams`.
#[pyclass(name = "StreamView", module = "anabranch", frozen)]
#[derive(Debug)]
pub(crate) struct PyStream(pub(super) StreamView);

getters!(PyStream, self {
    /// The stream's number.
    id: u64 = self.0.id.0;
    /// The application's priority, higher first.
    priority: i32 = self.0.priority;
    /// Bytes written and not sent yet.
    unsent: u64 = self.0.unsent;
    /// Whether the application has finished it.
    finished: bool = self.0.finished;
});
