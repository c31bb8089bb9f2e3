//! The transport of each contender.

use super::document::{Document, Node, Value};
use super::mistake::Mistake;
use super::named::{PROFILES, word_in};
use super::reader::{Item, Table};
use super::settings::{Settings, settings};
use super::topology::Network;
use crate::contender::Contender;
use anabranch_proto::spec::{Spec, SpecError};
use anabranch_sim::profile::Profile;
use std::sync::Arc;

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
    /// TCP through the product's tunnel: its two nodes stand in place of the client and the server,
    /// with the hosts behind them.
    Tunnel,
    /// Multipath TCP of the running kernel; not available in the simulator.
    KernelMptcp,
    /// TCP through a plain proxy pair of the running kernel's multipath TCP, which stands where the
    /// nodes of a tunnel would; not available in the simulator.
    MptcpProxy,
    /// A program described by a contender file; not available in the simulator.
    Command,
}

impl Kind {
    /// Whether it carries TCP of hosts that have one path and know nothing of those below it.
    pub fn is_below_hosts(self) -> bool {
        matches!(self, Self::Bonding | Self::Tunnel | Self::MptcpProxy)
    }
}

/// The names of the kinds.
pub const KINDS: [(&str, Kind); 8] = [
    ("anabranch", Kind::Anabranch),
    ("tcp", Kind::Tcp),
    ("bonding", Kind::Bonding),
    ("mlppp", Kind::Mlppp),
    ("tunnel", Kind::Tunnel),
    ("mptcp", Kind::KernelMptcp),
    ("mptcp-proxy", Kind::MptcpProxy),
    ("command", Kind::Command),
];

/// The transport of one contender. `None` stands for the profile's choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Transport {
    /// The carrier.
    pub kind: Kind,
    /// The system that the engine imitates.
    pub profile: Profile,
    /// The scheduler.
    pub scheduler: Option<Spec>,
    /// The congestion control.
    pub congestion: Option<Spec>,
    /// The paths it may use, as indices in ascending order.
    pub paths: Vec<usize>,
    /// The program, for the kind `command`.
    pub command: Option<Arc<Contender>>,
    /// The other settings.
    pub settings: Settings,
}

/// Reads `[transport]`, overlaid with the contender's changes.
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
    let names = item.context.names;
    let known = |spec: &Spec| names.schedulers.build(spec).map(drop);
    transport.scheduler = table.read("scheduler", |item| spec(item, &known))?;
    let known = |spec: &Spec| names.controllers.factory(spec).map(drop);
    // The kernel's name for it.
    let kernel = matches!(
        transport.kind,
        Kind::Tcp | Kind::KernelMptcp | Kind::MptcpProxy
    );
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
    makes_sense(&table, &transport)?;
    table.finish()?;
    Ok(transport)
}

const ENGINE: &[Kind] = &[Kind::Anabranch];
const TCPS: &[Kind] = &[Kind::Tcp, Kind::Bonding, Kind::Mlppp];
const OWN: &[Kind] = &[Kind::Anabranch, Kind::Tcp, Kind::Bonding, Kind::Mlppp];
const TRANSPORTS: &[Kind] = &[
    Kind::Anabranch,
    Kind::Tcp,
    Kind::Bonding,
    Kind::Mlppp,
    Kind::KernelMptcp,
];

/// The kinds that read a key. Keys not listed here are read by all.
const READ_BY: [(&str, &[Kind]); 23] = [
    ("profile", ENGINE),
    ("scheduler", &[Kind::Anabranch, Kind::Bonding, Kind::Tunnel]),
    (
        "congestion",
        &[
            Kind::Anabranch,
            Kind::Tcp,
            Kind::Bonding,
            Kind::Mlppp,
            Kind::Tunnel,
            Kind::KernelMptcp,
            Kind::MptcpProxy,
        ],
    ),
    ("receive-buffer", TRANSPORTS),
    ("send-buffer", TRANSPORTS),
    ("packet-size", OWN),
    ("initial-window", OWN),
    ("ack-every", OWN),
    ("ack-delay", OWN),
    ("chunk", &[Kind::Anabranch, Kind::Mlppp]),
    ("sack", TCPS),
    ("pacing", ENGINE),
    ("retransmit", ENGINE),
    ("buffer-split", ENGINE),
    ("renegable", ENGINE),
    ("opportunistic-retransmission", ENGINE),
    ("penalise", ENGINE),
    ("bufferbloat-cap", ENGINE),
    ("connections", ENGINE),
    ("processing", ENGINE),
    ("protection", ENGINE),
    ("timestamps", ENGINE),
    ("race", ENGINE),
];

/// The kinds that read a key of a flow of datagrams. Keys not listed here are read by all.
const FLOW_READ_BY: [(&str, &[Kind]); 4] = [
    ("flows", ENGINE),
    ("critical", ENGINE),
    ("resequence", ENGINE),
    ("class", &[Kind::Tunnel]),
];

impl Transport {
    fn reads(&self, key: &str) -> bool {
        let entry = READ_BY.iter().find(|(known, _)| *known == key);
        let striped = !matches!(key, "connections" | "processing") || self.is_striped();
        entry.is_none_or(|(_, kinds)| kinds.contains(&self.kind)) && striped
    }

    fn is_striped(&self) -> bool {
        self.kind == Kind::Anabranch && self.profile == Profile::Stripe
    }
}

/// Complains about the first key of a table that none of these contenders reads. A setting in
/// common must be read by at least one of them, a contender's own setting by itself.
///
/// # Errors
/// A [`Mistake`] that names who reads the key.
pub(crate) fn are_read<'k>(
    file: &str,
    keys: impl IntoIterator<Item = (&'k str, &'k Node)>,
    contenders: &[&Transport],
) -> Result<(), Mistake> {
    let unread = |key: &str| !contenders.iter().any(|one| one.reads(key));
    let Some((key, node)) = keys.into_iter().find(|(key, _)| unread(key)) else {
        return Ok(());
    };
    let kinds = READ_BY
        .iter()
        .find(|(known, _)| *known == key)
        .map(|entry| entry.1);
    let readers = match key {
        "connections" | "processing" => "profile = \"stripe\"".to_owned(),
        _ => listed(kinds.unwrap_or_default()),
    };
    Err(unread_by(
        contenders,
        file,
        node,
        ("transport", key),
        &readers,
    ))
}

/// Complains about the first key of a flow that none of these contenders reads.
///
/// # Errors
/// A [`Mistake`] that names who reads the key.
pub(crate) fn flow_keys_are_read(
    document: &Document,
    contenders: &[&Transport],
) -> Result<(), Mistake> {
    let flows = match document.root.get("flow").map(|node| &node.value) {
        Some(Value::List(flows)) => flows.as_slice(),
        _ => return Ok(()),
    };
    for (at, flow) in flows.iter().enumerate() {
        for (key, kinds) in FLOW_READ_BY {
            let is_read = contenders.iter().any(|one| kinds.contains(&one.kind));
            if let Some(node) = flow.get(key).filter(|_| !is_read) {
                let (of, readers) = (format!("flow.{}", at + 1), listed(kinds));
                return Err(unread_by(
                    contenders,
                    &document.file,
                    node,
                    (&of, key),
                    &readers,
                ));
            }
        }
    }
    Ok(())
}

fn listed(kinds: &[Kind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| word_in(&KINDS, kind)).collect();
    format!("kind = {}", names.join(", "))
}

fn unread_by(
    contenders: &[&Transport],
    file: &str,
    node: &Node,
    (of, key): (&str, &str),
    readers: &str,
) -> Mistake {
    let who = match contenders {
        [one] => format!("kind = \"{}\" does not read", word_in(&KINDS, &one.kind)),
        _ => "no contender reads".to_owned(),
    };
    Mistake {
        file: file.to_owned(),
        place: node.place,
        key: format!("{of}.{key}"),
        what: format!("{who} `{key}`: it is for {readers}"),
        hint: None,
    }
}

/// Checks that the values fit each other and the kind.
fn makes_sense(table: &Table<'_>, transport: &Transport) -> Result<(), Mistake> {
    let settings = &transport.settings;
    let stripe = transport.is_striped();
    if let (Some(item), Some(spec)) = (table.given("scheduler"), &transport.scheduler) {
        let (who, known): (_, &[&str]) = match transport.kind {
            Kind::Bonding => (
                "a bond",
                &["round-robin", "weighted", "delivery-delay", "ecf"],
            ),
            _ => ("a stripe", &["round-robin", "weighted"]),
        };
        let text = spec.to_string();
        let fits = known.contains(&text.as_str()) || text.starts_with("weighted:weights=");
        if (stripe || transport.kind == Kind::Bonding) && !fits {
            let what = format!(
                "{who} does not run the scheduler `{text}`: expected one of {}, without \
                 parameters but weights",
                known.join(", ")
            );
            return Err(item.mistake(what));
        }
    }
    if let Some(item) = table.given("penalise")
        && (settings.penalise, settings.opportunistic) == (Some(true), Some(false))
    {
        let what = "a path is penalised when its data is copied: expected \
                    opportunistic-retransmission = true, or no penalise";
        return Err(item.mistake(what));
    }
    let tcp = TCPS.contains(&transport.kind);
    if let Some(item) = table
        .given("ack-every")
        .filter(|_| tcp && settings.ack_every > Some(2))
    {
        let what = "TCP acknowledges every packet or every other one: expected 1 or 2";
        return Err(item.mistake(what));
    }
    Ok(())
}

/// A contender file, named relative to the scenario.
fn contender(item: &Item<'_>) -> Result<Contender, Mistake> {
    let (path, text) = super::beside::read(item, "contender file")?;
    Contender::parse(&path, &text)
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
