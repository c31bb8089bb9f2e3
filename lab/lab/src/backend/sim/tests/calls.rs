//! Datagrams of hosts that know nothing of the tunnel between them.

use super::*;
use crate::results::DatagramFlow;
use anabranch_tunnel::class::Steering;

/// Two paths of different delay, and a flow that a scheduler spreads over both.
const UNEQUAL: &str = r#"
format = 1
name = "unequal"
stop = "60s"
singles = false
[[path]]
name = "near"
forward = { rate = "10Mbit/s", delay = "10ms", queue = "100ms" }
backward = { like = "forward" }
[[path]]
name = "far"
forward = { rate = "10Mbit/s", delay = "25ms", queue = "100ms" }
backward = { like = "forward" }
[[flow]]
kind = "datagrams"
size = "200B"
every = "2ms"
duration = "10s"
start = "1s"
deadline = "100ms"
[transport]
kind = "tunnel"
scheduler = "round-robin"
[repeat]
runs = 1
"#;

/// The same with `class` for the flow, and with more at the end.
fn called(text: &str, class: &str, more: &str) -> Outcome {
    let class = format!("deadline = \"100ms\"\nclass = {class}\n");
    let outcome = run(&(text.replace("deadline = \"100ms\"\n", &class) + more));
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    outcome
}

/// The example of the documentation.
const VOICE: &str = include_str!("../../../../../scenarios/tunnel/voice.toml");
/// That of the measurements.
const ORDER: &str = include_str!("../../../../../scenarios/tunnel/order.toml");

fn sole(outcome: &Outcome) -> &DatagramFlow {
    let [flow] = outcome.datagrams.as_slice() else {
        panic!("one flow: {:?}", outcome.datagrams)
    };
    flow
}

fn ms(seconds: Option<f64>) -> f64 {
    seconds.expect("a time") * 1000.0
}

#[test]
fn two_paths_reorder_datagrams_and_the_far_node_restores_their_order_within_its_wait() {
    for way in ["forward", "backward"] {
        let text = UNEQUAL.replace("deadline =", &format!("direction = \"{way}\"\ndeadline ="));
        let without = called(&text, "{ wait = \"0ms\" }", "");
        let flow = sole(&without);
        // A host that is called begins when the call has come.
        assert!((4950..=5000).contains(&flow.sent), "{way}: {flow:?}");
        assert_eq!(flow.delivered, flow.sent, "{way}");
        assert!(flow.reordered_before > 2000, "{way}: {flow:?}");
        assert_eq!(flow.reordered, flow.reordered_before, "{way}");
        let with = called(&text, "{ wait = \"50ms\" }", "");
        let flow = sole(&with);
        assert!(flow.reordered_before > 2000, "{way}: {flow:?}");
        assert_eq!((flow.delivered, flow.reordered), (flow.sent, 0), "{way}");
        assert!(flow.held > 2000, "{way}: {flow:?}");
        // They wait for the slower path and no longer, though they may.
        assert!(
            (10.0..20.0).contains(&ms(flow.held_mean_s)),
            "{way}: {flow:?}"
        );
        assert!(ms(flow.delay_p99_s) < 30.0, "{way}: {flow:?}");
        assert_eq!((with.units, with.late_units), (flow.sent, 0), "{way}");
        assert_eq!(with.reordered_units, Some(0), "{way}");
    }
}

#[test]
fn what_is_lost_is_waited_for_no_longer_than_the_class_allows() {
    let lossy = UNEQUAL.replace("queue = \"100ms\"", "queue = \"100ms\", loss = \"2%\"");
    for wait in [5.0, 20.0] {
        let class = format!("{{ wait = \"{wait}ms\", steering = \"load-balancing\" }}");
        let outcome = called(&lossy, &class, "");
        let flow = sole(&outcome);
        assert!(
            (50..200).contains(&(flow.sent - flow.delivered)),
            "{flow:?}"
        );
        assert!(ms(flow.held_max_s) <= wait, "{wait}: {flow:?}");
        // 15 ms lie between the paths, and what is too short for them is soon found to be in vain.
        let pays = wait > 15.0;
        assert_eq!(flow.reordered > 1000, !pays, "{wait}: {flow:?}");
        assert_eq!(flow.held > 1000, pays, "{wait}: {flow:?}");
        assert_eq!(flow.held > 50, pays, "{wait}: {flow:?}");
    }
}

#[test]
fn what_does_not_come_by_another_path_is_not_waited_for_though_the_class_allows_it() {
    let lossy = UNEQUAL.replace("queue = \"100ms\"", "queue = \"100ms\", loss = \"2%\"");
    // What has a deadline is not repaired.
    let class = "{ wait = \"50ms\", deadline = \"150ms\" }";
    let one = called(
        &lossy.replace("kind = \"tunnel\"", "kind = \"tunnel\"\npaths = [\"far\"]"),
        class,
        "",
    );
    let flow = sole(&one);
    assert!(flow.delivered < flow.sent, "{flow:?}");
    assert_eq!(
        (flow.held, flow.reordered),
        (0, 0),
        "one path has nothing to wait for: {flow:?}"
    );
    let equal = called(
        &lossy.replace("delay = \"25ms\"", "delay = \"10ms\""),
        class,
        "",
    );
    let flow = sole(&equal);
    assert!(
        (50..200).contains(&(flow.sent - flow.delivered)),
        "{flow:?}"
    );
    let lost = flow.sent - flow.delivered;
    assert!(
        flow.held < lost && flow.reordered < 10,
        "the first gaps have shown that hardly anything comes: {flow:?}"
    );
    assert!(ms(flow.held_max_s) < 10.0, "{flow:?}");
    assert!(ms(flow.delay_p99_s) < 15.0, "{flow:?}");
}

#[test]
fn what_is_lost_is_sent_again_while_its_class_waits_for_it() {
    let lossy = UNEQUAL.replace("queue = \"100ms\"", "queue = \"100ms\", loss = \"2%\"");
    // A round trip of the far path takes as long as the class waits: what it loses is gone.
    for (paths, most) in [("[\"near\"]", 10), ("[\"near\", \"far\"]", 60)] {
        let by = format!("kind = \"tunnel\"\npaths = {paths}");
        let text = lossy.replace("kind = \"tunnel\"", &by);
        let outcome = called(&text, "{ wait = \"50ms\" }", "");
        let flow = sole(&outcome);
        // What is lost twice is too late.
        assert!(flow.sent - flow.delivered < most, "{paths}: {flow:?}");
        assert!(flow.reordered < 10, "{paths}: {flow:?}");
        assert!(ms(flow.held_max_s) <= 50.0, "{paths}: {flow:?}");
    }
}

#[test]
fn a_redundant_class_survives_the_loss_of_a_path_without_a_gap() {
    let cut = "[[event]]\nat = \"4s\"\npath = \"near\"\ndown = \"both\"\n";
    let plain = called(UNEQUAL, "\"bulk\"", cut);
    assert!(ms(sole(&plain).delay_max_s) > 60.0, "{:?}", sole(&plain));
    let redundant = called(UNEQUAL, "{ steering = \"redundant\" }", cut);
    let flow = sole(&redundant);
    assert_eq!((flow.delivered, flow.reordered), (5000, 0), "{flow:?}");
    assert!(flow.copies > 1000, "{flow:?}");
    assert!(ms(flow.delay_max_s) < 50.0, "{flow:?}");
}

#[test]
fn a_class_protects_a_call_from_a_download_in_the_same_tunnel() {
    let (scenario, _) = VOICE.split_once("[sweep]").unwrap();
    // How many are harmed is chance: of three runs some ten, more or less.
    let unhurt = |class: &str| {
        let text = scenario.replace("{ like = \"voice\" }", class) + "[repeat]\nruns = 45\n";
        let document = Document::parse("voice.toml", &text).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        let outcomes = plan.runs.iter().map(|run| Sim::default().run(run));
        let (mut harmed, mut delay) = (0, 0.0);
        for outcome in outcomes {
            assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
            assert!(outcome.completion_s.is_some(), "the download ends too");
            let flow = sole(&outcome);
            assert_eq!(outcome.bytes, 20_000_000 + flow.delivered * 160);
            harmed += flow.late + (flow.sent - flow.delivered);
            delay += ms(flow.delay_p50_s);
        }
        (harmed, delay / 45.0)
    };
    let plain = unhurt("\"bulk\"");
    let redundant = unhurt("{ like = \"voice\", steering = \"redundant\" }");
    assert!(plain.0 > 100, "{plain:?}, {redundant:?}");
    // In 180 runs a third; these 45 are a few more or less than a third by chance.
    assert!(redundant.0 * 5 < plain.0 * 2, "{plain:?}, {redundant:?}");
    // What has an order goes where it arrives first anyway.
    assert!(redundant.1 < 1.02 * plain.1, "{plain:?}, {redundant:?}");
}

#[test]
fn datagrams_stay_in_order_beside_a_download_that_fills_the_queues_of_links() {
    for file in [VOICE, ORDER] {
        let (scenario, _) = file.split_once("[sweep]").unwrap();
        for steering in ["smallest-delay", "load-balancing"] {
            let class = format!("class = {{ wait = \"50ms\", steering = \"{steering}\" }}\n");
            let lines = scenario.lines().map(|line| match line.split_once(' ') {
                Some(("class", _)) => class.clone(),
                _ => format!("{line}\n"),
            });
            let text = lines.collect::<String>() + "[repeat]\nruns = 3\n";
            let document = Document::parse("t.toml", &text).unwrap();
            let plan = Plan::make(&document, &Changes::default()).unwrap();
            let (mut delivered, mut before, mut behind) = (0, 0, 0);
            for outcome in plan.runs.iter().map(|run| Sim::default().run(run)) {
                assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
                let flow = sole(&outcome);
                assert!(ms(flow.held_max_s) <= 50.0, "{flow:?}");
                delivered += flow.delivered;
                before += flow.reordered_before;
                behind += flow.reordered;
            }
            let seen = format!("{steering}: {before} and {behind} of {delivered}");
            assert!(before * 200 > delivered, "{seen}");
            assert!(behind * 200 < delivered && behind * 4 < before, "{seen}");
        }
    }
}

#[test]
fn the_example_sweeps_the_wait_and_the_steering_of_its_class() {
    let document = Document::parse("voice.toml", VOICE).unwrap();
    let changes = Changes::default();
    let plan = Plan::make(&document, &changes).unwrap();
    assert_eq!(plan.runs.len(), 3 * 3 * 3);
    let treatments = plan.runs.iter().step_by(3);
    let mut treatments: Vec<_> = treatments
        .map(|run| run.scenario.flows[0].marks.treatment())
        .map(|treatment| (treatment.wait, treatment.steering.map(Steering::name)))
        .collect();
    treatments.dedup();
    assert_eq!(treatments.len(), 9, "{treatments:?}");
}

#[test]
fn several_flows_are_told_apart_and_the_same_seed_gives_the_same_trace() {
    let second = "[[flow]]\nkind = \"datagrams\"\nsize = \"1000B\"\nrate = \"1Mbit/s\"\n\
                  duration = \"4s\"\nclass = { wait = \"0ms\" }\n";
    let outcome = called(UNEQUAL, "\"voice\"", second);
    let [first, other] = outcome.datagrams.as_slice() else {
        panic!("two flows: {:?}", outcome.datagrams)
    };
    assert_eq!([first.flow, other.flow], [1, 2]);
    assert_eq!([first.delivered, other.delivered], [5000, 500]);
    assert_eq!((first.reordered, other.held), (0, 0));
    assert!(first.held > 2000 && other.reordered > 0, "{other:?}");
    let again = called(UNEQUAL, "\"voice\"", second);
    assert_eq!(again.trace_hash, outcome.trace_hash);
    assert_eq!(again.datagrams, outcome.datagrams);
}

#[test]
fn datagrams_through_a_bond_are_refused() {
    let text = UNEQUAL.replace("kind = \"tunnel\"", "kind = \"bonding\"");
    let refused = run(&text);
    assert_eq!(refused.status, Status::Unsupported);
    assert!(refused.reason.contains("datagrams"), "{}", refused.reason);
}
