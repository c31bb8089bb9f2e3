//! The rivals that a paper's experiment gets in real kernels.

use crate::scenario::{Document, Entry, Node, Place, Value};

/// Congestion controls that the kernel's TCP also has.
const COMMON: [&str; 3] = ["new-reno", "cubic", "bbr"];

/// The keys of `[transport]` that are conditions of the experiment and apply to all contenders. All
/// others configure the system under test.
const CONDITIONS: [&str; 3] = ["congestion", "receive-buffer", "send-buffer"];

/// The rivals that join paths.
const JOIN: [&str; 3] = ["tunnel", "kernel-mptcp", PROXY];

/// The rival for unmodified hosts.
const PROXY: &str = "mptcp-proxy";

/// Adds rivals to the contenders of a scenario: the kernel's multipath TCP over all paths, its TCP
/// over each path alone, the engine with its defaults, and TCP through the tunnel over all paths.
/// If the scenario has a tunnel of its own, it is about unmodified hosts, and they get the kernel's
/// multipath TCP behind a plain proxy pair too.
/// They get the scenario's buffers and its congestion control, or CUBIC if the kernel lacks that,
/// but nothing else of `[transport]`. Contenders that already have these names are left alone.
pub fn add_rivals(document: &mut Document) {
    let congestion = document
        .root
        .get("transport")
        .and_then(|transport| transport.get("congestion"))
        .and_then(|node| match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        });
    let congestion = congestion
        .filter(|name| COMMON.contains(&name.as_str()))
        .unwrap_or_else(|| "cubic".to_owned());
    let text = |text: &str| Node::given(Value::Text(text.to_owned()));
    let table = |entries: Vec<(&str, Node)>| {
        let entry = |(key, node): (&str, Node)| Entry {
            key: key.to_owned(),
            place: Place::Given,
            node,
        };
        Node::given(Value::Table(entries.into_iter().map(entry).collect()))
    };
    let mut rivals = vec![
        ("engine", table(vec![("profile", text("quic"))])),
        ("tunnel", table(vec![("kind", text("tunnel"))])),
        (
            "kernel-mptcp",
            table(vec![
                ("kind", text("mptcp")),
                ("congestion", text(&congestion)),
            ]),
        ),
        (
            PROXY,
            table(vec![
                ("kind", text("mptcp-proxy")),
                ("congestion", text(&congestion)),
            ]),
        ),
    ];
    let names = crate::scenario::names(&document.root, "path");
    let alone = names.iter().map(|name| text(name)).collect();
    rivals.push((
        "kernel-tcp",
        table(vec![
            ("kind", text("tcp")),
            ("congestion", text(&congestion)),
            ("paths", Node::given(Value::List(alone))),
        ]),
    ));
    if names.len() < 2 {
        // With one path there is nothing to do for what joins several.
        rivals.retain(|(name, _)| !JOIN.contains(name));
    }
    let mut contenders = document
        .root
        .remove("contenders")
        .unwrap_or_else(|| table(vec![("anabranch", table(Vec::new()))]));
    if !has_tunnel(&contenders) {
        rivals.retain(|(name, _)| *name != PROXY);
    }
    keep_to_own(document, &mut contenders);
    for (name, rival) in rivals {
        if contenders.get(name).is_none() {
            contenders.insert(name, rival);
        }
    }
    document.root.insert("contenders", contenders);
}

/// Whether one of these contenders is the tunnel, by its kind or by its name alone.
fn has_tunnel(contenders: &Node) -> bool {
    let Value::Table(contenders) = &contenders.value else {
        return false;
    };
    contenders.iter().any(|contender| {
        let kind = contender.node.get("kind").map(|node| &node.value);
        match kind {
            Some(Value::Text(kind)) => kind == "tunnel",
            Some(_) => false,
            None => contender.key == "tunnel",
        }
    })
}

/// Moves the settings of the system under test from `[transport]` to its contenders, and leaves the
/// conditions to all.
fn keep_to_own(document: &mut Document, contenders: &mut Node) {
    let Some(mut transport) = document.root.remove("transport") else {
        return;
    };
    if let Value::Table(entries) = &mut transport.value {
        let is_condition = |entry: &Entry| CONDITIONS.contains(&entry.key.as_str());
        let (conditions, own): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(entries).into_iter().partition(is_condition);
        *entries = conditions;
        hand_over(&own, contenders);
    }
    document.root.insert("transport", transport);
}

fn hand_over(own: &[Entry], contenders: &mut Node) {
    let Value::Table(contenders) = &mut contenders.value else {
        return;
    };
    for contender in contenders {
        for entry in own {
            if contender.node.get(&entry.key).is_none() {
                contender.node.insert(&entry.key, entry.node.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Changes, Plan};
    use crate::scenario::Kind;

    #[test]
    fn an_experiment_gets_the_kernels_rivals_beside_its_own_contenders() {
        let text = include_str!("../../../papers/nitk/nitk.toml");
        let mut document = Document::parse("nitk.toml", text).unwrap();
        add_rivals(&mut document);
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        let own = ["lowrtt", "rr", "blest"];
        let rivals = [
            "engine",
            "tunnel",
            "kernel-mptcp",
            "kernel-tcp path1",
            "kernel-tcp path2",
        ];
        assert_eq!(plan.contenders, [&own[..], &rivals[..]].concat());
        let run = |name: &str| plan.runs.iter().find(|run| run.contender == name).unwrap();
        let alone = &run("kernel-tcp path2").scenario.transport;
        assert_eq!((alone.kind, alone.paths.as_slice()), (Kind::Tcp, &[1][..]));
        let all = &run("kernel-mptcp").scenario.transport;
        assert_eq!((all.kind, all.paths.len()), (Kind::KernelMptcp, 2));
        assert_eq!(all.congestion.as_ref().unwrap().name, "cubic");
    }

    #[test]
    fn rivals_have_the_buffers_of_the_scenario_and_nothing_of_its_own_system() {
        let text = "format = 1\nname = \"x\"\nstop = \"9s\"\n[[path]]\n\
                    name = \"path1\"\n[[path]]\nname = \"path2\"\n[[flow]]\nkind = \"bulk\"\n\
                    bytes = \"1MB\"\n[transport]\nscheduler = \"redundant\"\n\
                    receive-buffer = \"64KiB\"\n[contenders]\ncopies = {}\n\
                    turns = { scheduler = \"round-robin\" }\n";
        let mut document = Document::parse("x.toml", text).unwrap();
        add_rivals(&mut document);
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        let of = |name: &str| {
            let run = plan.runs.iter().find(|run| run.contender == name).unwrap();
            &run.scenario.transport
        };
        let scheduler = |name: &str| of(name).scheduler.as_ref().map(|s| s.name.clone());
        assert_eq!(scheduler("copies").as_deref(), Some("redundant"));
        assert_eq!(scheduler("turns").as_deref(), Some("round-robin"));
        assert_ne!(scheduler("engine").as_deref(), Some("redundant"));
        let buffers = ["copies", "engine", "kernel-mptcp", "kernel-tcp path1"]
            .map(|name| of(name).settings.receive_buffer);
        assert!(
            buffers.iter().all(|&size| size == Some(64 << 10)),
            "{buffers:?}"
        );
    }

    #[test]
    fn unmodified_hosts_get_a_proxy_of_multipath_tcp_too() {
        let text = "format = 1\nname = \"x\"\nstop = \"9s\"\n[[path]]\nname = \"path1\"\n\
                    [[path]]\nname = \"path2\"\n[[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n\
                    [contenders]\ntunnel = {}\n";
        let with = |own: &str| {
            let mut document =
                Document::parse("x.toml", &text.replace("tunnel = {}", own)).unwrap();
            add_rivals(&mut document);
            let plan = Plan::make(&document, &Changes::default()).unwrap();
            let proxy = plan.runs.iter().find(|run| run.contender == PROXY);
            proxy.map(|run| run.scenario.transport.kind)
        };
        let proxy = Some(Kind::MptcpProxy);
        assert_eq!(with("tunnel = {}"), proxy);
        assert_eq!(with("behind = { kind = \"tunnel\" }"), proxy);
        assert_eq!(with("tunnel = { kind = \"anabranch\" }"), None);
        assert_eq!(with("anabranch = {}"), None);
    }

    #[test]
    fn a_scenario_without_contenders_keeps_its_own_and_a_coupled_control_becomes_cubic() {
        let text = "format = 1\nname = \"x\"\nstop = \"9s\"\n[[path]]\n[[flow]]\nkind = \"bulk\"\n\
                    bytes = \"1MB\"\n[transport]\ncongestion = \"lia\"\n";
        let mut document = Document::parse("x.toml", text).unwrap();
        add_rivals(&mut document);
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        assert_eq!(plan.contenders, ["anabranch", "engine", "kernel-tcp"]);
        let tcp = plan.runs.iter().find(|run| run.contender == "kernel-tcp");
        let congestion = &tcp.unwrap().scenario.transport.congestion;
        assert_eq!(congestion.as_ref().unwrap().name, "cubic");
    }
}
