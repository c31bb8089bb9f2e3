//! What each path of a connection did: sampled while it lasts, shown at the end.

use crate::output::table::Table;
use crate::output::units;
use anabranch_net::connection::Connection;
use anabranch_net::engine::PathStats;
use anabranch_net::manager::PathManager;
use anabranch_proto::sched::PathState;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Paths remembered of one connection: paths that flap are replaced by new ones.
const MAX_PATHS: usize = 256;

/// Which way the data goes, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// We receive it.
    In,
    /// We send it.
    Out,
}

/// The interfaces and addresses behind path IDs. Remembers paths that are gone.
#[derive(Debug, Clone)]
pub(crate) struct Labels {
    manager: PathManager,
    known: Arc<Mutex<BTreeMap<PathId, Label>>>,
}

#[derive(Debug, Clone)]
struct Label {
    interface: String,
    local: String,
}

impl Labels {
    /// The labels of a connection that `manager` cares for.
    pub(crate) fn new(manager: PathManager) -> Self {
        Self {
            manager,
            known: Arc::default(),
        }
    }

    fn refresh(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in self.manager.entries() {
            let Some(id) = entry.state.path() else {
                continue;
            };
            let candidate = entry.candidate;
            let (mut interface, mut local) = (candidate.interface, candidate.local.to_string());
            if interface.is_empty() {
                (interface, local) = ("any".into(), "-".into());
            }
            if known.len() < MAX_PATHS {
                known.insert(id, Label { interface, local });
            }
        }
    }

    fn of(&self, id: PathId) -> (String, String) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let label = known.get(&id).cloned();
        label.map_or_else(
            || ("?".into(), "-".into()),
            |label| (label.interface, label.local),
        )
    }

    /// The interface of a path, for progress and messages.
    pub(crate) fn interface(&self, id: PathId) -> String {
        self.of(id).0
    }
}

/// The last that is known of each path, also of those that are gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    last: BTreeMap<PathId, PathStats>,
    /// The paths that were there at the last look.
    present: Vec<PathId>,
}

impl Samples {
    /// Looks at the connection now.
    pub(crate) fn take(&mut self, connection: &Connection, labels: &Labels) {
        labels.refresh();
        self.present.clear();
        for (id, stats) in connection.paths() {
            self.present.push(id);
            if self.last.len() < MAX_PATHS || self.last.contains_key(&id) {
                self.last.insert(id, stats);
            }
        }
    }

    /// Each path with its bytes in the direction of the data.
    pub(crate) fn bytes(&self, direction: Direction) -> impl Iterator<Item = (PathId, u64)> {
        self.last
            .iter()
            .map(move |(&id, stats)| (id, carried(stats, direction)))
    }

    /// The paths, in order of their IDs.
    pub(crate) fn rows(&self, direction: Direction, labels: &Labels) -> Vec<Row> {
        let total: u64 = self.bytes(direction).map(|(_, bytes)| bytes).sum();
        let row = |(&id, stats): (&PathId, &PathStats)| {
            let (interface, local) = labels.of(id);
            let bytes = carried(stats, direction);
            Row {
                path: id.0,
                interface,
                local,
                remote: stats.tuple.remote.to_string(),
                state: state_name(stats, self.present.contains(&id)),
                bytes,
                share: if total == 0 {
                    0.0
                } else {
                    bytes as f64 / total as f64
                },
                sent_bytes: stats.counters.sent_bytes,
                received_bytes: stats.counters.received_bytes,
                smoothed_rtt_ms: units::json_millis(stats.smoothed_rtt),
                min_rtt_ms: units::json_millis(stats.min_rtt),
                sent_packets: stats.counters.sent_packets,
                lost_packets: stats.counters.lost_packets,
                doubts: stats.counters.doubts,
                mtu: stats.mtu,
            }
        };
        self.last.iter().map(row).collect()
    }
}

fn carried(stats: &PathStats, direction: Direction) -> u64 {
    match direction {
        Direction::In => stats.counters.received_bytes,
        Direction::Out => stats.counters.sent_bytes,
    }
}

fn state_name(stats: &PathStats, present: bool) -> &'static str {
    match stats {
        _ if !present => "gone",
        stats if stats.closing => "closed",
        stats if !stats.validated => "unproven",
        stats if stats.state == PathState::Doubtful => "silent",
        stats if stats.status == PathStatus::Backup => "backup",
        _ => "open",
    }
}

/// One path in a report. Bytes are UDP payload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The path ID.
    pub(crate) path: u32,
    /// The interface.
    pub(crate) interface: String,
    /// The local address.
    pub(crate) local: String,
    /// The server's address.
    pub(crate) remote: String,
    /// What became of it.
    pub(crate) state: &'static str,
    /// Bytes in the direction of the data.
    pub(crate) bytes: u64,
    /// Its share of them.
    pub(crate) share: f64,
    /// Bytes sent from here.
    pub(crate) sent_bytes: u64,
    /// Bytes received here.
    pub(crate) received_bytes: u64,
    /// Smoothed RTT.
    pub(crate) smoothed_rtt_ms: f64,
    /// Smallest RTT.
    pub(crate) min_rtt_ms: f64,
    /// Packets sent from here.
    pub(crate) sent_packets: u64,
    /// Those of them that were lost.
    pub(crate) lost_packets: u64,
    /// Times it went silent.
    pub(crate) doubts: u64,
    /// Largest UDP payload known to pass.
    pub(crate) mtu: u16,
}

/// The paths as a table.
pub(crate) fn table(rows: &[Row], duration: Duration) -> Table {
    let head = [
        "path",
        "interface",
        "local",
        "remote",
        "state",
        ">bytes",
        ">share",
        ">rate",
    ];
    let mut table = Table::new(&[&head[..], &[">rtt", ">min rtt"]].concat());
    for row in rows {
        table.row([
            row.path.to_string(),
            row.interface.clone(),
            row.local.clone(),
            row.remote.clone(),
            row.state.into(),
            units::bytes(row.bytes),
            format!("{:.1} %", row.share * 100.0),
            units::bit_rate(units::rate(row.bytes, duration)),
            format!("{:.1} ms", row.smoothed_rtt_ms),
            format!("{:.1} ms", row.min_rtt_ms),
        ]);
    }
    table
}
