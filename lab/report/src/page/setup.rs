//! What was run: the network, the traffic, the contenders. Each value of a sweep is named once.

use crate::load::Folder;
use anabranch_lab::scenario::{
    Document, NetLink, NetNode, NetPath, Node, NodeKind, Scenario, Told, Value,
};
use std::sync::Arc;

/// The most values of a sweep that are listed one by one.
const SHOWN: usize = 8;

/// A campaign in words.
pub(crate) struct Setup {
    pub(crate) facts: Vec<(String, Vec<String>)>,
    pub(crate) links: Vec<LinkRow>,
    /// The scenario file as it was read.
    pub(crate) scenario: String,
}

/// One direction of a link, or both if they are equal.
pub(crate) struct LinkRow {
    pub(crate) name: String,
    pub(crate) ends: String,
    /// Rate, delay, queue and loss.
    pub(crate) cells: [String; 4],
}

impl Setup {
    /// The setup of a folder of results.
    pub(crate) fn of(folder: &Folder) -> Self {
        let scenarios = scenarios(folder);
        let mut facts = Vec::new();
        if let Some(first) = scenarios.first() {
            facts.extend(network(first));
        }
        if folder.backend == "host" {
            let text = "those that exist; rates, delays and losses are what the scenario expects";
            facts.push(("links".to_owned(), vec![text.to_owned()]));
        }
        let text = &folder.plan.expanded;
        // It was valid when the folder was read.
        if let Ok(document) = Document::parse("campaign.toml", text) {
            facts.extend(sent(&document.root, folder));
        }
        Self {
            facts,
            links: links(&scenarios),
            scenario: text.clone(),
        }
    }
}

/// One scenario for each point of the sweep. One contender is enough, since all have the same
/// network.
fn scenarios(folder: &Folder) -> Vec<&Arc<Scenario>> {
    let runs = &folder.plan.runs;
    let first = runs.first().map(|run| (&run.contender, run.repetition));
    let of_first = runs
        .iter()
        .filter(|run| Some((&run.contender, run.repetition)) == first);
    of_first.map(|run| &run.scenario).collect()
}

/// The nodes between the hosts, and the route of each path.
fn network(scenario: &Scenario) -> Vec<(String, Vec<String>)> {
    let network = &scenario.network;
    let between: Vec<String> = network.nodes.iter().skip(2).map(node).collect();
    let ways = network.paths.iter().enumerate();
    let ways = ways.map(|(at, path)| {
        let links = network.route(at).unwrap_or_default();
        let links = links.iter().map(|(link, _)| &network.links[*link]);
        way(path, &links.collect::<Vec<_>>())
    });
    let mut facts = vec![("paths".to_owned(), ways.collect())];
    if !between.is_empty() {
        facts.push(("nodes between".to_owned(), vec![between.join(", ")]));
    }
    facts
}

fn node(node: &NetNode) -> String {
    let kind = match node.kind {
        NodeKind::Host => "host",
        NodeKind::Router => "router",
        NodeKind::Nat => "NAT",
    };
    format!("{} ({kind})", node.name)
}

fn way(path: &NetPath, links: &[&NetLink]) -> String {
    let name = &path.name;
    let mut parts = match links {
        [link] if link.name == *name => vec![format!("{name}: a link of its own")],
        _ => {
            let links: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            vec![format!("{name}: over {}", links.join(", "))]
        }
    };
    if path.usage.backup {
        parts.push("a backup".to_owned());
    }
    if !path.opens.is_zero() {
        parts.push(format!("opens after {} s", path.opens.as_secs_f64()));
    }
    let numbers = path.usage.unusual();
    parts.extend(numbers.map(|(what, value)| format!("{what} {value}")));
    parts.join("; ")
}

/// Everything in the file except links.
fn sent(root: &Node, folder: &Folder) -> Vec<(String, Vec<String>)> {
    let each = |key: &str| match root.get(key).map(|node| &node.value) {
        Some(Value::List(items)) => items.iter().map(words).collect(),
        Some(Value::Table(entries)) => {
            let entries = entries.iter().filter(|entry| entry.key != "zip");
            let entry = entries.map(|entry| format!("{}: {}", entry.key, words(&entry.node)));
            entry.collect()
        }
        _ => Vec::new(),
    };
    let whole = |key: &str| root.get(key).map(words).into_iter().collect::<Vec<_>>();
    let zip = root.get("sweep").and_then(|sweep| sweep.get("zip"));
    let mut swept: Vec<String> = each("sweep");
    if let Some(Value::List(items)) = zip.map(|zip| &zip.value) {
        let together = |item| format!("together: {}", words(item));
        swept.extend(items.iter().map(together));
    }
    let mut contenders: Vec<String> = each("contenders");
    if contenders.is_empty() {
        contenders.clone_from(&folder.plan.contenders);
    }
    if folder.plan.runs.iter().any(|run| run.single) {
        contenders.push("and each path alone".to_owned());
    }
    let facts = [
        ("flows", each("flow")),
        ("traffic beside them", each("background")),
        ("events", each("event")),
        ("contenders", contenders),
        ("all contenders", whole("transport")),
        ("parameters", each("parameters")),
        ("swept", swept),
        ("repeated", whole("repeat")),
        ("demanded", each("check")),
        ("recorded", whole("record")),
        ("limit of a run", whole("stop")),
    ];
    let facts = facts.into_iter().filter(|(_, values)| !values.is_empty());
    facts
        .map(|(name, values)| (name.to_owned(), values))
        .collect()
}

/// A value of the file without its punctuation.
fn words(node: &Node) -> String {
    match &node.value {
        Value::Table(entries) => {
            let word = |entry: &anabranch_lab::scenario::Entry| match entry.key.as_str() {
                "kind" => words(&entry.node),
                key => format!("{key} {}", words(&entry.node)),
            };
            entries.iter().map(word).collect::<Vec<_>>().join(", ")
        }
        Value::List(items) => items.iter().map(words).collect::<Vec<_>>().join(" / "),
        _ => node.plain(),
    }
}

/// A row for each link, or two if its directions differ, over all points.
fn links(scenarios: &[&Arc<Scenario>]) -> Vec<LinkRow> {
    let Some(first) = scenarios.first() else {
        return Vec::new();
    };
    let network = &first.network;
    let rows = network.links.iter().enumerate().flat_map(|(at, link)| {
        let told = |get: fn(&NetLink) -> Told| {
            let all = scenarios.iter().filter_map(|one| one.network.links.get(at));
            let all: Vec<[String; 4]> = all.map(get).map(cells).collect();
            [0, 1, 2, 3].map(|cell| distinct(all.iter().map(|cells| cells[cell].as_str())))
        };
        let ends = [link.ends.0, link.ends.1].map(|node| network.nodes[node].name.as_str());
        let row = |ends: String, cells: [String; 4]| LinkRow {
            name: link.name.clone(),
            ends,
            cells,
        };
        let [there, back] = [
            told(|link| link.forward.told()),
            told(|link| link.backward.told()),
        ];
        if there == back {
            return vec![row(format!("{} ↔ {}", ends[0], ends[1]), there)];
        }
        vec![
            row(format!("{} → {}", ends[0], ends[1]), there),
            row(format!("{} → {}", ends[1], ends[0]), back),
        ]
    });
    rows.collect()
}

fn cells(told: Told) -> [String; 4] {
    [told.rate, told.delay, told.queue, told.loss]
}

/// Each value once, in order of first appearance.
fn distinct<'t>(values: impl Iterator<Item = &'t str>) -> String {
    let mut found: Vec<&str> = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    let more = found.len() > SHOWN;
    found.truncate(SHOWN);
    if more {
        found.push("…");
    }
    found.join(" / ")
}
