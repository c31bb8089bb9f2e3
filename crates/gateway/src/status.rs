//! What a node shows of itself. Up is away from the near end, down is towards it.

pub mod flow;

use crate::entry::Flows;
use crate::payloads::Counts;
use anabranch_net::Connection;
use anabranch_net::PathManager;
use anabranch_net::engine::PathStats;
use anabranch_net::manager::EntryState;
use anabranch_proto::path::PathState;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus as Wish;
use anabranch_tunnel::links::{self, Harm, Role};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long rates are measured before they are told.
pub(crate) const MEASURED: Duration = Duration::from_secs(1);

/// What a node shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "node", rename_all = "kebab-case")]
pub enum Status {
    /// The end beside the applications.
    Near(Near),
    /// The end on the net.
    Far(Far),
}

/// What a near end shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Near {
    /// The far end's name for itself, if the tunnel stands.
    pub far_end: Option<String>,
    /// How long the tunnel has stood, in seconds.
    pub connected_seconds: Option<u64>,
    /// What keeps the tunnel from standing.
    pub trouble: Option<String>,
    /// Where SOCKS5 and HTTP CONNECT are offered.
    pub listening: Vec<SocketAddr>,
    /// What is captured, if something is.
    pub captured: Option<Captured>,
    /// Connections of applications.
    pub connections: Connections,
    /// Payload of applications: bytes so far, and the rate now.
    pub traffic: Traffic,
    /// UDP datagrams of applications.
    pub datagrams: Datagrams,
    /// What each class of traffic carries, in the order in which the classes are asked.
    #[serde(default)]
    pub classes: Vec<Class>,
    /// The paths, and the links that have none now.
    pub paths: Vec<Path>,
}

/// What a near end captures.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Captured {
    /// Whose traffic: `host`, or `lan=` and an interface.
    pub sources: Vec<String>,
    /// Whether captured traffic stays blocked when the near end is gone.
    pub kill_switch: bool,
}

/// What a far end shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Far {
    /// The far end's name for itself.
    pub name: String,
    /// How long the far end has run, in seconds.
    pub running_seconds: u64,
    /// Flows of all clients since the far end started.
    pub flows: Connections,
    /// Payload of all clients: bytes so far, and the rate now.
    pub traffic: Traffic,
    /// UDP datagrams of all clients.
    pub datagrams: Datagrams,
    /// The clients that were let in, in the order they came.
    pub clients: Vec<Client>,
}

impl Status {
    /// Whether the node works, in words.
    ///
    /// # Errors
    ///
    /// Why it does not work.
    pub fn health(&self) -> Result<String, String> {
        let near = match self {
            Self::Near(near) => near,
            Self::Far(far) => {
                let here = far.clients.iter().filter(|client| client.connected).count();
                return Ok(format!("listening, {here} connected"));
            }
        };
        let Some(far_end) = &near.far_end else {
            let trouble = near.trouble.as_deref().unwrap_or("it is being tried");
            return Err(format!("not connected: {trouble}"));
        };
        let is_usable = |path: &&Path| ["open", "backup", "quarantine"].contains(&&*path.state);
        match near.paths.iter().filter(is_usable).count() {
            0 => Err(format!("connected to {far_end}, but no path answers")),
            count => Ok(format!(
                "connected to {far_end}, paths that answer: {count}"
            )),
        }
    }
}

/// A client of a far end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Client {
    /// The beginning of the client's ID, by which orders may name it.
    pub id: String,
    /// The client's name for itself.
    pub name: String,
    /// When it was let in, in seconds since 1970.
    pub first_seen: u64,
    /// When it was last heard of, in seconds since 1970.
    pub last_seen: u64,
    /// Whether it is connected.
    pub connected: bool,
    /// Connections it has open through the tunnel.
    pub open: usize,
    /// Payload of the client: bytes so far, and the rate now.
    pub traffic: Traffic,
    /// UDP datagrams of the client since it connected.
    pub datagrams: Datagrams,
    /// Its paths.
    pub paths: Vec<Path>,
}

/// Connections of applications.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Connections {
    /// Connections open now.
    pub open: usize,
    /// Connections made so far.
    pub made: u64,
    /// Connections that could not be made.
    pub failed: u64,
}

impl Connections {
    pub(crate) fn of(flows: &Flows) -> Self {
        Self {
            open: flows.open.load(Ordering::Relaxed),
            made: flows.opened.load(Ordering::Relaxed),
            failed: flows.refused.load(Ordering::Relaxed),
        }
    }
}

/// A class of traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// The name of the class.
    pub name: String,
    /// Flows of the class that are open.
    pub open: usize,
    /// Flows of the class that have begun so far.
    pub made: u64,
    /// Bytes of payload away from the near end.
    pub up_bytes: u64,
    /// Bytes of payload towards the near end.
    pub down_bytes: u64,
    /// Datagrams of those away from the near end that could not leave here in time.
    #[serde(default)]
    pub expired: u64,
}

/// UDP datagrams of applications so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagrams {
    /// Datagrams away from the near end.
    pub up: u64,
    /// Datagrams towards the near end.
    pub down: u64,
    /// Datagrams of either direction that this end dropped: too large for a path, or too many.
    pub dropped: u64,
    /// Datagrams that were to leave here for the other end and could not in time. They are counted
    /// in `up` or `down`, too.
    #[serde(default)]
    pub expired: u64,
    /// Datagrams that had to wait here for those before them.
    pub held: u64,
    /// The sum of these waits, in microseconds.
    pub held_us: u64,
}

impl Datagrams {
    pub(crate) fn of_near(counts: &Counts) -> Self {
        Self {
            up: counts.sent.load(Ordering::Relaxed),
            down: counts.received.load(Ordering::Relaxed),
            dropped: counts.dropped.load(Ordering::Relaxed),
            expired: counts.expired.load(Ordering::Relaxed),
            held: counts.held.load(Ordering::Relaxed),
            held_us: counts.held_us.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn of_far(counts: &Counts) -> Self {
        Self::of_near(counts).turned()
    }

    /// The same, if what goes up here comes down there.
    pub(crate) fn turned(self) -> Self {
        Self {
            up: self.down,
            down: self.up,
            ..self
        }
    }
}

/// Bytes of payload so far, and bits a second of them now.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes of payload away from the near end.
    pub up_bytes: u64,
    /// Bytes of payload towards the near end.
    pub down_bytes: u64,
    /// Bits a second away from the near end, now.
    pub up_bps: f64,
    /// Bits a second towards the near end, now.
    pub down_bps: f64,
}

impl Traffic {
    /// From what was moved up and down before and after [`MEASURED`].
    pub(crate) fn between(before: (u64, u64), after: (u64, u64)) -> Self {
        Self {
            up_bytes: after.0,
            down_bytes: after.1,
            up_bps: rate(before.0, after.0),
            down_bps: rate(before.1, after.1),
        }
    }
}

fn rate(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64 * 8.0 / MEASURED.as_secs_f64()
}

/// A path, or a link that has none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Path {
    /// The path's number; none for a link that has no path now.
    pub path: Option<u64>,
    /// The interface; empty where the kernel chooses, and at a far end.
    pub interface: String,
    /// The path's address here, if that is known.
    pub local: Option<String>,
    /// The path's address at the other end.
    pub remote: String,
    /// `open`, `backup`, `quarantine`, `silent`, `unproven`, `closing`, `waiting`, `capped`.
    pub state: String,
    /// What it is for: `always`, `secondary`, `backup` or `never`.
    pub role: String,
    /// How long it rests until it is asked whether it is there, in seconds; none if it is never
    /// asked, for a link that has no path now, and at a far end, which follows the near end.
    #[serde(default)]
    pub keep_alive_seconds: Option<f64>,
    /// What its link may carry in a month, if that is limited.
    #[serde(default)]
    pub cap: Option<Cap>,
    /// Why its link stands by, if it did harm.
    #[serde(default)]
    pub quarantine: Option<Quarantine>,
    /// Bits a second of UDP payload away from the near end.
    pub up_bps: f64,
    /// Bits a second of UDP payload towards the near end.
    pub down_bps: f64,
    /// The path's share of what all paths carry now.
    pub share: f64,
    /// Smoothed round-trip time in milliseconds, if it was measured.
    pub delay_ms: Option<f64>,
    /// The smallest round-trip time in milliseconds, if it was measured.
    pub least_delay_ms: Option<f64>,
    /// The share of packets sent from here that were lost, of all so far.
    pub loss: Option<f64>,
    /// The largest UDP payload known to pass, in bytes.
    pub mtu: u16,
    /// Bytes of UDP payload sent from here so far.
    pub sent_bytes: u64,
    /// Bytes of UDP payload received here so far.
    pub received_bytes: u64,
    /// Packets sent from here so far.
    pub sent_packets: u64,
    /// How many of these packets were lost.
    pub lost_packets: u64,
}

/// Why a link stands by although it is to carry data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// What the link did.
    pub reason: String,
    /// How much longer it stands by, in seconds.
    pub seconds_left: u64,
}

impl Quarantine {
    pub(crate) fn of((harm, left): (Harm, Duration)) -> Self {
        Self {
            reason: self::harm(harm),
            seconds_left: left.as_secs(),
        }
    }
}

/// What a link did, in words.
pub(crate) fn harm(harm: Harm) -> String {
    match harm {
        Harm::Silent(times) => format!("fell silent {times} times within a minute"),
        Harm::Lossy(percent) => format!("lost {percent} % of its packets for ten seconds"),
    }
}

/// What a link may carry in a month, and what it has carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cap {
    /// Bytes in both directions, with all headers.
    pub bytes: u64,
    /// Bytes it has carried since the count began.
    pub used_bytes: u64,
    /// The day on which the count begins anew, as `2026-12-01`.
    pub renews: String,
}

impl Cap {
    pub(crate) fn of(cap: links::Cap, used: links::Used) -> Self {
        Self {
            bytes: cap.bytes,
            used_bytes: used.bytes,
            renews: cap.renewal(used).to_string(),
        }
    }
}

impl Path {
    /// A link that has no path now.
    pub(crate) fn without(interface: String, role: &str, state: &str) -> Self {
        Self {
            path: None,
            interface,
            local: None,
            remote: "-".into(),
            state: state.into(),
            role: role.into(),
            keep_alive_seconds: None,
            cap: None,
            quarantine: None,
            up_bps: 0.0,
            down_bps: 0.0,
            share: 0.0,
            delay_ms: None,
            least_delay_ms: None,
            loss: None,
            mtu: 0,
            sent_bytes: 0,
            received_bytes: 0,
            sent_packets: 0,
            lost_packets: 0,
        }
    }
}

/// The paths of a connection at one time.
pub(crate) type Snapshot = Vec<(PathId, PathStats)>;

pub(crate) fn snapshot(connection: Option<&Connection>) -> Snapshot {
    connection.map(Connection::paths).unwrap_or_default()
}

/// The paths from what they were before and after [`MEASURED`], seen from the near end if it has a
/// manager of paths.
pub(crate) fn paths(
    before: &Snapshot,
    after: &Snapshot,
    manager: Option<&PathManager>,
) -> Vec<Path> {
    let mut rows: Vec<Path> = after
        .iter()
        .map(|(id, stats)| {
            let earlier = before.iter().find(|(other, _)| other == id);
            let earlier = earlier.map(|(_, stats)| &stats.counters);
            let counters = &stats.counters;
            let sent = rate(earlier.map_or(0, |it| it.sent_bytes), counters.sent_bytes);
            let received = rate(
                earlier.map_or(0, |it| it.received_bytes),
                counters.received_bytes,
            );
            let is_near = manager.is_some();
            let (up_bps, down_bps) = if is_near {
                (sent, received)
            } else {
                (received, sent)
            };
            let measured = |time: Duration| {
                (stats.latest_rtt > Duration::ZERO).then_some(time.as_secs_f64() * 1e3)
            };
            let packets = counters.sent_packets;
            Path {
                path: Some(id.0.into()),
                role: wish(stats.status).into(),
                keep_alive_seconds: stats
                    .keep_alive
                    .filter(|_| is_near)
                    .map(|rest| rest.as_secs_f64()),
                cap: None,
                quarantine: None,
                interface: String::new(),
                local: stats.tuple.local.map(|ip| ip.to_string()),
                remote: stats.tuple.remote.to_string(),
                state: state(stats).into(),
                up_bps,
                down_bps,
                share: 0.0,
                delay_ms: measured(stats.smoothed_rtt),
                least_delay_ms: measured(stats.min_rtt),
                loss: (packets > 0).then(|| counters.lost_packets as f64 / packets as f64),
                mtu: stats.mtu,
                sent_bytes: counters.sent_bytes,
                received_bytes: counters.received_bytes,
                sent_packets: packets,
                lost_packets: counters.lost_packets,
            }
        })
        .collect();
    if let Some(manager) = manager {
        name_links(&mut rows, after, manager);
    }
    let total: f64 = rows.iter().map(|row| row.up_bps + row.down_bps).sum();
    for row in &mut rows {
        if total > 0.0 {
            row.share = (row.up_bps + row.down_bps) / total;
        }
    }
    rows
}

/// Says which interface each path uses, and adds the links that wait for a path.
fn name_links(rows: &mut Vec<Path>, paths: &Snapshot, manager: &PathManager) {
    for entry in manager.entries() {
        let place = entry.candidate;
        let at = entry.state.path();
        let at = at.and_then(|id| paths.iter().position(|(path, _)| *path == id));
        if let Some(at) = at {
            rows[at].interface.clone_from(&place.interface);
            if !place.interface.is_empty() {
                rows[at].local = Some(place.local.to_string());
            }
        } else if !matches!(entry.state, EntryState::Lost(_)) {
            let role = wish(place.options.status);
            rows.push(Path {
                local: Some(place.local.to_string()),
                remote: place.remote.to_string(),
                ..Path::without(place.interface, role, "waiting")
            });
        }
    }
}

/// What a path is for, as far as its connection knows.
fn wish(wish: Wish) -> &'static str {
    role(match wish {
        Wish::Available => Role::Always,
        Wish::Backup => Role::Backup,
    })
}

/// What a link is for, in a word.
pub(crate) fn role(role: Role) -> &'static str {
    match role {
        Role::Always => "always",
        Role::Secondary { .. } => "secondary",
        Role::Backup => "backup",
        Role::Never => "never",
    }
}

fn state(stats: &PathStats) -> &'static str {
    match stats {
        stats if stats.closing => "closing",
        stats if !stats.validated => "unproven",
        stats if stats.state == PathState::Doubtful => "silent",
        stats if stats.status == Wish::Backup => "backup",
        _ => "open",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_end_is_well_if_a_path_answers() {
        let mut near = near();
        let health = |near: &Near| Status::Near(near.clone()).health();
        assert_eq!(
            health(&near).unwrap_err(),
            "connected to b, but no path answers"
        );
        near.far_end = None;
        near.trouble = Some("no answer".into());
        assert_eq!(health(&near).unwrap_err(), "not connected: no answer");
    }

    fn near() -> Near {
        Near {
            far_end: Some("b".into()),
            connected_seconds: Some(7),
            trouble: None,
            listening: vec![([127, 0, 0, 1], 1080).into()],
            captured: None,
            connections: Connections::default(),
            traffic: Traffic::between((1000, 0), (2000, 5)),
            datagrams: Datagrams::default(),
            classes: Vec::new(),
            paths: Vec::new(),
        }
    }

    #[test]
    fn what_is_shown_is_read_again() {
        let near = near();
        assert!((near.traffic.up_bps - 8000.0).abs() < 1.0);
        let text = serde_json::to_string(&Status::Near(near)).unwrap();
        assert!(
            text.starts_with(r#"{"node":"near","far_end":"b","#),
            "{text}"
        );
        assert!(matches!(serde_json::from_str(&text), Ok(Status::Near(_))));
    }
}
