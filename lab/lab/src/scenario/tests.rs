//! What scenarios mean, and twenty ways to get one wrong.

use super::*;

const GOOD: &str = r#"format = 1
name = "two"
stop = "60s"

[[path]]
name = "dsl"
forward = { rate = "10Mbit/s", delay = "10ms", queue = "50ms" }
backward = { rate = "1Mbit/s", delay = "250ms", queue = "64KiB", loss = "0.1%" }

[[path]]
name = "lte"
forward = { rate = "20Mbit/s", delay = "40ms", jitter = { sd = "8ms" } }
backward = { like = "forward", delay = "20ms" }

[[event]]
at = "20s"
path = "lte"
down = "forward"

[[flow]]
kind = "bulk"
bytes = "10MB"
start = { uniform = ["0s", "0.5s"] }

[transport]
scheduler = "min-rtt"
congestion = "cubic"
"#;

fn read(text: &str) -> Result<Scenario, Mistake> {
    Document::parse("s.toml", text).and_then(|document| Scenario::read(&document))
}

#[test]
fn a_scenario_means_what_it_says() {
    let scenario = read(GOOD).unwrap();
    assert_eq!(scenario.network.paths.len(), 2);
    assert_eq!(scenario.network.links[0].forward.rate(), Some(10_000_000));
    assert_eq!(scenario.sum_of_rates(), Some(30_000_000));
    let queue = scenario.network.links[0].forward.link.queue;
    assert_eq!(queue, anabranch_link::Queue::TailDropBytes(62_500));
    let lte = &scenario.network.links[1];
    assert_eq!(lte.backward.rate(), lte.forward.rate());
    assert_eq!(lte.backward.link.delay, Duration::from_millis(20));
    assert_eq!(lte.backward.link.jitter, lte.forward.link.jitter);
    assert_eq!(scenario.flows[0].kind, FlowKind::BulkBytes(10_000_000));
    assert_eq!(scenario.events[0].action, Action::Down(Sides::Forward));
    assert!(scenario.is_random());
}

#[test]
fn expressions_use_parameters_and_earlier_parameters() {
    let text = GOOD
        .replace(
            "\n[[path]]\nname = \"dsl\"",
            "\n[parameters]\nrtt = \"50ms\"\nscale = 2\n\
             real = \"=rtt * scale\"\n\n[[path]]\nname = \"dsl\"",
        )
        .replace("delay = \"10ms\"", "delay = \"=real / 2\"");
    let scenario = read(&text).unwrap();
    assert_eq!(
        scenario.network.links[0].forward.link.delay,
        Duration::from_millis(50)
    );
}

#[test]
fn graphs_have_paths_over_shared_links() {
    let text = r#"
format = 1
name = "shared"
stop = "10s"
[[node]]
name = "gateway"
kind = "router"
[[link]]
name = "usb0"
ends = ["client", "gateway"]
forward = { rate = "50Mbit/s" }
[[link]]
name = "core"
ends = ["gateway", "server"]
forward = { rate = "18.4Mbit/s", queue = "100packets" }
backward = { like = "forward" }
[[link]]
name = "eth0"
ends = ["client", "server"]
[[path]]
name = "usb0"
client = "usb0"
server = "core"
[[path]]
name = "eth0"
client = "eth0"
server = "eth0"
[[flow]]
kind = "bulk"
duration = "5s"
"#;
    let scenario = read(text).unwrap();
    assert_eq!(scenario.network.nodes.len(), 3);
    assert_eq!(scenario.path_rate(0, Way::Forward), Some(18_400_000));
    assert_eq!(scenario.path_rate(1, Way::Forward), None);
}

#[test]
fn a_round_trip_takes_time_if_a_link_there_or_back_does() {
    // The way there leads over `a`, the way back over `b`: each end takes the link described first.
    let text = r#"
format = 1
name = "apart"
stop = "10s"
[[node]]
name = "r1"
[[node]]
name = "a"
[[node]]
name = "b"
[[node]]
name = "r2"
[[link]]
name = "near"
ends = ["client", "r1"]
[[link]]
name = "r1-a"
ends = ["r1", "a"]
backward = { delay = "1ms" }
[[link]]
name = "b-r2"
ends = ["b", "r2"]
[[link]]
name = "r1-b"
ends = ["r1", "b"]
[[link]]
name = "a-r2"
ends = ["a", "r2"]
[[link]]
name = "far"
ends = ["r2", "server"]
[[path]]
name = "only"
client = "near"
server = "far"
[[flow]]
kind = "bulk"
duration = "5s"
"#;
    let takes_time = |text: &str| {
        let scenario = read(text).unwrap();
        scenario.takes_time(scenario.network.path_ends(0))
    };
    assert!(!takes_time(text));
    assert!(takes_time(&text.replace("backward =", "forward =")));
    let b = "ends = [\"r1\", \"b\"]\n";
    assert!(takes_time(&text.replace(
        b,
        &format!("{b}backward = {{ rate = \"1Mbit/s\" }}\n")
    )));
}

/// The text that is replaced, its replacement, and what the message must contain.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    (
        "format = 1",
        "format = 2",
        &["s.toml:1:10", "from 1 to 1", "found 2"],
    ),
    ("name = \"two\"\n", "", &["`name` is missing"]),
    (
        "stop = \"60s\"",
        "stpo = \"60s\"",
        &["s.toml:3:1", "`stop` is missing", "is `stpo` meant for it?"],
    ),
    (
        "stop = \"60s\"",
        "stop = 60",
        &["s.toml:3:8", "stop", "a time with its unit", "60 without"],
    ),
    (
        "stop = \"60s\"",
        "stop = \"60sec\"",
        &["no unit `sec`", "did you mean `s`"],
    ),
    (
        "rate = \"10Mbit/s\"",
        "rate = \"10Mb\"",
        &[
            "s.toml:7",
            "path.dsl.forward.rate",
            "`Mb`",
            "did you mean `MB`",
        ],
    ),
    (
        "rate = \"10Mbit/s\"",
        "rate = \"10mbps\"",
        &["`mbps`", "did you mean `Mbit/s`"],
    ),
    (
        "rate = \"10Mbit/s\"",
        "rate = 10",
        &["a rate with its unit", "found 10"],
    ),
    (
        "rate = \"10Mbit/s\"",
        "rate = \"0Mbit/s\"",
        &["from 1bit/s", "take the link down"],
    ),
    (
        "delay = \"10ms\"",
        "dealy = \"10ms\"",
        &["s.toml:7", "no key `dealy`", "did you mean `delay`"],
    ),
    (
        "queue = \"50ms\"",
        "queue = 50",
        &["s.toml:7", "a queue such as"],
    ),
    (
        "loss = \"0.1%\"",
        "loss = 2",
        &["s.toml:8", "a share from 0 to 1"],
    ),
    (
        "jitter = { sd = \"8ms\" }",
        "jitter = { sd = \"8ms\", uniform = \"1ms\" }",
        &["one of uniform and sd"],
    ),
    (
        "like = \"forward\"",
        "like = \"forwards\"",
        &["one of forward", "did you mean `forward`"],
    ),
    (
        "path = \"lte\"",
        "path = \"let\"",
        &["s.toml:17:8", "no path `let`", "did you mean `lte`"],
    ),
    (
        "down = \"forward\"",
        "down = \"forward\"\nhandover = true",
        &["one of down, up, set"],
    ),
    (
        "kind = \"bulk\"",
        "kind = \"bluk\"",
        &["one of bulk, files", "did you mean `bulk`"],
    ),
    (
        "bytes = \"10MB\"",
        "bytes = \"10MB\"\nduration = \"5s\"",
        &["flow.1", "one of bytes and duration"],
    ),
    (
        "uniform = [\"0s\", \"0.5s\"]",
        "uniform = [\"1s\", \"0.5s\"]",
        &["the smaller one first"],
    ),
    (
        "scheduler = \"min-rtt\"",
        "scheduler = \"min-rrt\"",
        &["s.toml:26", "did you mean `min-rtt`"],
    ),
    (
        "congestion = \"cubic\"",
        "congestion = \"cubic:betta=1\"",
        &["no parameter `betta`"],
    ),
    (
        "[transport]",
        "[transports]",
        &[
            "s.toml:25",
            "no key `transports`",
            "did you mean `transport`",
        ],
    ),
    ("name = \"lte\"", "name = \"dsl\"", &["`dsl` is taken"]),
    (
        "delay = \"10ms\"",
        "delay = \"=rtt / 2\"",
        &["no parameter `rtt`"],
    ),
    ("stop = \"60s\"", "stop = = 3", &["s.toml:3"]),
    (
        "down = \"forward\"",
        "nat-rebind = true",
        &["s.toml:18", "nat-rebind", "no NAT", "kind = \"nat\""],
    ),
    (
        "down = \"forward\"",
        "down = \"both\"\ndirection = \"forward\"",
        &["s.toml:19", "direction", "goes with set and fade"],
    ),
    (
        "down = \"forward\"",
        "set = { burst = \"10kB\" }",
        &["s.toml:18", "a burst needs a rate"],
    ),
    (
        "down = \"forward\"",
        "set = {}",
        &["s.toml:18", "at least one property"],
    ),
    (
        "down = \"forward\"",
        "fade = { to = \"1Mbit/s\" }",
        &["s.toml:18", "`over` is missing"],
    ),
    (
        "congestion = \"cubic\"",
        "profile = \"stripe\"",
        &[
            "s.toml:26",
            "a stripe does not run",
            "round-robin, weighted",
        ],
    ),
    (
        "congestion = \"cubic\"",
        "penalise = true\nopportunistic-retransmission = false",
        &[
            "s.toml:27",
            "penalise",
            "opportunistic-retransmission = true",
        ],
    ),
];

/// A gateway between two links.
const GRAPH: &str = r#"format = 1
name = "graph"
stop = "10s"
[[node]]
name = "r"
kind = "nat"
[[link]]
name = "access"
ends = ["client", "r"]
forward = { rate = "5Mbit/s" }
backward = { like = "forward" }
[[link]]
name = "other"
ends = ["client", "r"]
forward = { rate = "5Mbit/s" }
backward = { like = "forward" }
[[node]]
name = "s"
[[link]]
name = "core"
ends = ["r", "s"]
forward = { rate = "2Mbit/s" }
backward = { like = "forward", rate = "3Mbit/s" }
[[link]]
name = "last"
ends = ["s", "server"]
[[path]]
name = "one"
client = "access"
server = "last"
[[path]]
name = "two"
client = "other"
server = "last"
[[flow]]
kind = "bulk"
bytes = "1MB"
"#;

#[test]
fn an_event_that_would_do_nothing_is_a_mistake() {
    let event = |what: &str| {
        let text = format!("{GRAPH}[[event]]\nat = \"1s\"\n{what}\n");
        read(&text).map(|scenario| scenario.events)
    };
    let message = |what: &str| event(what).unwrap_err().to_string();
    let told = message("link = \"core\"\nhandover = true");
    for part in [
        "s.toml:41:",
        "no address on the link `core`",
        "access, other",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let told = message("link = \"last\"\nnat-rebind = true");
    for part in [
        "s.toml:41:",
        "no NAT at an end of the link `last`",
        "access, other, core",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let told = message("link = \"last\"\nset = { queue = \"50ms\" }");
    assert!(told.contains("needs a rate"), "{told}");
    let told = message("link = \"last\"\nset = { loss-per = \"slot\" }");
    assert!(told.contains("has no rate"), "{told}");
    let told = message("link = \"last\"\nfade = { to = \"1Mbit/s\", over = \"1s\" }");
    assert!(told.contains("expected `from`"), "{told}");
    assert_eq!(event("path = \"one\"\nhandover = true").unwrap().len(), 1);
    let rebound = event("path = \"one\"\nnat-rebind = true").unwrap();
    assert_eq!((rebound[0].link, &rebound[0].action), (0, &Action::Rebind));
}

#[test]
fn a_fade_is_a_change_of_the_rate_in_steps_from_what_it_is_by_then() {
    let text = GOOD.replace(
        "down = \"forward\"",
        "set = { rate = \"8Mbit/s\" }\n[[event]]\nat = \"30s\"\npath = \"lte\"\ndirection = \
         \"forward\"\nfade = { to = \"2Mbit/s\", over = \"2s\", steps = 3 }",
    );
    let scenario = read(&text).unwrap();
    let mut link = scenario.network.links[1].forward.link.clone();
    let mut seen = Vec::new();
    for event in &scenario.events {
        let Action::Set(sides, change) = &event.action else {
            panic!("{event:?}");
        };
        assert_ne!(*sides, Sides::Backward);
        link = change.applied_to(&link);
        let rate = Direction {
            link: link.clone(),
            cellular: None,
        }
        .rate();
        seen.push((event.at.as_secs(), rate.unwrap()));
    }
    let steps = [
        (20, 8_000_000),
        (30, 6_000_000),
        (31, 4_000_000),
        (32, 2_000_000),
    ];
    assert_eq!(seen, steps);
}

#[test]
fn every_property_that_an_event_sets_is_set() {
    use anabranch_link::{LossClock, LossPlace, Rate};
    let changed = |set: &str| {
        let text = GOOD
            .replace("down = \"forward\"", &format!("set = {{ {set} }}"))
            .replace("path = \"lte\"\n", "path = \"dsl\"\n")
            .replace(
                "queue = \"50ms\" }",
                "queue = \"50ms\", burst = \"9kB\", loss = \"1%\" }",
            );
        let scenario = read(&text).unwrap();
        let Action::Set(_, change) = &scenario.events[0].action else {
            panic!("{:?}", scenario.events);
        };
        let before = &scenario.network.links[0].forward.link;
        (before.clone(), change.applied_to(before))
    };
    let (before, after) = changed("loss-per = \"packet\"");
    assert_ne!(before.loss_clock, LossClock::Packet);
    assert_eq!(after.loss_clock, LossClock::Packet);
    let (_, after) = changed("loss-place = \"before-queue\"");
    assert_eq!(after.loss_place, LossPlace::BeforeQueue);
    let (_, after) = changed("jitter = { uniform = \"3ms\", reorder = true }");
    assert!(after.reorder);
    // The bucket keeps its burst, and a loss slot becomes the time of a packet at the new rate.
    let (before, after) = changed("rate = \"20Mbit/s\"");
    let (Rate::Fixed { burst, .. }, LossClock::Slot(slot)) = (&after.rate, after.loss_clock) else {
        panic!("{after:?}");
    };
    assert_eq!((*burst, slot.get()), (9000, 600_000));
    assert_ne!(before.loss_clock, after.loss_clock);
    let (_, after) = changed("rate = \"20Mbit/s\", burst = \"1kB\"");
    assert!(matches!(after.rate, Rate::Fixed { burst: 1000, .. }));
    let (_, after) = changed("delay = \"7ms\", queue = \"8packets\", loss = \"0%\"");
    assert_eq!(after.delay, Duration::from_millis(7));
    assert_eq!(after.queue, anabranch_link::Queue::TailDropPackets(8));
    assert_eq!(after.loss, anabranch_link::Loss::None);
}

#[test]
fn what_paths_carry_together_counts_links_in_their_middle_and_shared_ones_once() {
    let scenario = read(GRAPH).unwrap();
    assert_eq!(scenario.path_rate(0, Way::Forward), Some(2_000_000));
    assert_eq!(scenario.path_rate(1, Way::Backward), Some(3_000_000));
    assert_eq!(scenario.sum_of_rates(), Some(2_000_000));
    let wide = GRAPH.replace("rate = \"2Mbit/s\"", "rate = \"8Mbit/s\"");
    assert_eq!(read(&wide).unwrap().sum_of_rates(), Some(8_000_000));
    let wider = GRAPH.replace("rate = \"2Mbit/s\"", "rate = \"80Mbit/s\"");
    assert_eq!(read(&wider).unwrap().sum_of_rates(), Some(10_000_000));
    let both =
        format!("{GRAPH}[[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\ndirection = \"backward\"\n");
    assert_eq!(read(&both).unwrap().sum_of_rates(), Some(5_000_000));
}

/// Plans the valid scenario with these contenders and these settings in common.
fn planned(common: &str, contenders: &str) -> Result<(), String> {
    let (head, _) = GOOD.split_once("[transport]").unwrap();
    let text = format!("{head}[transport]\n{common}\n[contenders]\n{contenders}\n");
    let document = Document::parse("s.toml", &text).unwrap();
    let plan = crate::plan::Plan::make(&document, &crate::plan::Changes::default());
    plan.map(drop).map_err(|mistake| mistake.to_string())
}

#[test]
fn a_key_that_the_kind_ignores_is_a_mistake_that_names_who_reads_it() {
    let mut refused = 0;
    for kind in ["tcp", "bonding", "mlppp", "mptcp"] {
        for (key, reader) in [
            ("profile = \"mptcp\"", "it is for kind = anabranch"),
            ("scheduler = \"blest\"", "anabranch, bonding"),
            ("retransmit = \"asap\"", "it is for kind = anabranch"),
            ("timestamps = true", "it is for kind = anabranch"),
            ("pacing = false", "it is for kind = anabranch"),
            ("chunk = \"1kB\"", "anabranch, mlppp"),
        ] {
            for told in [
                planned(&format!("kind = \"{kind}\"\n{key}"), ""),
                planned("", &format!("own = {{ kind = \"{kind}\", {key} }}")),
            ] {
                let Err(told) = told else {
                    assert_eq!((kind, &key[..5]), ("mlppp", "chunk"));
                    continue;
                };
                let bond = kind == "bonding" && key.starts_with("scheduler");
                let wanted = if bond { "a bond does not run" } else { reader };
                assert!(told.contains("s.toml:") && told.contains(wanted), "{told}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 46);
    let connections = planned("connections = 3", "").unwrap_err();
    assert!(connections.contains("s.toml:26:"), "{connections}");
    assert!(
        connections.contains("profile = \"stripe\""),
        "{connections}"
    );
    // At least one contender must read each setting they have in common.
    let two = "anabranch = {}\ntcp = {}";
    assert_eq!(planned("scheduler = \"blest\"\nsack = false", two), Ok(()));
    let nobody = planned("scheduler = \"blest\"\nsack = false", "anabranch = {}").unwrap_err();
    assert!(
        nobody.contains("`sack`") && nobody.contains("tcp, bonding"),
        "{nobody}"
    );
}

#[test]
fn a_bond_runs_four_schedulers_and_tcp_acknowledges_every_other_packet_at_most() {
    let bond = |scheduler: &str| {
        planned(
            &format!("kind = \"bonding\"\nscheduler = \"{scheduler}\""),
            "",
        )
    };
    for scheduler in ["guard+ecf", "ecf:beta=0.5", "priority"] {
        assert!(bond(scheduler).is_err(), "{scheduler}");
    }
    for scheduler in ["round-robin", "weighted:weights=2/1", "weighted", "ecf"] {
        assert_eq!(bond(scheduler), Ok(()), "{scheduler}");
    }
    let five = planned("kind = \"tcp\"\nack-every = 5", "").unwrap_err();
    assert!(five.contains("expected 1 or 2"), "{five}");
    assert_eq!(planned("kind = \"tcp\"\nack-every = 2", ""), Ok(()));
}

#[test]
fn traffic_beside_the_flows_has_ports_for_so_many() {
    let beside = "[[background]]\nkind = \"tcp\"\npath = \"dsl\"\n";
    let told = read(&(GOOD.to_owned() + &beside.repeat(1001))).unwrap_err();
    assert!(told.to_string().contains("at most 1000"), "{told}");
    assert!(read(&(GOOD.to_owned() + &beside.repeat(3))).is_ok());
}

/// Hosts beside the only path: one at its first router, one attached to both routers and by two
/// links to the second, and one that no link leads to.
const FURTHER: &str = r#"format = 1
name = "further"
stop = "10s"
[[node]]
name = "r1"
[[node]]
name = "r2"
[[node]]
name = "neighbour"
kind = "host"
[[node]]
name = "far"
kind = "host"
[[node]]
name = "alone"
kind = "host"
[[link]]
name = "access"
ends = ["client", "r1"]
[[link]]
name = "long"
ends = ["far", "r1"]
[[link]]
name = "short"
ends = ["far", "r2"]
[[link]]
name = "near"
ends = ["r1", "neighbour"]
[[link]]
name = "way"
ends = ["r2", "far"]
[[link]]
name = "shared"
ends = ["r1", "r2"]
[[link]]
name = "last"
ends = ["r2", "server"]
[[path]]
name = "one"
client = "access"
server = "last"
[[flow]]
kind = "bulk"
bytes = "1MB"
[[background]]
kind = "tcp"
ends = ["neighbour", "server"]
"#;

#[test]
fn traffic_beside_the_flows_goes_between_the_ends_of_a_path_or_two_hosts() {
    let ends = |text: &str| {
        let scenario = read(text).unwrap();
        let ends = scenario.background[0].ends;
        let way = scenario.network.way(ends).unwrap();
        let name = |link: usize| scenario.network.links[link].name.clone();
        let way: Vec<String> = way.into_iter().map(|(link, _)| name(link)).collect();
        (ends.map(|end| end.node), way.join(" "))
    };
    let with =
        |instead: &str| ends(&FURTHER.replace("ends = [\"neighbour\", \"server\"]", instead));
    let path = with("path = \"one\"");
    assert_eq!(path, ([0, 1], "access shared last".to_owned()));
    let further = with("ends = [\"neighbour\", \"server\"]");
    assert_eq!(further, ([4, 1], "near shared last".to_owned()));
    // By the nearest of its links; of two equally near ones, by the one described first.
    let near = with("ends = [\"far\", \"neighbour\"]");
    assert_eq!(near, ([5, 4], "long near".to_owned()));
    let end = with("ends = [\"server\", \"far\"]");
    assert_eq!(end, ([1, 5], "last short".to_owned()));
}

#[test]
fn a_host_that_traffic_cannot_begin_or_end_at_is_a_mistake() {
    let told = |instead: &str| {
        let text = FURTHER.replace("ends = [\"neighbour\", \"server\"]", instead);
        read(&text).unwrap_err().to_string()
    };
    let mistakes: [(&str, &[&str]); 9] = [
        (
            "ends = [\"neighbor\", \"far\"]",
            &[
                "s.toml:47:9",
                "no host `neighbor`",
                "did you mean `neighbour`",
            ],
        ),
        (
            "ends = [\"neighbour\", \"r2\"]",
            &[
                "s.toml:47:22",
                "background.1.ends.2",
                "no host `r2`: expected one of client, server, neighbour, far, alone",
            ],
        ),
        (
            "ends = [\"far\", \"far\"]",
            &["s.toml:47:8", "two different hosts"],
        ),
        ("ends = \"far\"", &["s.toml:47:8", "expected the two hosts"]),
        (
            "ends = [\"far\", \"server\", \"client\"]",
            &["s.toml:47:8", "expected the two hosts"],
        ),
        (
            "ends = [\"server\", \"client\"]",
            &["s.toml:47:8", "several paths", "expected `path`"],
        ),
        (
            "path = \"one\"\nends = [\"neighbour\", \"far\"]",
            &["s.toml:48:8", "one of path and ends"],
        ),
        (
            "ends = [\"neighbour\", \"alone\"]",
            &["s.toml:47:8", "no way leads from `neighbour` to `alone`"],
        ),
        (
            "",
            &["s.toml:45:1", "`path` is missing", "`ends`, two hosts"],
        ),
    ];
    for (instead, expected) in mistakes {
        let told = told(instead);
        for part in expected {
            assert!(told.contains(part), "{instead}: {part} is not in: {told}");
        }
    }
    let unknown = told("end = [\"neighbour\", \"far\"]");
    assert!(unknown.contains("`path` is missing"), "{unknown}");
}

#[test]
fn a_host_that_is_as_near_as_a_router_is_not_on_the_way() {
    // `far` is as near to `r2` as `r3` is, through links that are described earlier.
    let text = FURTHER.replace(
        "[[link]]\nname = \"shared\"\nends = [\"r1\", \"r2\"]\n",
        "[[node]]\nname = \"r3\"\n[[link]]\nname = \"in\"\nends = [\"r1\", \"r3\"]\n\
         [[link]]\nname = \"out\"\nends = [\"r3\", \"r2\"]\nforward = { rate = \"3Mbit/s\" }\n",
    );
    let scenario = read(&text).unwrap();
    let links: Vec<usize> = scenario
        .network
        .route(0)
        .unwrap()
        .iter()
        .map(|hop| hop.0)
        .collect();
    let named = |name: &str| scenario.network.link_named(name).unwrap();
    assert_eq!(links, ["access", "in", "out", "last"].map(named));
    assert_eq!(scenario.path_rate(0, Way::Forward), Some(3_000_000));
}

#[test]
fn a_file_may_name_the_schedulers_of_the_program_that_reads_it() {
    use anabranch_proto::sched::Entry;
    let builtin = anabranch_schedulers::builtin();
    let entry = *builtin
        .entries()
        .iter()
        .find(|e| e.name == "min-rtt")
        .unwrap();
    let mut names = anabranch_schedulers::Names::default();
    let own = Entry {
        name: "my-own",
        ..entry
    };
    names.schedulers.register(own);
    let text = GOOD.replace("min-rtt", "my-own");
    let document = Document::parse("s.toml", &text).unwrap();
    assert!(Scenario::read(&document).is_err());
    let scenario = Scenario::read(&document.with_names(names)).unwrap();
    assert_eq!(scenario.transport.scheduler.unwrap().name, "my-own");
}

#[test]
fn every_mistake_names_its_line_what_was_expected_and_what_is_nearest() {
    assert!(MISTAKES.len() >= 20);
    for (good, bad, expected) in MISTAKES {
        assert!(GOOD.contains(good), "{good}");
        let message = read(&GOOD.replacen(good, bad, 1)).unwrap_err().to_string();
        for part in *expected {
            assert!(message.contains(part), "{bad}: {part} is not in: {message}");
        }
    }
}

#[test]
fn the_template_reads() {
    let document = Document::parse("template.toml", TEMPLATE).unwrap();
    let scenario = Scenario::read(&document).unwrap();
    assert!(scenario.network.paths.len() >= 2);
}
