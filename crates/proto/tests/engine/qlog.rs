//! Traces of real connections: complete, readable, true.

use crate::pair::{MBIT, Pair, Way};
use crate::policies;
use anabranch_proto::config::{ClientConfig, ServerConfig, TransportConfig};
use anabranch_proto::congestion;
use anabranch_proto::event::{Observer, ObserverFactory, Subject};
use anabranch_proto::wire::PathId;
use anabranch_qlog::{EVENT_SCHEMAS, Header, Qlog};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Bytes = Arc<Mutex<Vec<u8>>>;

/// Every event the writer knows, and the members its data must have.
const EVENTS: [(&str, &[&str]); 21] = [
    ("quic:connection_started", &["local", "remote"]),
    ("quic:connection_closed", &["initiator", "trigger"]),
    ("quic:connection_state_updated", &["new"]),
    ("quic:version_information", &["chosen_version"]),
    ("quic:alpn_information", &["chosen_alpn"]),
    ("quic:parameters_set", &["initiator", "initial_max_data"]),
    ("quic:tuple_assigned", &["tuple_id", "tuple_remote"]),
    ("quic:packet_sent", &["header", "frames", "raw"]),
    ("quic:packet_received", &["header", "frames", "raw"]),
    ("quic:packet_lost", &["header", "trigger"]),
    ("quic:packet_dropped", &["raw", "trigger"]),
    ("quic:recovery_metrics_updated", &["path_id"]),
    ("quic:congestion_state_updated", &["new"]),
    ("quic:key_updated", &["key_type", "key_phase", "trigger"]),
    ("quic:key_discarded", &["key_type", "trigger"]),
    ("quic:mtu_updated", &["old", "new"]),
    ("quic:ecn_state_updated", &["new"]),
    ("anabranch:scheduler_decision", &["decision", "reason"]),
    ("anabranch:path_state_updated", &["path_id", "new"]),
    ("anabranch:data_reinjected", &["path_id", "length"]),
    ("anabranch:acknowledgements_rerouted", &["path_id", "for"]),
];

/// A configuration that writes into the buffer.
fn traced(config: &TransportConfig) -> (TransportConfig, Bytes) {
    let bytes = Bytes::default();
    let into = bytes.clone();
    let observe = move |subject: &Subject| {
        let into = into.clone();
        let sink = move |record: &[u8]| {
            let mut bytes = into.lock().expect("nothing panicked with it");
            bytes.extend_from_slice(record);
        };
        let qlog = Qlog::new(&Header::of(subject, "test"), sink);
        Some(Box::new(qlog) as Box<dyn Observer>)
    };
    let observer = Some(ObserverFactory::from_fn(observe));
    let config = TransportConfig {
        observer,
        ..config.clone()
    };
    (config, bytes)
}

/// The records of a trace: its header, and its events by name.
fn read(bytes: &Bytes) -> (Value, Vec<Value>) {
    let bytes = bytes.lock().expect("nothing panicked with it");
    let mut records = bytes
        .strip_prefix(b"\x1e")
        .expect("a trace begins with a record separator")
        .split(|byte| *byte == 0x1e)
        .map(|record| {
            assert_eq!(record.last(), Some(&b'\n'), "a record ends with a line");
            serde_json::from_slice::<Value>(record).expect("a record is JSON")
        });
    let header = records.next().expect("a header");
    (header, records.collect())
}

fn named<'a>(events: &'a [Value], name: &str) -> impl Iterator<Item = &'a Value> {
    events
        .iter()
        .filter(move |event| event["name"] == name)
        .map(|event| &event["data"])
}

/// Packets by the name of the path they belong to; those of the handshake belong to path 0.
fn by_path(events: &[Value], name: &str) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for data in named(events, name) {
        let path = data["header"]["path_id"].as_u64().unwrap_or(0);
        *counts.entry(path).or_default() += 1;
    }
    counts
}

fn check(events: &[Value]) {
    let known = BTreeMap::from(EVENTS);
    let mut last = 0.0;
    for event in events {
        let name = event["name"].as_str().expect("an event has a name");
        let members = known
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not known"));
        for member in *members {
            assert!(
                !event["data"][member].is_null(),
                "{name} without {member}: {event}"
            );
        }
        let time = event["time"].as_f64().expect("an event has a time");
        assert!(time >= last, "time runs backwards: {event}");
        last = time;
    }
}

/// Two ways of 20 Mbit/s, one of them lossy.
fn ways() -> Vec<Way> {
    let mut ways = vec![
        Way::new(1).delay(10).rate(20 * MBIT),
        Way::new(2).delay(25).rate(20 * MBIT),
    ];
    ways[1].drop_every = 50;
    ways
}

#[test]
fn a_transfer_over_two_paths_is_traced_packet_by_packet() {
    let config = TransportConfig::default();
    let (client, client_trace) = traced(&config);
    let (server, server_trace) = traced(&config);
    let mut pair = Pair::with(ways(), client, server);
    pair.connect();
    let ids = pair.open_all();
    pair.upload(1 << 20, Duration::from_secs(30));

    let (header, events) = read(&client_trace);
    assert_eq!(header["trace"]["vantage_point"]["type"], "client");
    assert_eq!(
        header["trace"]["event_schemas"],
        serde_json::json!(EVENT_SCHEMAS)
    );
    check(&events);
    let sent = by_path(&events, "quic:packet_sent");
    let lost = by_path(&events, "quic:packet_lost");
    assert_eq!(ids, [PathId(0), PathId(1)]);
    for id in ids {
        let counters = pair.client_conn().path_stats(id).unwrap().counters;
        let path = u64::from(id.0);
        assert_eq!(
            sent.get(&path),
            Some(&counters.sent_packets),
            "sent on {id}"
        );
        let probes = named(&events, "quic:packet_lost").filter(|data| {
            data["header"]["path_id"] == path && data["is_mtu_probe_packet"] == true
        });
        let lost = lost.get(&path).copied().unwrap_or(0) - probes.count() as u64;
        assert_eq!(lost, counters.lost_packets, "lost on {id}");
    }
    assert!(
        lost.get(&1).is_some_and(|lost| *lost > 0),
        "the second way loses"
    );
    for name in [
        "quic:connection_started",
        "quic:parameters_set",
        "quic:recovery_metrics_updated",
        "quic:congestion_state_updated",
        "quic:mtu_updated",
        "quic:key_discarded",
        "anabranch:scheduler_decision",
        "anabranch:path_state_updated",
    ] {
        assert!(named(&events, name).next().is_some(), "no {name}");
    }

    let (header_of_server, events) = read(&server_trace);
    check(&events);
    let received = by_path(&events, "quic:packet_received");
    for path in [0, 1] {
        let stats = pair.server_conn().path_stats(PathId(path)).unwrap();
        let early = named(&events, "quic:packet_received")
            .filter(|data| path == 0 && data["header"]["packet_type"] != "1RTT");
        let received = received[&u64::from(path)] - early.count() as u64;
        assert_eq!(
            received, stats.counters.received_packets,
            "received on {path}"
        );
    }
    let group = |header: &Value| header["trace"]["common_fields"]["group_id"].clone();
    assert_eq!(group(&header), group(&header_of_server));
}

#[test]
fn the_bytes_of_streams_sent_in_a_trace_add_up() {
    let (client, trace) = traced(&TransportConfig::default());
    let mut pair = Pair::with(ways(), client, TransportConfig::default());
    pair.connect();
    pair.open_all();
    pair.upload(300_000, Duration::from_secs(30));
    let (_, events) = read(&trace);
    let mut covered = vec![false; 300_000];
    for data in named(&events, "quic:packet_sent") {
        for frame in data["frames"].as_array().unwrap() {
            if frame["frame_type"] == "stream" {
                let start = frame["offset"].as_u64().unwrap() as usize;
                let length = frame["raw"]["payload_length"].as_u64().unwrap() as usize;
                covered[start..start + length].fill(true);
            }
        }
    }
    assert!(
        covered.iter().all(|byte| *byte),
        "some bytes were never sent"
    );
}

#[test]
fn a_path_that_goes_silent_leaves_its_story_in_the_trace() {
    let config = TransportConfig {
        keep_alive: Some(Duration::from_secs(1)),
        ..TransportConfig::default()
    };
    let (client, client_trace) = traced(&config);
    let (server, server_trace) = traced(&config);
    let mut pair = Pair::with(ways(), client, server);
    pair.ways[1].drop_every = 0;
    pair.connect();
    pair.open_all();
    pair.upload(1 << 20, Duration::from_secs(30));
    // Only the way back breaks: the server hears probes and must answer them by another path.
    pair.ways[1].down = false;
    pair.upload(1 << 20, Duration::from_secs(30));
    pair.run_for(Duration::from_secs(2));
    pair.ways[1].down = true;
    pair.run_for(Duration::from_secs(4));
    let now = pair.now;
    pair.client_conn()
        .update_keys(now)
        .expect("keys are old enough");
    pair.upload(100_000, Duration::from_secs(5));
    let now = pair.now;
    pair.client_conn().close(now, 7, b"done");
    pair.run_for(Duration::from_secs(5));

    let (_, events) = read(&client_trace);
    check(&events);
    let states: Vec<_> = named(&events, "anabranch:path_state_updated")
        .filter(|data| data["path_id"] == 1)
        .map(|data| data["new"].as_str().unwrap())
        .collect();
    assert!(
        states.starts_with(&["opened", "doubted", "recovered"]),
        "{states:?}"
    );
    let bytes: u64 = named(&events, "anabranch:data_reinjected")
        .map(|data| data["length"].as_u64().unwrap())
        .sum();
    assert!(bytes > 0, "what the path held went elsewhere");
    let probed = |data: &Value| data["trigger"] == "pto_probe" && data["header"]["path_id"] == 1;
    assert!(named(&events, "quic:packet_sent").any(probed));
    let updated: Vec<_> = named(&events, "quic:key_updated").collect();
    assert_eq!(updated.len(), 2);
    assert_eq!(updated[0]["trigger"], "local_update");
    let closed = named(&events, "quic:connection_closed").last().unwrap();
    assert_eq!(
        (&closed["initiator"], &closed["trigger"]),
        (&"local".into(), &"application".into())
    );

    let (_, events) = read(&server_trace);
    check(&events);
    assert!(named(&events, "anabranch:acknowledgements_rerouted").any(|data| data["path_id"] == 1));
    let updated = named(&events, "quic:key_updated").last().unwrap();
    assert_eq!(updated["trigger"], "remote_update");
    let closed = named(&events, "quic:connection_closed").last().unwrap();
    assert_eq!(
        (&closed["initiator"], &closed["error_code"]),
        (&"remote".into(), &7.into())
    );
}

#[test]
fn copies_are_marked_and_their_reason_is_given() {
    let (client, trace) = traced(&TransportConfig {
        scheduler: policies::everywhere(),
        ..TransportConfig::default()
    });
    let mut pair = Pair::with(ways(), client, TransportConfig::default());
    pair.connect();
    pair.open_all();
    pair.upload(100_000, Duration::from_secs(30));
    let (_, events) = read(&trace);
    check(&events);
    assert!(named(&events, "quic:packet_sent").any(|data| data["is_copy"] == true));
    let reasons = named(&events, "anabranch:scheduler_decision");
    assert!(
        reasons
            .filter(|data| data["reason"] == "redundancy")
            .count()
            > 0
    );
}

#[test]
fn an_observer_changes_nothing_it_sees() {
    let run = |observed: bool| {
        let config = TransportConfig::default();
        let client = if observed {
            traced(&config).0
        } else {
            config.clone()
        };
        let (client_tls, server_tls) = crate::pair::tls_pair();
        let (mut from, mut to) = (ClientConfig::new(client_tls), ServerConfig::new(server_tls));
        from.transport = Arc::new(client);
        to.transport = Arc::new(config);
        let mut pair = Pair::with_configs(ways(), from, to);
        pair.connect();
        pair.open_all();
        let took = pair.upload(1 << 20, Duration::from_secs(30));
        let counters = [0, 1].map(|id| pair.client_conn().path_stats(PathId(id)).unwrap().counters);
        (took, counters)
    };
    assert_eq!(run(true), run(false));
}

/// BBR ends its search for the lowest RTT as it sends after a pause.
#[test]
fn an_observer_is_told_of_a_window_that_grows_as_a_path_is_used_again() {
    let controller = "bbr".parse().expect("a specification");
    let congestion = congestion::Registry::builtin().factory(&controller);
    let config = TransportConfig {
        congestion: congestion.expect("a controller"),
        ..TransportConfig::default()
    };
    let mut pair = Pair::new(vec![Way::new(1).rate(MBIT).delay(100)], config);
    pair.connect();
    let seen = pair.watch(false);
    let limit = Duration::from_secs(60);
    pair.transfer(true, 100_000, limit);
    let window = |pair: &mut Pair| {
        let stats = pair.client_conn().path_stats(PathId::ZERO);
        stats.expect("an open path").congestion_window
    };
    // Small sends that overlap, until the window falls for the search.
    let usual = window(&mut pair);
    let mut sends = 0;
    while window(&mut pair) * 3 > usual * 2 {
        pair.start(true, 1_000);
        pair.run_for(Duration::from_millis(100));
        sends += 1;
        assert!(sends < 200, "{}", pair.report());
    }
    pair.run_for(Duration::from_secs(1));
    let low = window(&mut pair);
    let flow = pair.start(true, 20_000);
    let done = pair.run_until(limit, |pair| {
        let seen = seen.lock().expect("no test thread panicked");
        assert_eq!(seen.windows[&PathId::ZERO], window(pair));
        pair.flows[flow].done_at.is_some()
    });
    assert!(done && window(&mut pair) > low, "{}", pair.report());
}
