//! What a host is asked to do in one run, and what it reports.

use crate::contender::Terms;
use crate::machine::Machine;
use crate::scenario::{FlowKind, Profile, Settings, Usage, Way, named};
use anabranch_proto::spec::Spec;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A line to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Describe your machine.
    Hello,
    /// Get ready for a run. The server is asked first.
    Prepare(Box<Job>),
    /// Start the server of a third-party program. The answer is `Ready`, and `Done` after `Stop`.
    Serve(Box<Serving>),
    /// Begin. The client gets the server's `Ready`; the server needs nothing.
    Start(Option<Ready>),
    /// End the run now and report what was measured so far.
    Stop,
}

/// A line from an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The host's machine, with the program's version.
    Machine(Box<Machine>),
    /// The host is ready to start.
    Ready(Ready),
    /// The run is in progress: application bytes received so far.
    Progress(u64),
    /// The run is over.
    Done(Box<HostReport>),
    /// The host cannot do what it was asked; the text says why.
    Failed(String),
}

/// Which side of the flows a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Opens the connection and its paths.
    Client,
    /// Accepts the connection.
    Server,
}

/// What carries the flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// The engine, over all paths.
    Anabranch {
        /// The system it imitates.
        #[serde(with = "named")]
        profile: Profile,
        /// The scheduler with its parameters; the profile's choice if `None`.
        #[serde(with = "named::optional", default)]
        scheduler: Option<Spec>,
        /// The congestion control with its parameters; the profile's choice if `None`.
        #[serde(with = "named::optional", default)]
        congestion: Option<Spec>,
        /// The rest.
        settings: Box<Settings>,
    },
    /// The kernel's TCP over the first path, with a connection for each flow.
    Tcp {
        /// Its congestion control; always set, since machines differ in their default.
        congestion: String,
        /// Receive and send buffer in bytes; the kernel's own choice if `None`.
        buffers: Option<(u64, u64)>,
    },
    /// The kernel's multipath TCP, with a connection for each flow that begins on the first path.
    /// Its path manager opens further subflows from the addresses it was given.
    Mptcp {
        /// The congestion control of each subflow.
        congestion: String,
        /// Receive and send buffer in bytes; the kernel's own choice if `None`.
        buffers: Option<(u64, u64)>,
    },
}

/// One path as a host sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostPath {
    /// Its name in the scenario.
    pub name: String,
    /// The interface it leaves through; sockets are bound to it if given.
    pub interface: Option<String>,
    /// The host's own address on it.
    pub local: IpAddr,
    /// The other host's address on it.
    pub remote: IpAddr,
    /// When the client opens it, counted from the start.
    pub opens: Duration,
    /// How it is used.
    #[serde(flatten)]
    pub usage: Usage,
}

/// One flow, with its start time drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobFlow {
    /// What the flow sends.
    pub kind: FlowKind,
    /// The flow's direction.
    pub way: Way,
    /// When it begins, counted from the start.
    pub start: Duration,
    /// How long after its start it is not counted.
    pub warm_up: Duration,
}

/// All a host needs to know of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The run's id.
    pub run_id: String,
    /// Which side this host is.
    pub role: Role,
    /// What carries the flows.
    pub carrier: Carrier,
    /// The paths, in the order of the scenario.
    pub paths: Vec<HostPath>,
    /// The flows.
    pub flows: Vec<JobFlow>,
    /// The run is cut off at this time after its start.
    pub stop: Duration,
    /// Length of a bin of the time series; `None` for no series.
    pub bin: Option<Duration>,
    /// Whether each decision of the scheduler is reported.
    pub decisions: bool,
    /// A folder for qlog files, if they are wanted.
    pub qlog: Option<std::path::PathBuf>,
    /// The seed of all randomness.
    pub seed: u64,
}

/// A third-party program as the server of a run. The agent knows its command, or refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// The contender's name.
    pub contender: String,
    /// Its terms; port and interfaces are chosen by the agent.
    pub terms: Terms,
}

/// What the other side must know before it can start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ready {
    /// Where the server listens, one address for each path.
    pub listens: Vec<SocketAddr>,
    /// The pinned key of a server of the engine.
    pub key: Option<String>,
}

/// What a host reports about a run. What it did not measure is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostReport {
    /// Empty if all went well, else what went wrong.
    pub error: String,
    /// Whether the run was cut off.
    pub timed_out: bool,
    /// The start time on the host's clock `CLOCK_MONOTONIC`.
    pub started_ns: u64,
    /// When this was written, counted from the start.
    pub ended_s: Option<f64>,
    /// How far the host's clock is ahead of the laboratory's. The laboratory fills this in for
    /// hosts on other machines.
    pub clock_ahead_ns: Option<i64>,
    /// The error of `clock_ahead_ns`, in either direction.
    pub clock_error_ns: Option<u64>,
    /// From the first packet to the end of the handshake.
    pub handshake_s: Option<f64>,
    /// Application bytes received.
    pub received_bytes: u64,
    /// The part of these received from the end of the last warm-up to the end of the last flow of a
    /// given duration, or to the last byte if there is no such flow.
    pub counted_bytes: u64,
    /// The period in which these were counted, in seconds from the start.
    pub counted_s: Option<[f64; 2]>,
    /// From the start of the first flow to the first byte received.
    pub first_byte_s: Option<f64>,
    /// From the start of the first flow to the last byte received.
    pub last_byte_s: Option<f64>,
    /// Files, requests or datagrams completed at this host, in order of their end.
    pub units: Vec<UnitTime>,
    /// Units this host sent, by flow.
    pub sent_units: Vec<(u32, u64)>,
    /// Datagrams that arrived too late, by uncorrected clocks.
    pub late_units: u64,
    /// The most bytes that waited behind a gap at once.
    pub reseq_peak_bytes: Option<u64>,
    /// The mean number of such bytes over time.
    pub reseq_mean_bytes: Option<f64>,
    /// How long bytes waited for earlier ones: median, 95th and 99th percentile, mean.
    pub reseq_wait_s: Option<[f64; 4]>,
    /// Stream bytes retransmitted.
    pub retransmitted_bytes: Option<u64>,
    /// Stream bytes reinjected: taken from a silent path and sent on another one.
    pub reinjected_bytes: Option<u64>,
    /// Stream bytes that arrived more than once.
    pub duplicate_bytes: Option<u64>,
    /// Time in which the peer's receive window stopped this host.
    pub blocked_receive_s: Option<f64>,
    /// Time in which the full send buffer stopped the application.
    pub blocked_send_s: Option<f64>,
    /// Time in which the scheduler held data although a path had room.
    pub blocked_hold_s: Option<f64>,
    /// How often the scheduler left a path with room idle.
    pub holds: Option<u64>,
    /// Decisions by reason.
    pub reasons: Vec<(String, u64)>,
    /// Processor time of the agent during the run, user and system.
    pub cpu_s: Option<f64>,
    /// Peak memory of the agent so far.
    pub peak_rss_bytes: Option<u64>,
    /// What the kernel reports to have used, such as `scheduler=default congestion=cubic
    /// subflows=2`.
    pub kernel: String,
    /// The paths, in the order of the job.
    pub paths: Vec<PathReport>,
    /// The time series; path 0 is the connection.
    pub series: Vec<HostBin>,
    /// Decisions one by one, if asked for.
    pub decisions: Vec<crate::results::Decided>,
}

/// When a unit of a flow began and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UnitTime {
    /// The flow, counted from 0.
    pub flow: u32,
    /// The unit's number in the flow.
    pub unit: u64,
    /// From its start to its last byte; for a request, to the last byte of the answer. Files and
    /// datagrams carry their start time by the other host's clock.
    pub took_s: f64,
}

/// What one path did, seen from one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PathReport {
    /// Bytes of packets sent.
    pub sent_bytes: u64,
    /// Bytes of packets received.
    pub received_bytes: u64,
    /// Application bytes that arrived over it first, not over another path.
    pub first_copy_bytes: Option<u64>,
    /// Packets declared lost.
    pub lost_declared: Option<u64>,
    /// Packets declared lost that were acknowledged later.
    pub spurious: Option<u64>,
    /// Mean and 95th percentile of the smoothed RTT.
    pub srtt_s: Option<(f64, f64)>,
    /// Mean of the congestion window.
    pub cwnd_mean_bytes: Option<f64>,
}

/// A bin of the time series as one host saw it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HostBin {
    /// The end of the bin, counted from the start.
    pub t_s: f64,
    /// The path, counted from 1; 0 is the connection.
    pub path: u32,
    /// Bytes sent in the bin.
    pub sent_bytes: u64,
    /// Bytes received in the bin.
    pub received_bytes: u64,
    /// Application bytes delivered in order in the bin (path 0).
    pub goodput_bytes: u64,
    /// Bytes in flight at the end of the bin.
    pub inflight_bytes: u64,
    /// Congestion window at the end of the bin.
    pub cwnd_bytes: u64,
    /// Smoothed RTT at the end of the bin.
    pub srtt_s: Option<f64>,
    /// Bytes waiting behind a gap at the end of the bin (path 0).
    pub reseq_bytes: u64,
    /// Credit of flow control left at the end of the bin (path 0).
    pub flow_credit_bytes: u64,
    /// Time in the bin during which the receive window stopped the sender (path 0).
    pub blocked_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::config::{RetransmissionPolicy, Split};

    #[test]
    fn a_carrier_is_written_in_the_words_of_scenarios_and_read_again() {
        let carrier = Carrier::Anabranch {
            profile: Profile::CmtSctp,
            scheduler: Some("weighted:weights=2/1".parse().unwrap()),
            congestion: None,
            settings: Box::new(Settings {
                retransmit: Some(RetransmissionPolicy::LargestThreshold),
                split: Some(Split::Off),
                ..Settings::default()
            }),
        };
        let text = serde_json::to_string(&carrier).unwrap();
        for part in [
            r#""profile":"cmt-sctp""#,
            r#""scheduler":"weighted:weights=2/1""#,
            r#""congestion":null"#,
            r#""retransmit":"ssthresh""#,
            r#""split":"shared""#,
        ] {
            assert!(text.contains(part), "{part} {text}");
        }
        assert_eq!(serde_json::from_str::<Carrier>(&text).unwrap(), carrier);
        let other = text.replace("cmt-sctp", "cmt-stcp");
        let error = serde_json::from_str::<Carrier>(&other).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("did you mean `cmt-sctp`?"), "{error}");
        let other = text.replace("ssthresh", "cwmd");
        assert!(serde_json::from_str::<Carrier>(&other).is_err());
    }
}
