//! What each path of a connection did: sampled during the connection, shown at the end.

use crate::output::table::Table;
use crate::output::units;
use anabranch_net::connection::Connection;
use anabranch_net::engine::PathStats;
use anabranch_net::manager::{EntryState, PathEntry, PathManager};
use anabranch_proto::path::PathState;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most paths remembered of one connection: a path that flaps is replaced by new ones.
const MAX_PATHS: usize = 256;

/// The direction of the data, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// We receive it.
    In,
    /// We send it.
    Out,
}

/// The interfaces and addresses of path IDs, including those of paths that are gone.
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
    /// The labels of a connection whose paths `manager` opens.
    pub(crate) fn new(manager: PathManager) -> Self {
        Self {
            manager,
            known: Arc::default(),
        }
    }

    /// Returns once every wanted path is open, or the connection has ended.
    pub(crate) async fn opened(&self) {
        let mut manager = self.manager.clone();
        let is_open = |entry: &PathEntry| matches!(entry.state, EntryState::Open(_));
        while !manager.entries().iter().all(is_open) {
            if !manager.changed().await {
                return;
            }
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

/// The last known statistics of each path, including those of paths that are gone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    last: BTreeMap<PathId, PathStats>,
    /// The paths that were open at the last sample.
    present: Vec<PathId>,
}

impl Samples {
    /// Samples the connection now.
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

    /// What the paths did since an earlier sample.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (id, stats) in &mut since.last {
            let Some(before) = before.last.get(id).map(|stats| &stats.counters) else {
                continue;
            };
            let now = &mut stats.counters;
            now.sent_bytes = now.sent_bytes.saturating_sub(before.sent_bytes);
            now.received_bytes = now.received_bytes.saturating_sub(before.received_bytes);
            now.sent_packets = now.sent_packets.saturating_sub(before.sent_packets);
            now.lost_packets = now.lost_packets.saturating_sub(before.lost_packets);
            now.doubts = now.doubts.saturating_sub(before.doubts);
        }
        since
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
                smoothed_rtt_ms: is_measured(stats).then(|| units::json_millis(stats.smoothed_rtt)),
                min_rtt_ms: is_measured(stats).then(|| units::json_millis(stats.min_rtt)),
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

/// Whether the RTT was measured. Before the first sample, the estimator holds an assumption and has
/// no latest sample.
fn is_measured(stats: &PathStats) -> bool {
    stats.latest_rtt > Duration::ZERO
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
    /// Its share of all such bytes.
    pub(crate) share: f64,
    /// Bytes sent from here.
    pub(crate) sent_bytes: u64,
    /// Bytes received here.
    pub(crate) received_bytes: u64,
    /// Smoothed RTT, if there was a sample.
    pub(crate) smoothed_rtt_ms: Option<f64>,
    /// Smallest RTT, if there was a sample.
    pub(crate) min_rtt_ms: Option<f64>,
    /// Packets sent from here.
    pub(crate) sent_packets: u64,
    /// How many of these were lost.
    pub(crate) lost_packets: u64,
    /// How often it went silent.
    pub(crate) doubts: u64,
    /// Largest UDP payload known to pass.
    pub(crate) mtu: u16,
}

/// The paths as a table with a row for each interface and address. A path that was given up and the
/// paths that replaced it are added up.
pub(crate) fn table(rows: &[Row], duration: Duration) -> Table {
    let head = [
        "interface",
        "local",
        "remote",
        "paths",
        "state",
        ">bytes",
        ">share",
        ">rate",
    ];
    let mut table = Table::new(&[&head[..], &[">rtt", ">min rtt"]].concat());
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |ms| format!("{ms:.1} ms"));
    for link in links(rows) {
        let bytes = link.iter().map(|row| row.bytes).sum();
        let share: f64 = link.iter().map(|row| row.share).sum();
        let ids: Vec<String> = link.iter().map(|row| row.path.to_string()).collect();
        // The current path says more than earlier ones.
        let Some(now) = link.iter().max_by_key(|row| (is_there(row), row.path)) else {
            continue;
        };
        let least = link.iter().filter_map(|row| row.min_rtt_ms);
        table.row([
            now.interface.clone(),
            now.local.clone(),
            now.remote.clone(),
            shortened(&ids),
            now.state.into(),
            units::bytes(bytes),
            format!("{:.1} %", share * 100.0),
            units::bit_rate(units::rate(bytes, duration)),
            ms(now.smoothed_rtt_ms),
            ms(least.min_by(f64::total_cmp)),
        ]);
    }
    table
}

/// Groups the paths by interface and address, in the order of the first path of each.
fn links(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut links: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same = |link: &&mut Vec<&Row>| {
            let mut others = link.iter();
            others.any(|other| (&other.interface, &other.local) == (&row.interface, &row.local))
        };
        match links.iter_mut().find(same) {
            Some(link) => link.push(row),
            None => links.push(vec![row]),
        }
    }
    links
}

fn is_there(row: &Row) -> bool {
    !matches!(row.state, "gone" | "closed")
}

/// A list of path IDs; if there are many, only the first and the last.
fn shortened(ids: &[String]) -> String {
    match ids {
        [first, .., last] if ids.len() > 4 => format!("{first}...{last}"),
        ids => ids.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: u32, interface: &str, state: &'static str, rtt: Option<f64>) -> Row {
        Row {
            path,
            interface: interface.into(),
            local: "10.0.0.2".into(),
            remote: "192.0.2.1:4433".into(),
            state,
            bytes: 1_000_000,
            share: 0.25,
            sent_bytes: 0,
            received_bytes: 1_000_000,
            smoothed_rtt_ms: rtt,
            min_rtt_ms: rtt,
            sent_packets: 1,
            lost_packets: 0,
            doubts: 0,
            mtu: 1452,
        }
    }

    #[test]
    fn an_interface_has_one_row_whatever_became_of_its_paths() {
        let rows = [
            row(0, "eth0", "open", Some(10.0)),
            row(1, "wwan0", "gone", Some(40.0)),
            row(2, "wwan0", "gone", None),
            row(3, "wwan0", "open", Some(50.0)),
        ];
        let text = table(&rows, Duration::from_secs(1)).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for part in [
            "wwan0",
            "1,2,3",
            "open",
            "3.00 MB",
            "75.0 %",
            "24.0 Mbit/s",
            "50.0 ms",
        ] {
            assert!(lines[2].contains(part), "{part}: {text}");
        }
        assert!(lines[2].ends_with("40.0 ms"), "{text}");
    }

    #[test]
    fn a_delay_that_was_not_measured_is_not_shown() {
        let text = table(&[row(0, "eth0", "unproven", None)], Duration::from_secs(1)).to_string();
        let cells: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(cells[cells.len() - 2..], ["-", "-"], "{text}");
    }
}
