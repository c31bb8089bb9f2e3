//! Each frame as a reader of traces sees it.

use super::*;
use anabranch_proto::wire::cursor::Reader;
use anabranch_proto::wire::frame::{AckFrequency, Form, Stream, decode, put_ack};
use anabranch_proto::wire::{ConnectionId, ResetToken, StreamId};
use serde_json::{Value, json};

/// The frame as a peer's packet would show it.
fn shown(bytes: &[u8]) -> Value {
    let mut reader = Reader::new(bytes);
    let (kind, frame) = decode(&mut reader).unwrap();
    let mut out = String::new();
    Object::write(&mut out, |o| write(o, kind, &frame, 3));
    serde_json::from_str(&out).unwrap()
}

fn encoded(frame: &Frame<'_>, form: Form) -> Value {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes, form);
    shown(&bytes)
}

#[test]
fn acknowledgements_list_their_ranges_upwards_and_scale_their_delay() {
    let mut bytes = Vec::new();
    let ranges = [20..=22, 9..=9, 1..=4].into_iter();
    put_ack(&mut bytes, Form::Plain, PathId(0), ranges, 9, 125, None, 99).unwrap();
    let expected = json!({
        "frame_type": "ack", "ack_delay": 1, "acked_ranges": [[1, 4], [9], [20, 22]],
    });
    assert_eq!(shown(&bytes), expected);
}

#[test]
fn acknowledgements_of_paths_name_the_path_and_carry_ecn_counts() {
    let mut bytes = Vec::new();
    let ecn = anabranch_proto::wire::frame::EcnCounts {
        ect0: 7,
        ect1: 0,
        ce: 2,
    };
    let ranges = [0..=8].into_iter();
    put_ack(
        &mut bytes,
        Form::Multipath,
        PathId(5),
        ranges,
        9,
        1,
        Some(ecn),
        99,
    )
    .unwrap();
    let expected = json!({
        "frame_type": "path_ack", "path_id": 5, "ack_delay": 0.008, "acked_ranges": [[0, 8]],
        "ect0": 7, "ect1": 0, "ce": 2,
    });
    assert_eq!(shown(&bytes), expected);
}

#[test]
fn stream_frames_show_place_and_length_but_no_bytes() {
    let frame = Frame::Stream(Stream {
        id: StreamId(4),
        offset: 1000,
        fin: true,
        data: b"secret",
    });
    let expected = json!({
        "frame_type": "stream", "stream_id": 4, "offset": 1000, "fin": true,
        "raw": {"payload_length": 6},
    });
    assert_eq!(encoded(&frame, Form::Plain), expected);
}

#[test]
fn connection_ids_are_shown_without_their_reset_tokens() {
    let frame = Frame::NewConnectionId(NewConnectionId {
        path: PathId(2),
        sequence: 1,
        retire_prior_to: 0,
        cid: ConnectionId::new(&[0xab, 0xcd]).unwrap(),
        reset_token: ResetToken([9; 16]),
    });
    let mut expected = json!({
        "frame_type": "path_new_connection_id", "path_id": 2, "sequence_number": 1,
        "retire_prior_to": 0, "connection_id_length": 2, "connection_id": "abcd",
    });
    assert_eq!(encoded(&frame, Form::Multipath), expected);
    let Frame::NewConnectionId(mut plain) = frame else {
        unreachable!()
    };
    plain.path = PathId::ZERO;
    expected["frame_type"] = json!("new_connection_id");
    expected.as_object_mut().unwrap().remove("path_id");
    assert_eq!(
        encoded(&Frame::NewConnectionId(plain), Form::Plain),
        expected
    );
}

#[test]
fn frames_about_paths_have_the_names_that_readers_know() {
    let path = PathId(3);
    let (sequence, limit) = (7, PathId(9));
    let cases = [
        (
            Frame::PathAbandon { path, code: 62 },
            json!({"frame_type": "path_abandon", "path_id": 3, "error_code": 62}),
        ),
        (
            Frame::PathStatus {
                path,
                sequence,
                status: PathStatus::Available,
            },
            json!({
                "frame_type": "path_status_available", "path_id": 3,
                "path_status_sequence_number": 7,
            }),
        ),
        (
            Frame::PathStatus {
                path,
                sequence,
                status: PathStatus::Backup,
            },
            json!({
                "frame_type": "path_status_backup", "path_id": 3,
                "path_status_sequence_number": 7,
            }),
        ),
        (
            Frame::RetireConnectionId { path, sequence },
            json!({"frame_type": "path_retire_connection_id", "path_id": 3, "sequence_number": 7}),
        ),
        (
            Frame::MaxPathId { limit },
            json!({"frame_type": "max_path_id", "maximum_path_id": 9}),
        ),
        (
            Frame::PathsBlocked { limit },
            json!({"frame_type": "paths_blocked", "maximum_path_id": 9}),
        ),
        (
            Frame::PathCidsBlocked {
                path,
                next_sequence: 2,
            },
            json!({"frame_type": "path_cids_blocked", "path_id": 3, "next_sequence_number": 2}),
        ),
    ];
    for (frame, expected) in cases {
        assert_eq!(encoded(&frame, Form::Multipath), expected);
    }
}

#[test]
fn frames_about_acknowledgements_show_what_is_asked_for() {
    let cases = [
        (Frame::ImmediateAck, json!({"frame_type": "immediate_ack"})),
        (
            Frame::AckFrequency(AckFrequency {
                sequence: 1,
                ack_eliciting_threshold: 9,
                max_ack_delay_us: 5000,
                reordering_threshold: 3,
            }),
            json!({
                "frame_type": "ack_frequency", "sequence_number": 1, "ack_eliciting_threshold": 9,
                "requested_max_ack_delay": 5000, "reordering_threshold": 3,
            }),
        ),
    ];
    for (frame, expected) in cases {
        assert_eq!(encoded(&frame, Form::Plain), expected);
    }
}

#[test]
fn streams_limits_and_the_rest_have_the_names_of_the_draft() {
    let id = StreamId(6);
    let cases = [
        (Frame::Ping, json!({"frame_type": "ping"})),
        (
            Frame::Timestamp { time: 37 },
            json!({"frame_type": "timestamp", "timestamp": 296}),
        ),
        (
            Frame::HandshakeDone,
            json!({"frame_type": "handshake_done"}),
        ),
        (
            Frame::MaxStreams {
                dir: Dir::Uni,
                limit: 5,
            },
            json!({"frame_type": "max_streams", "stream_type": "unidirectional", "maximum": 5}),
        ),
        (
            Frame::MaxStreamData { id, limit: 5 },
            json!({"frame_type": "max_stream_data", "stream_id": 6, "maximum": 5}),
        ),
        (
            Frame::StreamsBlocked {
                dir: Dir::Bi,
                limit: 5,
            },
            json!({"frame_type": "streams_blocked", "stream_type": "bidirectional", "limit": 5}),
        ),
        (
            Frame::ResetStream {
                id,
                code: 1,
                final_size: 10,
            },
            json!({
                "frame_type": "reset_stream", "stream_id": 6, "error": "unknown", "error_code": 1,
                "final_size": 10,
            }),
        ),
        (
            Frame::PathChallenge { data: [1; 8] },
            json!({"frame_type": "path_challenge", "data": "0101010101010101"}),
        ),
        (
            Frame::NewToken { token: b"token" },
            json!({"frame_type": "new_token", "token": {"raw": {"length": 5}}}),
        ),
        (
            Frame::Crypto {
                offset: 3,
                data: b"hello",
            },
            json!({"frame_type": "crypto", "offset": 3, "raw": {"payload_length": 5}}),
        ),
    ];
    for (frame, expected) in cases {
        assert_eq!(encoded(&frame, Form::Plain), expected);
    }
}

#[test]
fn closes_name_known_errors_and_number_unknown_ones() {
    let close = |application, code| {
        Frame::ConnectionClose(ConnectionClose {
            application,
            code,
            frame_type: 0,
            reason: b"why \xff\"",
        })
    };
    let shown = |frame: &Frame<'_>| encoded(frame, Form::Plain);
    let known = shown(&close(false, TransportErrorCode::NO_VIABLE_PATH.0));
    assert_eq!(known["error"], "no_viable_path");
    assert_eq!(known["error_space"], "transport");
    assert_eq!(known["reason"], "why \u{fffd}\"");
    assert_eq!(shown(&close(false, 0x12a))["error"], "crypto_error_0x12a");
    let unknown = shown(&close(false, 0x7777));
    assert_eq!(
        (&unknown["error"], &unknown["error_code"]),
        (&json!("unknown"), &json!(0x7777))
    );
    let application = shown(&close(true, 4));
    assert_eq!(application["error_space"], "application");
    assert_eq!(application["error_code"], 4);
}
