//! Who competes, and how its transport is set up.

use super::mistake::Mistake;
use super::reader::{Item, Table};
use super::topology::Network;
use crate::contender::Contender;
use anabranch_proto::congestion::Registry as Controllers;
use anabranch_proto::sched::Registry as Schedulers;
use anabranch_proto::spec::{Spec, SpecError};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What carries the flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The engine.
    Anabranch,
    /// TCP over the first of its paths, a connection for each flow.
    Tcp,
    /// TCP over a bonding device that takes the paths in turn, by weights, or by arrival, as the
    /// scheduler's name says.
    Bonding,
    /// TCP over multilink PPP: fragments in proportion to the paths' rates, or of equal size.
    Mlppp,
    /// Multipath TCP of the running kernel: not in a simulator.
    KernelMptcp,
    /// A program that a contender file describes: not in a simulator.
    Command,
}

/// The names of the kinds.
pub const KINDS: [(&str, Kind); 6] = [
    ("anabranch", Kind::Anabranch),
    ("tcp", Kind::Tcp),
    ("bonding", Kind::Bonding),
    ("mlppp", Kind::Mlppp),
    ("mptcp", Kind::KernelMptcp),
    ("command", Kind::Command),
];

/// Which system the engine is set up like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Profile {
    /// Itself.
    #[default]
    Quic,
    /// Concurrent multipath transfer over SCTP, as in the third paper.
    CmtSctp,
    /// Multipath TCP, as in the second and fifth.
    Mptcp,
    /// Chunks over several connections per path, as in the first.
    Stripe,
}

const PROFILES: [(&str, Profile); 4] = [
    ("quic", Profile::Quic),
    ("cmt-sctp", Profile::CmtSctp),
    ("mptcp", Profile::Mptcp),
    ("stripe", Profile::Stripe),
];

/// Which path carries a retransmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retransmit {
    /// The one the scheduler chooses.
    Scheduler,
    /// The one that lost it.
    Same,
    /// The first with room.
    Soon,
    /// The one with the largest window.
    Window,
    /// The one with the largest slow-start threshold.
    Ssthresh,
    /// The one that loses least.
    Loss,
}

/// How the buffers are shared between paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Split {
    /// First come, first served.
    Shared,
    /// In equal parts.
    Equal,
    /// In proportion to rate times round trip.
    Proportional,
}

/// The transport of one contender. What is `None` is as the profile has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Transport {
    /// What it is.
    pub kind: Kind,
    /// What the engine is set up like.
    pub profile: Profile,
    /// The scheduler.
    pub scheduler: Option<Spec>,
    /// The congestion control.
    pub congestion: Option<Spec>,
    /// The paths it may use, as indices in ascending order.
    pub paths: Vec<usize>,
    /// The program, if it is one.
    pub command: Option<Arc<Contender>>,
    /// The rest.
    pub settings: Settings,
}

/// Settings with which the papers' systems differ.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Settings {
    /// Receive buffer of the connection, in bytes.
    pub receive_buffer: Option<u64>,
    /// Send buffer of the connection, in bytes.
    pub send_buffer: Option<u64>,
    /// Bytes of each packet's UDP payload; no search for more.
    pub packet_size: Option<u64>,
    /// Bytes of each scheduling decision.
    pub chunk: Option<u64>,
    /// Initial window in packets.
    pub initial_window: Option<u64>,
    /// Packets per acknowledgement.
    pub ack_every: Option<u64>,
    /// The longest an acknowledgement is held back.
    pub ack_delay: Option<Duration>,
    /// Whether packets are paced.
    pub pacing: Option<bool>,
    /// Whether TCP acknowledges selectively (RFC 2018).
    pub sack: Option<bool>,
    /// Which path carries a retransmission.
    pub retransmit: Option<Retransmit>,
    /// How the buffers are shared between paths.
    pub split: Option<Split>,
    /// Whether the send buffer keeps acknowledged bytes until all before them are acknowledged.
    pub renegable: Option<bool>,
    /// Resend what blocks the window on a faster path.
    pub opportunistic: Option<bool>,
    /// Halve the window of the path that blocks.
    pub penalise: Option<bool>,
    /// A path's window is capped once its RTT exceeds this many times its minimum.
    pub bufferbloat_cap: Option<f64>,
    /// Connections per path (profile `stripe`).
    pub connections: Option<u64>,
    /// Whether chunks cost processing time as in the first paper (profile `stripe`).
    pub processing: Option<bool>,
    /// Whether packets are encrypted; without, runs are faster and take the same course.
    pub protection: Option<bool>,
    /// Whether packets carry timestamps, so that one-way delays can be compared.
    pub timestamps: Option<bool>,
}

/// Reads `[transport]`, with what the contender changes laid over it.
pub(super) fn transport(item: Option<&Item<'_>>, network: &Network) -> Result<Transport, Mistake> {
    let mut transport = Transport {
        kind: Kind::Anabranch,
        profile: Profile::Quic,
        scheduler: None,
        congestion: None,
        paths: (0..network.paths.len()).collect(),
        command: None,
        settings: Settings::default(),
    };
    let Some(item) = item else {
        return Ok(transport);
    };
    let mut table = item.table()?;
    if let Some(kind) = table.read("kind", |item| item.word(&KINDS))? {
        transport.kind = kind;
    }
    if let Some(profile) = table.read("profile", |item| item.word(&PROFILES))? {
        transport.profile = profile;
    }
    let schedulers = Schedulers::builtin();
    let known = |spec: &Spec| schedulers.build(spec).map(drop);
    transport.scheduler = table.read("scheduler", |item| spec(item, &known))?;
    let controllers = Controllers::builtin();
    let known = |spec: &Spec| controllers.factory(spec).map(drop);
    // What the kernel calls it.
    let kernel = matches!(transport.kind, Kind::Tcp | Kind::KernelMptcp);
    let alias = |text: &str| match text {
        "reno" if kernel => "new-reno".to_owned(),
        other => other.to_owned(),
    };
    let congestion = |item: &Item<'_>| spec_from(item, &alias(item.text()?), &known);
    transport.congestion = table.read("congestion", congestion)?;
    if let Some(paths) = table.item("paths") {
        let chosen: Result<Vec<usize>, Mistake> = paths
            .list()
            .iter()
            .map(|item| network.path_item(item))
            .collect();
        transport.paths = chosen?;
        transport.paths.sort_unstable();
        transport.paths.dedup();
        if transport.paths.is_empty() {
            return Err(paths.expected("at least one path"));
        }
    }
    transport.command = table.read("file", contender)?.map(Arc::new);
    if (transport.kind == Kind::Command) != transport.command.is_some() {
        let what = "a contender file goes with kind = \"command\", and the other way round";
        return Err(table.mistake(what));
    }
    transport.settings = settings(&mut table)?;
    table.finish()?;
    Ok(transport)
}

/// A contender file, named relative to the scenario.
fn contender(item: &Item<'_>) -> Result<Contender, Mistake> {
    let beside = Path::new(item.context.file).parent();
    let name = item.text()?;
    let path = beside.map_or_else(|| name.into(), |beside| beside.join(name));
    if !path.is_file() {
        return Err(item.mistake(format!("there is no contender file {}", path.display())));
    }
    Contender::load(&path)
}

fn spec(item: &Item<'_>, known: &dyn Fn(&Spec) -> Result<(), SpecError>) -> Result<Spec, Mistake> {
    spec_from(item, item.text()?, known)
}

fn spec_from(
    item: &Item<'_>,
    text: &str,
    known: &dyn Fn(&Spec) -> Result<(), SpecError>,
) -> Result<Spec, Mistake> {
    let spec: Result<Spec, SpecError> = text.parse();
    let spec = spec.map_err(|error| item.mistake(error.to_string()))?;
    known(&spec).map_err(|error| item.mistake(error.to_string()))?;
    Ok(spec)
}

fn settings(table: &mut Table<'_>) -> Result<Settings, Mistake> {
    let policies = [
        ("scheduler", Retransmit::Scheduler),
        ("same", Retransmit::Same),
        ("asap", Retransmit::Soon),
        ("cwnd", Retransmit::Window),
        ("ssthresh", Retransmit::Ssthresh),
        ("loss-rate", Retransmit::Loss),
    ];
    let splits = [
        ("shared", Split::Shared),
        ("equal", Split::Equal),
        ("proportional", Split::Proportional),
    ];
    Ok(Settings {
        receive_buffer: bytes(table, "receive-buffer", 4096)?,
        send_buffer: bytes(table, "send-buffer", 4096)?,
        packet_size: within(table, "packet-size", 1200, 65_527)?,
        chunk: within(table, "chunk", 500, 65_536)?,
        initial_window: table.read("initial-window", |item| item.count(1..=10_000))?,
        ack_every: table.read("ack-every", |item| item.count(1..=1000))?,
        ack_delay: table.read("ack-delay", Item::time)?,
        pacing: table.read("pacing", Item::flag)?,
        sack: table.read("sack", Item::flag)?,
        retransmit: table.read("retransmit", |item| item.word(&policies))?,
        split: table.read("buffer-split", |item| item.word(&splits))?,
        renegable: table.read("renegable", Item::flag)?,
        opportunistic: table.read("opportunistic-retransmission", Item::flag)?,
        penalise: table.read("penalise", Item::flag)?,
        bufferbloat_cap: table.read("bufferbloat-cap", cap)?,
        connections: table.read("connections", |item| item.count(1..=64))?,
        processing: table.read("processing", Item::flag)?,
        protection: table.read("protection", Item::flag)?,
        timestamps: table.read("timestamps", Item::flag)?,
    })
}

fn cap(item: &Item<'_>) -> Result<f64, Mistake> {
    let factor = item.number()?;
    if factor >= 1.0 {
        Ok(factor)
    } else {
        Err(item.expected("a factor of at least 1"))
    }
}

fn bytes(table: &mut Table<'_>, key: &'static str, least: u64) -> Result<Option<u64>, Mistake> {
    within(table, key, least, 1 << 40)
}

fn within(
    table: &mut Table<'_>,
    key: &'static str,
    least: u64,
    most: u64,
) -> Result<Option<u64>, Mistake> {
    table.read(key, |item| {
        let bytes = item.size()?;
        if (least..=most).contains(&bytes) {
            Ok(bytes)
        } else {
            Err(item.expected(&format!("from {least}B to {most}B")))
        }
    })
}
