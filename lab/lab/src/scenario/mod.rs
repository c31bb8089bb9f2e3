//! Scenario files: their content and its meaning.
//!
//! A file is read in two steps. [`Document`] is its TOML with the position of every value; sweeps,
//! contenders and `--set` change it. [`Scenario::read`] turns a document without sweeps into values
//! that cannot be invalid. Every quantity carries its unit, every error its line.

mod beside;
mod class;
mod document;
mod expression;
mod links;
mod mistake;
pub(crate) mod named;
mod quantity;
mod reader;
mod routes;
mod script;
mod settings;
mod told;
mod topology;
mod transport;
mod workload;

#[cfg(test)]
mod tests;

pub use anabranch_sim::profile::Profile;
pub use beside::Named;
pub(crate) use beside::copy_of;
pub use document::{Document, Entry, Node, Place, Value};
pub use links::{Cellular, Change, Direction, FULL_PACKET};
pub use mistake::{Mistake, nearest};
pub use quantity::{Dimension, Quantity, QuantityError};
pub use settings::Settings;
pub use told::Told;
pub use topology::{
    Action, CLIENT, Event, Interface, NetLink, NetNode, NetPath, Network, NodeKind, SERVER, Sides,
    Usage, names,
};
pub use transport::{KINDS, Kind, Transport};
pub(crate) use transport::{are_read, flow_keys_are_read};
pub use workload::{Background, BackgroundKind, Flow, FlowKind, Marks, Start, TcpCongestion, Way};

use reader::{Context, Item};
use std::cell::RefCell;
use std::time::Duration;

/// The version of the file format that this program reads.
pub const FORMAT: u64 = 1;

/// The commented scenario written by `anabranch sim new`.
pub const TEMPLATE: &str = include_str!("../../../scenarios/template.toml");

/// Top-level keys that a plan consumes before a scenario is read.
pub(crate) const PLANNING: [&str; 4] = ["contenders", "sweep", "repeat", "singles"];

/// One experiment without variations: a network, a transport, a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Virtual time at which an unfinished run counts as timed out.
    pub stop: Duration,
    /// The network.
    pub network: Network,
    /// Events on the network, in order of time.
    pub events: Vec<Event>,
    /// The flows that are measured.
    pub flows: Vec<Flow>,
    /// Traffic beside the flows, of which only the rate is measured.
    pub background: Vec<Background>,
    /// The transport that carries the flows.
    pub transport: Transport,
    /// Requirements on the results.
    pub checks: Vec<Check>,
    /// What is recorded.
    pub record: Record,
    /// The files it names, with their content.
    pub files: Vec<Named>,
}

/// What a run records besides its totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Length of a bin of the time series; `None` for no series.
    pub series: Option<Duration>,
    /// How long each unit took: a file, a request or a datagram.
    pub units: bool,
    /// Every decision of the scheduler.
    pub decisions: bool,
    /// A qlog file for each connection.
    pub qlog: bool,
}

/// A bound that a figure must reach or stay below.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The figure that is compared.
    pub metric: Metric,
    /// What it is compared with.
    pub of: Reference,
    /// The least allowed multiple of the reference, if given.
    pub at_least: Option<f64>,
    /// The largest allowed multiple of the reference, if given.
    pub at_most: Option<f64>,
}

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Goodput in bits per second.
    Goodput,
    /// Completion time in seconds.
    Completion,
}

/// What a figure is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The sum of the rates of the paths' slowest links.
    SumOfRates,
    /// The best path alone.
    BestSingle,
    /// Another contender of the same repetition.
    Contender(String),
}

impl Scenario {
    /// Reads a document from which a plan has taken its own keys.
    ///
    /// # Errors
    /// The first [`Mistake`] found.
    pub fn read(document: &Document) -> Result<Self, Mistake> {
        let parameters = parameters(document)?;
        let context = Context {
            file: &document.file,
            parameters: &parameters,
            names: &document.names,
            files: RefCell::default(),
        };
        let root = Item::root(&context, &document.root);
        let mut table = root.table()?;
        let format = table.required("format", "expected format = 1")?;
        format.count(FORMAT..=FORMAT)?;
        let name = table.required("name", "expected a name for the results")?;
        let name = name.text()?.to_owned();
        table.item("about");
        table.item("parameters");
        for planned in PLANNING {
            table.item(planned);
        }
        let stop = table.required("stop", "expected a limit of virtual time such as \"120s\"")?;
        let stop = stop.time()?;
        let (nodes, links, paths) = (table.item("node"), table.item("link"), table.item("path"));
        let network = topology::network(nodes.as_ref(), links.as_ref(), paths.as_ref(), &root)?;
        let events = script::events(table.item("event").as_ref(), &network)?;
        let flows = workload::flows(table.item("flow").as_ref(), &root)?;
        let background = workload::background(table.item("background").as_ref(), &network)?;
        let transport = transport::transport(table.item("transport").as_ref(), &network)?;
        let checks = table.read("check", checks)?.unwrap_or_default();
        let record = table.read("record", record)?.unwrap_or_default();
        table.finish()?;
        Ok(Self {
            name,
            stop,
            network,
            events,
            flows,
            background,
            transport,
            checks,
            record,
            files: context.files.into_inner(),
        })
    }

    /// Whether anything in it is random, so that repetitions differ.
    pub fn is_random(&self) -> bool {
        let link = |link: &NetLink| link.forward.is_random() || link.backward.is_random();
        self.network.links.iter().any(link)
            || self.flows.iter().any(|flow| flow.start.is_random())
            || self.background.iter().any(|background| {
                background.start.is_random()
                    || matches!(background.kind, BackgroundKind::Web { .. })
            })
    }

    /// Whether a round trip between these ends takes time throughout the run: some link on the way
    /// has a rate, or a delay that no event sets to zero.
    pub fn takes_time(&self, [near, far]: [Interface; 2]) -> bool {
        let lasts = |&(link, forward): &(usize, bool)| {
            let side = usize::from(!forward);
            let line = &self.network.links[link];
            let line = [&line.forward, &line.backward][side];
            let ended = self.events.iter().any(|event| {
                event.link == link && script::delay(event, side) == Some(Duration::ZERO)
            });
            line.rate().is_some() || (!line.link.delay.is_zero() && !ended)
        };
        [[near, far], [far, near]]
            .into_iter()
            .filter_map(|ends| self.network.way(ends))
            .any(|way| way.iter().any(lasts))
    }

    /// The rate of the narrowest link of a path in this direction, in bits per second; `None` if
    /// all links are unlimited.
    pub fn path_rate(&self, path: usize, way: Way) -> Option<u64> {
        self.network.path_rate(path, way)
    }

    /// The most that all paths carry together in the direction of the flows, in bits per second.
    /// Each shared link counts once. If flows go both ways, both directions are added up. `None` if
    /// it is unlimited.
    pub fn sum_of_rates(&self) -> Option<u64> {
        let used = |way| self.flows.iter().any(|flow| flow.way == way);
        let ways = [Way::Forward, Way::Backward].into_iter();
        ways.filter(|way| used(*way))
            .map(|way| self.network.joint_rate(way))
            .sum()
    }
}

impl Default for Record {
    fn default() -> Self {
        Self {
            series: Some(Duration::from_millis(100)),
            units: false,
            decisions: false,
            qlog: false,
        }
    }
}

/// Reads `[parameters]`: quantities that expressions may name. Each may use the ones before it.
fn parameters(document: &Document) -> Result<Vec<(String, Quantity)>, Mistake> {
    let mut known: Vec<(String, Quantity)> = Vec::new();
    let Some(Value::Table(entries)) = document.root.get("parameters").map(|node| &node.value)
    else {
        return Ok(known);
    };
    for entry in entries {
        let value = {
            let context = Context {
                file: &document.file,
                parameters: &known,
                names: &document.names,
                files: RefCell::default(),
            };
            let item = Item {
                context: &context,
                node: &entry.node,
                key: format!("parameters.{}", entry.key),
            };
            item.quantity()?
        };
        known.push((entry.key.clone(), value));
    }
    Ok(known)
}

fn record(item: &Item<'_>) -> Result<Record, Mistake> {
    let mut table = item.table()?;
    let series = table.read("series", |item| {
        if item.node.value == Value::Flag(false) {
            return Ok(None);
        }
        let bin = item.time()?;
        if bin < Duration::from_millis(1) {
            return Err(item.expected("at least 1ms, or false"));
        }
        Ok(Some(bin))
    })?;
    let record = Record {
        series: series.unwrap_or(Record::default().series),
        units: table.read("units", Item::flag)?.unwrap_or(false),
        decisions: table.read("decisions", Item::flag)?.unwrap_or(false),
        qlog: table.read("qlog", Item::flag)?.unwrap_or(false),
    };
    table.finish()?;
    Ok(record)
}

fn checks(item: &Item<'_>) -> Result<Vec<Check>, Mistake> {
    let mut table = item.table()?;
    let mut checks = Vec::new();
    for (key, metric) in [
        ("goodput", Metric::Goodput),
        ("completion", Metric::Completion),
    ] {
        for item in table.item(key).iter().flat_map(Item::list) {
            checks.push(check(&item, metric)?);
        }
    }
    table.finish()?;
    Ok(checks)
}

fn check(item: &Item<'_>, metric: Metric) -> Result<Check, Mistake> {
    let mut table = item.table()?;
    let of = table.required("of", "sum-of-rates, best-single or a contender")?;
    let of = match of.text()? {
        "sum-of-rates" => Reference::SumOfRates,
        "best-single" => Reference::BestSingle,
        other => Reference::Contender(other.to_owned()),
    };
    let at_least = table.read("at-least", Item::number)?;
    let at_most = table.read("at-most", Item::number)?;
    table.finish()?;
    if at_least.is_none() && at_most.is_none() {
        return Err(item.mistake("expected at-least or at-most"));
    }
    Ok(Check {
        metric,
        of,
        at_least,
        at_most,
    })
}
