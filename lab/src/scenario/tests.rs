//! What a scenario means, and twenty ways to get it wrong.

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

/// What is replaced, by what, and what the message must hold.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    (
        "format = 1",
        "format = 2",
        &["s.toml:1:10", "from 1 to 1", "found 2"],
    ),
    ("name = \"two\"\n", "", &["`name` is missing"]),
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
];

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
