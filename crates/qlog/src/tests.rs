//! Each observation as its record.

use super::*;
use anabranch_proto::datagram::{SocketId, Tuple};
use anabranch_proto::error::{ConnectionError, TransportError};
use anabranch_proto::event::Level;
use anabranch_proto::event::{DropReason, LossTrigger, PathNotice, Purpose};
use anabranch_proto::sched::{Choice, Decision, Reason};
use anabranch_proto::time::Duration;
use anabranch_proto::wire::TransportErrorCode;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const START: Instant = Instant::from_nanos(5_000_000_000);

/// A trace under construction, and what its sink got.
struct Trace {
    qlog: Qlog,
    written: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Trace {
    fn new() -> Self {
        let written = Arc::new(Mutex::new(Vec::new()));
        let into = written.clone();
        let header = Header {
            side: Side::Server,
            original_dcid: ConnectionId::new(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap(),
            title: "a \"test\"".into(),
            reference: START,
            wall_clock: Some("2026-11-02T10:00:00Z".into()),
        };
        let sink = move |record: &[u8]| into.lock().unwrap().push(record.to_vec());
        Self {
            qlog: Qlog::new(&header, sink),
            written,
        }
    }

    /// What one observation, 20.5 ms after the start, adds to the trace.
    fn add(&mut self, observation: &Observation<'_>) -> Vec<Value> {
        let before = self.written.lock().unwrap().len();
        let now = START + Duration::from_micros(20_500);
        self.qlog.observe(now, observation);
        let records = self.written.lock().unwrap();
        records[before..]
            .iter()
            .map(|record| parse(record))
            .collect()
    }

    fn add_route(&mut self, path: u32) -> Vec<Value> {
        let tuple = Tuple {
            socket: SocketId(4),
            local: Some("10.0.0.1".parse().unwrap()),
            remote: "[2001:db8::1]:4433".parse().unwrap(),
        };
        let path = PathId(path);
        self.add(&Observation::RouteAssigned { path, tuple })
    }
}

fn parse(record: &[u8]) -> Value {
    let text = record.strip_prefix(b"\x1e").unwrap();
    let text = text.strip_suffix(b"\n").unwrap();
    serde_json::from_slice(text).unwrap()
}

fn metrics() -> Metrics {
    Metrics {
        smoothed_rtt: Duration::from_micros(12_500),
        rttvar: Duration::from_millis(3),
        min_rtt: Duration::from_millis(10),
        latest_rtt: Duration::from_millis(15),
        congestion_window: 12_000,
        ssthresh: u64::MAX,
        bytes_in_flight: 2400,
        delivery_rate: 0,
        pto_count: 0,
        phase: "slow_start",
        app_limited: false,
    }
}

#[test]
fn a_trace_begins_with_a_header_that_names_its_schemas() {
    let trace = Trace::new();
    let header = parse(&trace.written.lock().unwrap()[0]);
    let expected = json!({
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "serialization_format": "application/qlog+json-seq",
        "title": "a \"test\"",
        "trace": {
            "common_fields": {
                "group_id": "0102030405060708",
                "time_format": "relative_to_epoch",
                "reference_time": {
                    "clock_type": "monotonic",
                    "epoch": "unknown",
                    "wall_clock_time": "2026-11-02T10:00:00Z",
                },
            },
            "vantage_point": {"type": "server"},
            "event_schemas": EVENT_SCHEMAS,
        },
    });
    assert_eq!(header, expected);
}

#[test]
fn a_moved_path_gets_a_new_tuple_under_its_old_name() {
    let mut trace = Trace::new();
    let first = trace.add_route(1);
    let expected = json!({
        "tuple_id": "1",
        "path_id": 1,
        "socket": 4,
        "tuple_remote": {"ip_v6": "2001:db8::1", "port_v6": 4433},
        "tuple_local": {"ip_v4": "10.0.0.1"},
    });
    assert_eq!(first[0]["name"], "quic:tuple_assigned");
    assert_eq!(first[0]["data"], expected);
    assert_eq!(trace.add_route(1)[0]["data"]["tuple_id"], "1.1");
    let lost = trace.add(&Observation::PacketLost {
        level: Level::OneRtt,
        path: PathId(1),
        pn: 8,
        size: 1200,
        is_mtu_probe: false,
        trigger: LossTrigger::Reordering,
    });
    let expected = json!({
        "time": 20.5,
        "name": "quic:packet_lost",
        "tuple": "1.1",
        "data": {
            "header": {"packet_type": "1RTT", "packet_number": 8, "path_id": 1},
            "raw": {"length": 1200},
            "trigger": "reordering_threshold",
        },
    });
    assert_eq!(lost, [expected]);
}

#[test]
fn early_packets_belong_to_no_path_and_probes_are_marked() {
    let mut trace = Trace::new();
    trace.add_route(0);
    let mut sent = |level, purpose| {
        let sent = Observation::PacketSent {
            level,
            path: PathId::ZERO,
            pn: 3,
            size: 1200,
            purpose,
            frames: &[],
        };
        trace.add(&sent).remove(0)["data"].clone()
    };
    let initial = sent(Level::Initial, Purpose::Probe);
    assert_eq!(
        initial["header"],
        json!({"packet_type": "initial", "packet_number": 3})
    );
    assert_eq!(initial["trigger"], "pto_probe");
    let probe = sent(Level::OneRtt, Purpose::MtuProbe);
    assert_eq!(probe["is_mtu_probe_packet"], true);
    assert_eq!(probe["header"]["path_id"], 0);
}

#[test]
fn metrics_are_written_once_and_then_only_where_they_changed() {
    let mut trace = Trace::new();
    trace.add_route(2);
    let path = PathId(2);
    let first = trace.add(&Observation::Metrics {
        path,
        metrics: metrics(),
    });
    assert_eq!(first[0]["name"], "quic:recovery_metrics_updated");
    let expected = json!({
        "path_id": 2, "min_rtt": 10, "smoothed_rtt": 12.5, "latest_rtt": 15, "rtt_variance": 3,
        "pto_count": 0, "congestion_window": 12_000, "bytes_in_flight": 2400, "delivery_rate": 0,
        "app_limited": false,
    });
    assert_eq!(first[0]["data"], expected);
    assert_eq!(first[1]["name"], "quic:congestion_state_updated");
    assert_eq!(first[1]["data"], json!({"new": "slow_start", "path_id": 2}));
    let again = trace.add(&Observation::Metrics {
        path,
        metrics: metrics(),
    });
    assert!(again.is_empty());
    let metrics = Metrics {
        congestion_window: 6000,
        ssthresh: 6000,
        phase: "recovery",
        ..metrics()
    };
    let changed = trace.add(&Observation::Metrics { path, metrics });
    let expected = json!({"path_id": 2, "congestion_window": 6000, "ssthresh": 6000});
    assert_eq!(changed[0]["data"], expected);
    let expected = json!({"old": "slow_start", "new": "recovery", "path_id": 2});
    assert_eq!(changed[1]["data"], expected);
}

#[test]
fn decisions_say_what_was_chosen_and_why() {
    let mut trace = Trace::new();
    let mut decided = |decision, reason| {
        let choice = Choice { decision, reason };
        let mut events = trace.add(&Observation::Decision { choice });
        assert_eq!(events[0]["name"], "anabranch:scheduler_decision");
        events.remove(0)["data"].take()
    };
    let send = decided(Decision::Send(PathId(1)), Reason::LowestRtt);
    assert_eq!(
        send,
        json!({"decision": "send", "path_id": 1, "reason": "lowest_rtt"})
    );
    let all = [PathId(0), PathId(3)].into_iter().collect();
    let duplicate = decided(Decision::Duplicate(all), Reason::Other("say \"all\""));
    let expected = json!({"decision": "duplicate", "path_ids": [0, 3], "reason": "say \"all\""});
    assert_eq!(duplicate, expected);
    let until = Some(START + Duration::from_millis(22));
    let hold = decided(Decision::Hold { until }, Reason::WaitForBetter);
    assert_eq!(
        hold,
        json!({"decision": "hold", "for": 1.5, "reason": "wait_for_better"})
    );
}

#[test]
fn the_life_of_a_path_is_told_and_then_forgotten() {
    let mut trace = Trace::new();
    trace.add_route(1);
    let id = PathId(1);
    let after = Duration::from_millis(700);
    let code = TransportErrorCode::PATH_UNSTABLE_OR_POOR.0;
    let by_peer = false;
    let notices = [
        (
            PathNotice::Doubted { id },
            json!({"path_id": 1, "new": "doubted"}),
        ),
        (
            PathNotice::Recovered { id, after },
            json!({"path_id": 1, "new": "recovered", "doubted_for": 700}),
        ),
        (
            PathNotice::Abandoned { id, code, by_peer },
            json!({"path_id": 1, "new": "abandoned", "error_code": code, "initiator": "local"}),
        ),
        (
            PathNotice::Discarded { id },
            json!({"path_id": 1, "new": "discarded"}),
        ),
    ];
    for (notice, expected) in notices {
        let events = trace.add(&Observation::Path(notice));
        assert_eq!(events[0]["name"], "anabranch:path_state_updated");
        assert_eq!(events[0]["data"], expected);
    }
    assert!(trace.qlog.paths.is_empty());
    assert!(
        trace
            .add(&Observation::Path(PathNotice::Capacity))
            .is_empty()
    );
}

#[test]
fn the_end_names_who_ended_it_and_how() {
    let mut trace = Trace::new();
    let mut ended = |error: &ConnectionError| {
        let mut events = trace.add(&Observation::Closed { error });
        assert_eq!(events[1]["data"]["new"], "closed");
        events.remove(0)["data"].take()
    };
    let expected = json!({"initiator": "local", "trigger": "idle_timeout"});
    assert_eq!(ended(&ConnectionError::TimedOut), expected);
    let violation = TransportError::violation("a \\ and a \n");
    let expected = json!({
        "initiator": "remote", "connection_error": "protocol_violation", "reason": "a \\ and a \n",
        "trigger": "error",
    });
    assert_eq!(ended(&ConnectionError::PeerClosed(violation)), expected);
}

#[test]
fn dropped_bytes_are_explained() {
    let mut trace = Trace::new();
    let (path, size, why) = (PathId::ZERO, 40, DropReason::Undecryptable);
    let events = trace.add(&Observation::PacketDropped { path, size, why });
    let expected = json!({
        "raw": {"length": 40}, "details": {"why": "cannot be decrypted"},
        "trigger": "decryption_failure",
    });
    assert_eq!(events[0]["data"], expected);
}
