//! What a node shows of one flow.

use anabranch_net::Connection;
use serde::{Deserialize, Serialize};

/// Flows of a node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Flows {
    /// How many are open.
    pub open: usize,
    /// Those that were asked for.
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
    /// It waits until there is a connection to the far end.
    Connection,
    /// It waits for the target, and at a near end for what the far end says of it.
    Target,
    /// It carries what comes.
    Open,
    /// It is over.
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
    /// The other end takes no more of it: whoever it is for does not read.
    FlowControl,
    /// More waits on the connection than the paths carry.
    Paths,
}

/// A flow. Up is away from the near end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flow {
    /// By which it can be called.
    pub number: u64,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The client that it belongs to, at a far end.
    pub client: Option<String>,
    /// Who has begun it, at a near end.
    pub source: Option<String>,
    /// Its class, at a near end.
    #[serde(default)]
    pub class: Option<String>,
    /// Where it leads, as it was asked for.
    pub target: String,
    /// The address that this led to, if it is known here.
    pub remote: Option<String>,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// How long it has lasted.
    pub seconds: f64,
    /// What it does.
    pub state: Phase,
    /// What ended it.
    pub end: Option<String>,
    /// Bytes of payload.
    pub up_bytes: u64,
    /// And towards the near end.
    pub down_bytes: u64,
    /// Bits a second of them now.
    pub up_bps: f64,
    /// And towards the near end.
    pub down_bps: f64,
    /// For how long what it wants to send has waited for room in the tunnel.
    pub waits_for_tunnel_seconds: Option<f64>,
    /// What keeps it waiting then, if that is known.
    pub stopped_by: Option<StoppedBy>,
    /// For how long what came has waited for whom it is for, who does not read.
    pub waits_for_socket_seconds: Option<f64>,
    /// What only UDP has.
    pub datagrams: Option<FlowDatagrams>,
    /// Which paths its datagrams came by. Which one a stream's bytes take is not recorded.
    pub paths: Vec<FlowPath>,
    /// For how long no datagram of it was carried.
    #[serde(default)]
    pub idle_seconds: Option<f64>,
    /// All flows that have the same port at the far end, if there are others than this one; told of
    /// flows that somebody asked for. The one that was used last comes first.
    #[serde(default)]
    pub same_port: Option<Flows>,
}

/// Datagrams of a flow.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct FlowDatagrams {
    /// Away from the near end.
    pub up: u64,
    /// Towards it.
    pub down: u64,
    /// That this end dropped: too large for a path, late, or too many.
    pub dropped: u64,
    /// That had come already.
    pub copies: u64,
    /// That had to wait here for those before them.
    pub held: u64,
    /// How long these waited.
    pub mean_wait_ms: Option<f64>,
    /// And the longest.
    pub longest_wait_ms: Option<f64>,
}

/// What came by one path.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct FlowPath {
    /// Its number.
    pub path: u64,
    /// Bytes of datagrams.
    pub received_bytes: u64,
}
