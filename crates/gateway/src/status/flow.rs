//! What a node shows of one flow.

use anabranch_net::Connection;
use serde::{Deserialize, Serialize};

/// Flows of a node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Flows {
    /// How many are open.
    pub open: usize,
    /// The flows that were asked for.
    pub flows: Vec<Flow>,
}

impl Flows {
    /// Tells what stops the flows that wait for the tunnel. `connection` is that of a flow.
    pub(crate) fn explain(&mut self, connection: impl Fn(&Flow) -> Option<Connection>) {
        self.explain_by(&connection);
    }

    fn explain_by(&mut self, connection: &dyn Fn(&Flow) -> Option<Connection>) {
        for flow in &mut self.flows {
            if let Some(others) = &mut flow.same_port {
                others.explain_by(connection);
            }
            if flow.waits_for_tunnel_seconds.is_none() {
                continue;
            }
            let backlog = connection(flow).map(|one| one.with_engine(|engine| engine.backlog()));
            // What flow control stops does not count there: so if nothing is left to be sent,
            // nothing of this flow can be either.
            flow.stopped_by = backlog
                .and_then(Result::ok)
                .map(|backlog| match backlog.unsent {
                    0 => StoppedBy::FlowControl,
                    _ => StoppedBy::Paths,
                });
        }
    }
}

/// What a flow does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Phase {
    /// The flow waits for a connection to the far end.
    Connection,
    /// The flow waits for the target to answer; at a near end, for the far end to report it.
    Target,
    /// The flow is open and carries data.
    Open,
    /// The flow has ended.
    Ended,
}

impl Phase {
    pub(crate) fn of(number: u8) -> Self {
        const ALL: [Phase; 3] = [Phase::Connection, Phase::Target, Phase::Open];
        ALL.into_iter()
            .find(|phase| *phase as u8 == number)
            .unwrap_or(Self::Ended)
    }
}

/// What keeps a flow from sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoppedBy {
    /// The other end accepts no more of the flow: its receiver does not read.
    FlowControl,
    /// The paths are full: more waits on the connection than they carry.
    Paths,
}

/// A flow. Up is away from the near end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flow {
    /// The flow's number, by which it can be asked for.
    pub number: u64,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The client that it belongs to, at a far end.
    pub client: Option<String>,
    /// The address of the host that began it, at a near end.
    pub source: Option<String>,
    /// Its class, at a near end.
    #[serde(default)]
    pub class: Option<String>,
    /// The target, as it was asked for.
    pub target: String,
    /// The address that the target led to, if it is known here.
    pub remote: Option<String>,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// How long it has lasted, in seconds.
    pub seconds: f64,
    /// What it does.
    pub state: Phase,
    /// What ended it.
    pub end: Option<String>,
    /// Bytes of payload towards the far end.
    pub up_bytes: u64,
    /// Bytes of payload towards the near end.
    pub down_bytes: u64,
    /// Bits a second of payload towards the far end, now.
    pub up_bps: f64,
    /// Bits a second of payload towards the near end, now.
    pub down_bps: f64,
    /// How long its outgoing data has waited for room in the tunnel, in seconds.
    pub waits_for_tunnel_seconds: Option<f64>,
    /// What its outgoing data waits for, if that is known.
    pub stopped_by: Option<StoppedBy>,
    /// How long its incoming data has waited because its receiver does not read, in seconds.
    pub waits_for_socket_seconds: Option<f64>,
    /// Counts that only UDP flows have.
    pub datagrams: Option<FlowDatagrams>,
    /// Which paths its datagrams came by. Which one a stream's bytes take is not recorded.
    pub paths: Vec<FlowPath>,
    /// How long the flow has carried no datagram, in seconds.
    #[serde(default)]
    pub idle_seconds: Option<f64>,
    /// All flows that have the same port at the far end, if there are others than this one; given
    /// for flows that were asked for. The one used last comes first.
    #[serde(default)]
    pub same_port: Option<Flows>,
}

/// Datagrams of a flow.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct FlowDatagrams {
    /// Datagrams away from the near end.
    pub up: u64,
    /// Datagrams towards the near end.
    pub down: u64,
    /// Datagrams that this end dropped: too large for a path, or too many.
    pub dropped: u64,
    /// Datagrams that were to leave here for the other end and could not in time. They are counted
    /// in `up` or `down`, too.
    #[serde(default)]
    pub expired: u64,
    /// Datagrams that had arrived before.
    pub copies: u64,
    /// Datagrams that had to wait here for those before them.
    pub held: u64,
    /// The mean of these waits.
    pub mean_wait_ms: Option<f64>,
    /// The longest of these waits.
    pub longest_wait_ms: Option<f64>,
}

/// What came by one path.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct FlowPath {
    /// The path's number.
    pub path: u64,
    /// Bytes of datagrams received on it.
    pub received_bytes: u64,
}
