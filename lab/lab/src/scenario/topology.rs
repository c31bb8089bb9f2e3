//! Nodes, links, paths and the events that affect them.

use super::document::Node;
use super::links::{self, Change, Direction};
use super::mistake::{Mistake, nearest};
use super::reader::Item;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The client's name among the nodes.
pub const CLIENT: &str = "client";
/// The server's name among the nodes.
pub const SERVER: &str = "server";

/// The most nodes, links or paths: far more than any experiment needs.
const MOST: usize = 64;

/// How a node handles packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Ends connections.
    Host,
    /// Forwards packets.
    Router,
    /// Forwards packets under its own addresses.
    Nat,
}

/// A node of the graph. The first two are the client and the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetNode {
    /// Its name.
    pub name: String,
    /// What it does.
    pub kind: NodeKind,
}

/// A link between two nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct NetLink {
    /// Its name.
    pub name: String,
    /// Its ends, as indices of nodes: forward is from the first to the second.
    pub ends: (usize, usize),
    /// From the first end to the second.
    pub forward: Direction,
    /// From the second end to the first.
    pub backward: Direction,
}

/// A node's end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// The node, as an index.
    pub node: usize,
    /// The link, as an index.
    pub link: usize,
}

/// How the user wants a path to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Whether it is a backup.
    pub backup: bool,
    /// The user's weight.
    pub weight: u32,
    /// The user's priority.
    pub priority: i32,
    /// The user's cost.
    pub cost: u32,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            backup: false,
            weight: 1,
            priority: 0,
            cost: 0,
        }
    }
}

impl Usage {
    /// The numbers that are not the usual ones, by their names in scenarios.
    pub fn unusual(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let named = |usage: &Self| {
            [
                ("weight", i64::from(usage.weight)),
                ("priority", i64::from(usage.priority)),
                ("cost", i64::from(usage.cost)),
            ]
        };
        let usual = named(&Self::default());
        named(self)
            .into_iter()
            .filter(move |number| !usual.contains(number))
    }
}

/// A path the client opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetPath {
    /// Its name.
    pub name: String,
    /// The link by which it leaves the client, as an index.
    pub client_link: usize,
    /// The link by which it enters the server, as an index.
    pub server_link: usize,
    /// When the client opens it.
    pub opens: Duration,
    /// How it is used.
    pub usage: Usage,
}

/// The network of a scenario.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Network {
    /// The nodes; 0 is the client, 1 the server.
    pub nodes: Vec<NetNode>,
    /// The links.
    pub links: Vec<NetLink>,
    /// The paths.
    pub paths: Vec<NetPath>,
}

/// Which directions an event touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sides {
    /// From the first end to the second.
    Forward,
    /// From the second end to the first.
    Backward,
    /// Both.
    Both,
}

/// Something that happens to the network at a given time.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When, in virtual time.
    pub at: Duration,
    /// To which link, as an index.
    pub link: usize,
    /// What happens.
    pub action: Action,
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The link loses everything silently.
    Down(Sides),
    /// The link carries again.
    Up(Sides),
    /// The interface goes down, and hosts notice.
    AdminDown,
    /// The interface comes back up.
    AdminUp,
    /// Properties change; packets in flight are not affected.
    Set(Sides, Box<Change>),
    /// The client's address on the link changes.
    Handover,
    /// The NAT at an end of the link forgets its mappings.
    Rebind,
}

impl Network {
    /// The link of this name.
    pub fn link_named(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }

    /// The path of this name.
    pub fn path_named(&self, name: &str) -> Option<usize> {
        self.paths.iter().position(|path| path.name == name)
    }

    pub(super) fn link_item(&self, item: &Item<'_>) -> Result<usize, Mistake> {
        let names = self.links.iter().map(|link| link.name.as_str());
        find(item, "link", names)
    }

    pub(super) fn path_item(&self, item: &Item<'_>) -> Result<usize, Mistake> {
        let names = self.paths.iter().map(|path| path.name.as_str());
        find(item, "path", names)
    }

    fn node_item(&self, item: &Item<'_>) -> Result<usize, Mistake> {
        find(
            item,
            "node",
            self.nodes.iter().map(|node| node.name.as_str()),
        )
    }

    pub(super) fn host_item(&self, item: &Item<'_>) -> Result<usize, Mistake> {
        let hosts = self.nodes.iter().filter(|node| node.kind == NodeKind::Host);
        find(item, "host", hosts.map(|node| node.name.as_str()))?;
        self.node_item(item)
    }
}

fn find<'n>(
    item: &Item<'_>,
    kind: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<usize, Mistake> {
    let wanted = item.text()?;
    names
        .clone()
        .position(|name| name == wanted)
        .ok_or_else(|| {
            let known = names.clone().collect::<Vec<_>>().join(", ");
            let mut mistake = item.mistake(format!(
                "there is no {kind} `{wanted}`: expected one of {known}"
            ));
            mistake.hint = nearest(wanted, names);
            mistake
        })
}

/// Reads nodes, links and paths.
pub(super) fn network(
    nodes: Option<&Item<'_>>,
    links: Option<&Item<'_>>,
    paths: Option<&Item<'_>>,
    root: &Item<'_>,
) -> Result<Network, Mistake> {
    let host = |name: &str| NetNode {
        name: name.to_owned(),
        kind: NodeKind::Host,
    };
    let mut network = Network {
        nodes: vec![host(CLIENT), host(SERVER)],
        ..Network::default()
    };
    for item in nodes.map(Item::list).unwrap_or_default() {
        read_node(&mut network, &item)?;
    }
    for item in links.map(Item::list).unwrap_or_default() {
        read_link(&mut network, &item)?;
    }
    let Some(paths) = paths else {
        return Err(root.mistake("no [[path]]: expected at least one"));
    };
    for item in paths.list() {
        read_path(&mut network, &item)?;
    }
    for (count, what) in [
        (network.nodes.len(), "nodes"),
        (network.links.len(), "links"),
        (network.paths.len(), "paths"),
    ] {
        if count > MOST {
            return Err(root.mistake(format!("{count} {what}: at most {MOST}")));
        }
    }
    Ok(network)
}

fn named(item: &Item<'_>, taken: &[&str], unnamed: String) -> Result<String, Mistake> {
    let mut table = item.table()?;
    let Some(name) = table.item("name") else {
        return Ok(unnamed);
    };
    let text = name.text()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || !text.chars().all(fits) {
        return Err(name.expected("a name of letters, digits, - and _"));
    }
    if taken.contains(&text) {
        return Err(name.mistake(format!("the name `{text}` is taken")));
    }
    Ok(text.to_owned())
}

fn read_node(network: &mut Network, item: &Item<'_>) -> Result<(), Mistake> {
    let taken: Vec<&str> = network
        .nodes
        .iter()
        .map(|node| node.name.as_str())
        .collect();
    let name = named(item, &taken, format!("node{}", taken.len() + 1))?;
    let mut table = item.table()?;
    table.item("name");
    let kinds = [
        ("host", NodeKind::Host),
        ("router", NodeKind::Router),
        ("nat", NodeKind::Nat),
    ];
    let kind = table.read("kind", |item| item.word(&kinds))?;
    table.finish()?;
    network.nodes.push(NetNode {
        name,
        kind: kind.unwrap_or(NodeKind::Router),
    });
    Ok(())
}

fn read_link(network: &mut Network, item: &Item<'_>) -> Result<(), Mistake> {
    let taken: Vec<&str> = network
        .links
        .iter()
        .map(|link| link.name.as_str())
        .collect();
    let name = named(item, &taken, format!("link{}", taken.len() + 1))?;
    let mut table = item.table()?;
    table.item("name");
    let ends = table.required("ends", "the two nodes it connects, as [\"client\", \"r1\"]")?;
    let nodes = ends.list();
    let [first, second] = nodes.as_slice() else {
        return Err(ends.expected("the two nodes it connects"));
    };
    let pair = (network.node_item(first)?, network.node_item(second)?);
    if pair.0 == pair.1 {
        return Err(ends.expected("two different nodes"));
    }
    let (forward, backward) = links::directions(&mut table)?;
    table.finish()?;
    network.links.push(NetLink {
        name,
        ends: pair,
        forward,
        backward,
    });
    Ok(())
}

fn read_path(network: &mut Network, item: &Item<'_>) -> Result<(), Mistake> {
    let taken: Vec<&str> = network
        .paths
        .iter()
        .map(|path| path.name.as_str())
        .collect();
    let name = named(item, &taken, (taken.len() + 1).to_string())?;
    let mut table = item.table()?;
    table.item("name");
    let client = table.read("client", |item| network.link_item(item))?;
    let server = table.read("server", |item| network.link_item(item))?;
    let (client_link, server_link) = match (client, server) {
        (None, None) => {
            let (forward, backward) = links::directions(&mut table)?;
            if network.link_named(&name).is_some() {
                return Err(item.mistake(format!("a link is named `{name}` already")));
            }
            network.links.push(NetLink {
                name: name.clone(),
                ends: (0, 1),
                forward,
                backward,
            });
            (network.links.len() - 1, network.links.len() - 1)
        }
        (client, server) => {
            for key in ["forward", "backward"] {
                if table.item(key).is_some() {
                    return Err(item.mistake(
                        "a path over links of its own names has no rates: describe the links",
                    ));
                }
            }
            let (Some(client), Some(server)) = (client.or(server), server.or(client)) else {
                return Err(item.mistake("expected the links at both ends"));
            };
            (client, server)
        }
    };
    for (link, end, whose) in [(client_link, 0, CLIENT), (server_link, 1, SERVER)] {
        let ends = network.links[link].ends;
        if ends.0 != end && ends.1 != end {
            let name = &network.links[link].name;
            return Err(item.mistake(format!("the link `{name}` does not end at the {whose}")));
        }
    }
    let opens = table.read("opens", Item::time)?.unwrap_or_default();
    let backup = table.read("backup", Item::flag)?.unwrap_or(false);
    let weight = table.read("weight", |item| item.count(1..=1_000_000))?;
    let priority = table.read("priority", |item| item.count(0..=1_000_000))?;
    let cost = table.read("cost", |item| item.count(0..=1_000_000_000))?;
    table.finish()?;
    network.paths.push(NetPath {
        name,
        client_link,
        server_link,
        opens,
        usage: Usage {
            backup,
            weight: weight.unwrap_or(1) as u32,
            priority: priority.unwrap_or(0) as i32,
            cost: cost.unwrap_or(0) as u32,
        },
    });
    Ok(())
}

/// The names of the elements in a list of tables, for messages before the list is read.
pub fn names(root: &Node, list: &str) -> Vec<String> {
    use super::document::Value;
    let Some(Value::List(items)) = root.get(list).map(|node| &node.value) else {
        return Vec::new();
    };
    let name = |(at, item): (usize, &Node)| match item.get("name").map(|node| &node.value) {
        Some(Value::Text(name)) => name.clone(),
        _ => (at + 1).to_string(),
    };
    items.iter().enumerate().map(name).collect()
}
