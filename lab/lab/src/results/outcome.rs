//! The outcome of one run.

use super::datagrams::DatagramFlow;
use crate::stats::quantile;
use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Everything was delivered.
    #[default]
    Ok,
    /// Virtual time ran out first.
    Timeout,
    /// The run went wrong; see the reason.
    Failed,
    /// The backend could not keep to the scenario, so the figures mean nothing.
    Invalid,
    /// The backend cannot do this.
    Unsupported,
}

impl Status {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
        }
    }
}

/// What a backend reports about a run. What it did not measure is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// Why it did not end well.
    pub reason: String,
    /// Application bytes delivered.
    pub bytes: u64,
    /// From the first packet to the end of the handshake.
    pub handshake_s: Option<f64>,
    /// From the start of the first flow to its first byte.
    pub first_byte_s: Option<f64>,
    /// From the start of the first flow to the last byte of the last.
    pub completion_s: Option<f64>,
    /// Rate of application bytes delivered in order after the warm-up.
    pub goodput_bps: Option<f64>,
    /// The most bytes that waited behind a gap at once.
    pub reseq_peak_bytes: Option<u64>,
    /// The most separate ranges of such bytes: the depth of disorder.
    pub reseq_peak_runs: Option<u64>,
    /// The mean number of bytes waiting behind a gap, over time.
    pub reseq_mean_bytes: Option<f64>,
    /// Median time that bytes waited for those before them.
    pub reseq_wait_p50_s: Option<f64>,
    /// 95th percentile of that time.
    pub reseq_wait_p95_s: Option<f64>,
    /// 99th percentile of that time.
    pub reseq_wait_p99_s: Option<f64>,
    /// Mean of that time.
    pub reseq_wait_mean_s: Option<f64>,
    /// Stream bytes retransmitted.
    pub retransmitted_bytes: Option<u64>,
    /// Stream bytes reinjected: taken from a silent path and sent on another one.
    pub reinjected_bytes: Option<u64>,
    /// Stream bytes that arrived more than once.
    pub duplicate_bytes: Option<u64>,
    /// Time in which the peer's receive window stopped the sender.
    pub blocked_receive_s: Option<f64>,
    /// Time in which the full send buffer stopped the application.
    pub blocked_send_s: Option<f64>,
    /// Time in which the scheduler held data although a path had room.
    pub blocked_hold_s: Option<f64>,
    /// Units of the flow that were completed: files, requests, datagrams.
    pub units: u64,
    /// Datagrams that were to be sent, if the backend counts them.
    #[serde(default)]
    pub sent_units: Option<u64>,
    /// Of these, how many arrived after their deadline or not at all.
    pub late_units: u64,
    /// Datagrams that were read after later ones.
    #[serde(default)]
    pub reordered_units: Option<u64>,
    /// Median time of a unit.
    pub unit_p50_s: Option<f64>,
    /// 95th percentile of the time of a unit.
    pub unit_p95_s: Option<f64>,
    /// 99th percentile of the time of a unit.
    pub unit_p99_s: Option<f64>,
    /// How long each unit took, in seconds, in the order of their flows, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unit_times: Vec<f64>,
    /// What the background traffic got, in the order of the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<Shared>,
    /// What became of the datagrams of each flow through a tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datagrams: Vec<DatagramFlow>,
    /// How often the scheduler left a path with room idle.
    pub holds: Option<u64>,
    /// Events of the simulator.
    pub events: Option<u64>,
    /// Packets over links, each hop counted.
    pub packets: Option<u64>,
    /// A hash of all that happened, in hexadecimal.
    pub trace_hash: Option<String>,
    /// Wall-clock time of the run on this machine.
    pub wall_s: f64,
    /// The paths, in the order of the scenario.
    pub paths: Vec<PathOutcome>,
    /// The time series.
    pub series: Vec<Bin>,
    /// Decisions by reason.
    pub reasons: Vec<(String, u64)>,
    /// Decisions one by one, if asked for.
    pub decisions: Vec<Decided>,
}

impl Outcome {
    /// Adds what units took so many seconds each, and all of these times if they are `recorded`.
    pub fn add_units(&mut self, times: Vec<f64>, recorded: bool) {
        self.units = times.len() as u64;
        self.unit_p50_s = quantile(&times, 0.5);
        self.unit_p95_s = quantile(&times, 0.95);
        self.unit_p99_s = quantile(&times, 0.99);
        self.unit_times = if recorded { times } else { Vec::new() };
    }
}

/// What a piece of background traffic got of the links it shared.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Shared {
    /// What it is, in the words of scenarios: `tcp`, `udp` or `web`.
    pub kind: String,
    /// Application bytes that reached the end it sends to; of `web`, those of the pages.
    pub bytes: u64,
    /// The bytes over the time from its start to its end, or to that of the run if that is earlier.
    pub goodput_bps: Option<f64>,
}

impl Shared {
    /// What a piece of this kind got that ran for `time`.
    pub fn new(kind: &str, bytes: u64, time: std::time::Duration) -> Self {
        let seconds = time.as_secs_f64();
        Self {
            kind: kind.to_owned(),
            bytes,
            goodput_bps: (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds),
        }
    }
}

/// What one path did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PathOutcome {
    /// Its name in the scenario.
    pub name: String,
    /// Bytes sent over it in the direction of the flow, with headers.
    pub sent_bytes: u64,
    /// The part of these bytes that arrived.
    pub delivered_bytes: u64,
    /// Application bytes that arrived over it first, not over another path.
    pub first_copy_bytes: Option<u64>,
    /// Its share of the bytes sent.
    pub share: Option<f64>,
    /// Bytes delivered as a share of what the path could have carried from start to end.
    pub utilisation: Option<f64>,
    /// Packets dropped by its queue.
    pub lost_queue: Option<u64>,
    /// Packets lost by chance.
    pub lost_random: Option<u64>,
    /// Packets the sender declared lost.
    pub lost_declared: Option<u64>,
    /// Packets declared lost that arrived after all.
    pub spurious: Option<u64>,
    /// Mean of the smoothed RTT.
    pub srtt_mean_s: Option<f64>,
    /// 95th percentile of the smoothed RTT.
    pub srtt_p95_s: Option<f64>,
    /// Mean one-way delay of the packets in the direction of the flow.
    pub owd_mean_s: Option<f64>,
    /// Mean bytes in its queue.
    pub queue_mean_bytes: Option<f64>,
    /// Most bytes in its queue.
    pub queue_max_bytes: Option<u64>,
    /// Mean congestion window.
    pub cwnd_mean_bytes: Option<f64>,
    /// Bytes of packets the peer acknowledged.
    pub acked_bytes: Option<u64>,
    /// Bytes of packets the sender declared lost.
    pub lost_bytes: Option<u64>,
    /// Stream bytes retransmitted over it.
    pub retransmitted_bytes: Option<u64>,
    /// Stream bytes sent over it as copies.
    pub copied_bytes: Option<u64>,
    /// Stream bytes reinjected over it, which a silent path has not delivered.
    pub reinjected_bytes: Option<u64>,
    /// Stream bytes that arrived over it although they were there already.
    pub duplicate_bytes: Option<u64>,
}

/// A bin of the time series; path 0 is the connection.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Bin {
    /// The end of the bin.
    pub t_s: f64,
    /// The path, counted from 1.
    pub path: u32,
    /// Bytes sent in the bin.
    pub sent_bytes: u64,
    /// Bytes that arrived in the bin.
    pub delivered_bytes: u64,
    /// Application bytes delivered in order in the bin (path 0).
    pub goodput_bytes: u64,
    /// Bytes in flight at the end of the bin.
    pub inflight_bytes: u64,
    /// Congestion window at the end of the bin.
    pub cwnd_bytes: u64,
    /// Smoothed RTT at the end of the bin.
    pub srtt_s: Option<f64>,
    /// Mean one-way delay of the packets that arrived in the bin.
    pub owd_s: Option<f64>,
    /// Bytes in the queue at the end of the bin.
    pub queue_bytes: u64,
    /// The most bytes that waited behind a gap in the bin (path 0).
    pub reseq_bytes: u64,
    /// Credit of flow control left at the end of the bin (path 0).
    pub flow_credit_bytes: u64,
    /// Time in the bin during which the receive window stopped the sender (path 0).
    pub blocked_s: f64,
    /// Bytes of packets acknowledged in the bin.
    pub acked_bytes: Option<u64>,
    /// Bytes of packets declared lost in the bin.
    pub lost_bytes: Option<u64>,
    /// Stream bytes retransmitted in the bin.
    pub retransmitted_bytes: Option<u64>,
    /// Stream bytes sent as copies in the bin.
    pub copied_bytes: Option<u64>,
    /// Stream bytes reinjected in the bin: taken from a silent path.
    pub reinjected_bytes: Option<u64>,
    /// Stream bytes that arrived in the bin although they were there already.
    pub duplicate_bytes: Option<u64>,
    /// The most separate ranges of bytes that waited behind gaps in the bin (path 0).
    pub reseq_runs: Option<u64>,
    /// Bytes in the receive buffer at the end of the bin, in order or out of order (path 0).
    pub receive_buffer_bytes: Option<u64>,
    /// Bytes written and not acknowledged at the end of the bin (path 0).
    pub send_buffer_bytes: Option<u64>,
    /// Time in the bin during which the full send buffer stopped the application (path 0).
    pub blocked_send_s: Option<f64>,
    /// Time in the bin during which the scheduler held data (path 0).
    pub blocked_hold_s: Option<f64>,
}

/// One decision of a scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Decided {
    /// When, in virtual nanoseconds.
    pub t_ns: u64,
    /// The decision: `send`, `duplicate`, `hold` and so on.
    pub decision: String,
    /// The path, counted from 1, if there is one.
    pub path: Option<u32>,
    /// All paths it names, counted from 1.
    #[serde(default)]
    pub paths: Vec<u32>,
    /// How many bytes after the first unsent one the data starts, if the decision says so.
    #[serde(default)]
    pub skip: Option<u64>,
    /// The reason.
    pub reason: String,
}

/// A run and its outcome, as stored on disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Part {
    /// The version of the schema.
    pub schema: u32,
    /// A hash of the program that ran it.
    pub binary_hash: String,
    /// The run's id.
    pub run_id: String,
    /// The scenario's name.
    pub scenario: String,
    /// The backend that ran it.
    pub backend: String,
    /// The contender.
    pub contender: String,
    /// Whether it only measures what one path can do alone.
    pub single: bool,
    /// The scheduler's name with its parameters.
    pub scheduler: String,
    /// The congestion control's name with its parameters.
    pub congestion: String,
    /// The swept keys with their values.
    pub swept: Vec<(String, String)>,
    /// Which repetition.
    pub repetition: u64,
    /// The seed in decimal digits, as text: JSON readers lose precision in large numbers.
    pub seed: String,
    /// The sum of the rates of the paths.
    pub sum_rate_bps: Option<u64>,
    /// What happened.
    pub outcome: Outcome,
}
