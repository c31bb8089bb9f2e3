//! Encoding and decoding of frames.

mod properties;

use super::*;
use crate::cursor::Reader;
use crate::testing::hex;
use crate::varint;

/// The only frame in `bytes`.
fn decoded(bytes: &[u8]) -> Result<Frame<'_>, FrameErrorKind> {
    let mut reader = Reader::new(bytes);
    let (_, frame) = decode(&mut reader).map_err(|error| error.kind)?;
    assert!(
        reader.is_empty(),
        "{frame:?} leaves {} bytes",
        reader.remaining()
    );
    Ok(frame)
}

fn refused(text: &str) -> FrameErrorKind {
    decoded(&hex(text)).expect_err(text)
}

/// Checks that `text` decodes to `frame` and that `frame` is encoded as `text`.
fn same(text: &str, form: Form, frame: &Frame<'_>) {
    let bytes = hex(text);
    assert_eq!(decoded(&bytes).as_ref(), Ok(frame), "{text}");
    let mut out = Vec::new();
    frame.encode(&mut out, form);
    assert_eq!(out, bytes, "{frame:?}");
    assert_eq!(frame.encoded_len(form), bytes.len(), "{frame:?}");
}

fn ack(path: u32, largest: u64, ranges: &[u8], ecn: Option<EcnCounts>) -> Frame<'_> {
    Frame::Ack(Ack {
        path: PathId(path),
        largest,
        delay: 0,
        ranges,
        ecn,
    })
}

#[test]
fn multipath_frames_have_the_layouts_of_rfc_10069() {
    let path = PathId;
    let (backup, available) = (PathStatus::Backup, PathStatus::Available);
    let ecn = EcnCounts {
        ect0: 6,
        ect1: 0,
        ce: 0,
    };
    let frames = [
        ("3e 01 05 00 00 05", ack(1, 5, &[5], None)),
        ("3f 01 05 00 00 05 06 00 00", ack(1, 5, &[5], Some(ecn))),
        (
            "7e75 01 3e",
            Frame::PathAbandon {
                path: path(1),
                code: 0x3e,
            },
        ),
        (
            "7e76 02 07",
            Frame::PathStatus {
                path: path(2),
                sequence: 7,
                status: backup,
            },
        ),
        (
            "7e77 02 07",
            Frame::PathStatus {
                path: path(2),
                sequence: 7,
                status: available,
            },
        ),
        (
            "7e79 01 03",
            Frame::RetireConnectionId {
                path: path(1),
                sequence: 3,
            },
        ),
        (
            "7e7a c0000000ffffffff",
            Frame::MaxPathId {
                limit: path(u32::MAX),
            },
        ),
        ("7e7b 02", Frame::PathsBlocked { limit: path(2) }),
        (
            "7e7c 01 05",
            Frame::PathCidsBlocked {
                path: path(1),
                next_sequence: 5,
            },
        ),
    ];
    for (text, frame) in frames {
        same(text, Form::Multipath, &frame);
    }
}

#[test]
fn a_timestamp_is_its_type_and_one_integer() {
    same("42f5 25", Form::Plain, &Frame::Timestamp { time: 37 });
    let time = varint::MAX;
    same(
        "42f5 ffffffffffffffff",
        Form::Multipath,
        &Frame::Timestamp { time },
    );
    assert_eq!(refused("42f5"), FrameErrorKind::UnexpectedEnd);
    assert_eq!(refused("42f5 80"), FrameErrorKind::UnexpectedEnd);
    assert_eq!(refused("800002f5 25"), FrameErrorKind::LongType);
}

#[test]
fn frames_about_acknowledgements_have_the_layouts_of_the_draft() {
    let wish = AckFrequency {
        sequence: 2,
        ack_eliciting_threshold: 9,
        max_ack_delay_us: 25_000,
        reordering_threshold: 3,
    };
    same(
        "40af 02 09 800061a8 03",
        Form::Plain,
        &Frame::AckFrequency(wish),
    );
    same("1f", Form::Multipath, &Frame::ImmediateAck);
    for cut in ["40af", "40af 02", "40af 02 09", "40af 02 09 800061a8"] {
        assert_eq!(refused(cut), FrameErrorKind::UnexpectedEnd);
    }
    assert_eq!(refused("401f"), FrameErrorKind::LongType);
    assert_eq!(refused("800000af 00 00 00 00"), FrameErrorKind::LongType);
    for kind in [FrameType::ACK_FREQUENCY, FrameType::IMMEDIATE_ACK] {
        assert!(kind.is_ack_eliciting() && !kind.is_probing());
        assert!(!kind.allowed_in_initial_or_handshake());
    }
}

#[test]
fn the_form_decides_how_connection_ids_and_acknowledgements_are_written() {
    let token = "000102030405060708090a0b0c0d0e0f";
    let new = |path| {
        Frame::NewConnectionId(NewConnectionId {
            path: PathId(path),
            sequence: 4,
            retire_prior_to: 2,
            cid: ConnectionId::new(&[0xaa, 0xbb]).unwrap(),
            reset_token: ResetToken(hex(token).try_into().unwrap()),
        })
    };
    same(&format!("18 04 02 02 aabb {token}"), Form::Plain, &new(0));
    same(
        &format!("7e78 03 04 02 02 aabb {token}"),
        Form::Multipath,
        &new(3),
    );
    let retire = |path| Frame::RetireConnectionId {
        path: PathId(path),
        sequence: 9,
    };
    same("19 09", Form::Plain, &retire(0));
    same("7e79 00 09", Form::Multipath, &retire(0));
    same("02 05 00 00 05", Form::Plain, &ack(0, 5, &[5], None));
    same("3e 00 05 00 00 05", Form::Multipath, &ack(0, 5, &[5], None));
}

#[test]
fn stream_frames_have_the_layouts_of_rfc_9000() {
    let id = StreamId(4);
    let stream = |offset, fin, data| {
        Frame::Stream(Stream {
            id,
            offset,
            fin,
            data,
        })
    };
    let stopped = Frame::StopSending { id, code: 7 };
    let reset = Frame::ResetStream {
        id,
        code: 7,
        final_size: 5,
    };
    let (bi, uni) = (Dir::Bi, Dir::Uni);
    let frames = [
        ("04 04 07 05", reset),
        ("05 04 07", stopped),
        ("0a 04 01 aa", stream(0, false, &[0xaa])),
        ("0b 04 00", stream(0, true, &[])),
        ("0e 04 4100 01 aa", stream(256, false, &[0xaa])),
        ("0f 04 4100 01 aa", stream(256, true, &[0xaa])),
        ("10 4100", Frame::MaxData { limit: 256 }),
        ("11 04 05", Frame::MaxStreamData { id, limit: 5 }),
        ("12 05", Frame::MaxStreams { dir: bi, limit: 5 }),
        ("13 05", Frame::MaxStreams { dir: uni, limit: 5 }),
        ("14 05", Frame::DataBlocked { limit: 5 }),
        ("15 04 05", Frame::StreamDataBlocked { id, limit: 5 }),
        ("16 05", Frame::StreamsBlocked { dir: bi, limit: 5 }),
        ("17 05", Frame::StreamsBlocked { dir: uni, limit: 5 }),
    ];
    for (text, frame) in frames {
        same(text, Form::Plain, &frame);
        same(text, Form::Multipath, &frame);
    }
}

#[test]
fn other_frames_have_the_layouts_of_rfc_9000_and_rfc_9221() {
    let data = &[0xaa, 0xbb][..];
    let eight = [0, 1, 2, 3, 4, 5, 6, 7];
    let close = |application, frame_type| {
        let reason = b"no";
        Frame::ConnectionClose(ConnectionClose {
            application,
            code: 7,
            frame_type,
            reason,
        })
    };
    let frames = [
        ("000000", Frame::Padding { length: 3 }),
        ("01", Frame::Ping),
        ("06 05 02 aabb", Frame::Crypto { offset: 5, data }),
        ("07 02 aabb", Frame::NewToken { token: data }),
        ("1a 0001020304050607", Frame::PathChallenge { data: eight }),
        ("1b 0001020304050607", Frame::PathResponse { data: eight }),
        ("1c 07 06 02 6e6f", close(false, 6)),
        ("1d 07 02 6e6f", close(true, 0)),
        ("1e", Frame::HandshakeDone),
        ("31 02 aabb", Frame::Datagram { data }),
    ];
    for (text, frame) in frames {
        same(text, Form::Plain, &frame);
        same(text, Form::Multipath, &frame);
    }
}

#[test]
fn frames_without_length_take_the_rest_of_the_packet() {
    let stream = |offset, fin| Stream {
        id: StreamId(4),
        offset,
        fin,
        data: &[0xaa, 0xbb],
    };
    assert_eq!(
        decoded(&hex("08 04 aabb")),
        Ok(Frame::Stream(stream(0, false)))
    );
    assert_eq!(
        decoded(&hex("0d 04 05 aabb")),
        Ok(Frame::Stream(stream(5, true)))
    );
    assert_eq!(
        decoded(&hex("30 aabb")),
        Ok(Frame::Datagram {
            data: &[0xaa, 0xbb]
        })
    );
}

#[test]
fn the_server_initial_of_rfc_9001_holds_an_ack_and_crypto_data() {
    let payload = hex(
        "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf73988cfc7
        9825df566dc5430b9a045a1200130100002e00330024001d00209d3c940d89690b84d08a60993c144eca
        684d1081287c834d5311bcf32bb9da1a002b00020304",
    );
    let mut reader = Reader::new(&payload);
    let (frame_type, frame) = decode(&mut reader).unwrap();
    assert_eq!((frame_type, frame), (FrameType::ACK, ack(0, 0, &[0], None)));
    let (frame_type, frame) = decode(&mut reader).unwrap();
    assert_eq!(frame_type, FrameType::CRYPTO);
    assert!(matches!(frame, Frame::Crypto { offset: 0, data } if data.len() == 0x5a));
    assert!(reader.is_empty());
}

#[test]
fn ack_ranges_descend_as_in_the_example_of_the_rfc() {
    // Acknowledges 100..=98, skips 97 and 96, acknowledges 95, skips 94, acknowledges 93..=0.
    let bytes = hex("02 4064 00 02 02 01 00 00 405d");
    let Ok(Frame::Ack(ack)) = decoded(&bytes) else {
        panic!()
    };
    assert_eq!(
        ack.ranges().collect::<Vec<_>>(),
        [98..=100, 95..=95, 0..=93]
    );
}

#[test]
fn acknowledged_numbers_below_zero_are_refused() {
    let below = FrameErrorKind::Invalid("packet numbers below 0");
    assert_eq!(refused("02 05 00 00 06"), below);
    assert!(decoded(&hex("02 05 00 01 02 00 01")).is_ok());
    assert_eq!(refused("02 05 00 01 02 00 02"), below);
    assert_eq!(refused("02 05 00 01 02 02 00"), below);
    let huge = "ffffffffffffffff";
    assert_eq!(refused(&format!("02 {huge} 00 01 00 {huge} {huge}")), below);
}

#[test]
fn a_range_count_beyond_the_packet_is_an_unexpected_end() {
    assert_eq!(
        refused("02 05 00 ffffffffffffffff 00 00 00"),
        FrameErrorKind::UnexpectedEnd
    );
}

#[test]
fn values_that_are_never_legal_are_refused() {
    let token = "00".repeat(16);
    let illegal = [
        "07 00".to_owned(),
        "12 d000000000000001".to_owned(),
        "13 d000000000000001".to_owned(),
        "16 d000000000000001".to_owned(),
        "17 d000000000000001".to_owned(),
        "0e 04 ffffffffffffffff 01 aa".to_owned(),
        "0c 04 ffffffffffffffff aa".to_owned(),
        "06 ffffffffffffffff 01 aa".to_owned(),
        format!("18 01 02 01 aa {token}"),
        format!("18 02 01 00 {token}"),
        format!("18 02 01 15 {} {token}", "aa".repeat(21)),
        format!("7e78 01 01 02 01 aa {token}"),
    ];
    for text in illegal {
        let bytes = hex(&text);
        let error = decode(&mut Reader::new(&bytes)).expect_err(&text);
        assert!(
            matches!(error.kind, FrameErrorKind::Invalid(_)),
            "{text}: {error}"
        );
        assert_eq!(error.code(), TransportErrorCode::FRAME_ENCODING_ERROR);
    }
}

#[test]
fn values_at_their_bounds_are_legal() {
    let token = "00".repeat(16);
    let legal = [
        "12 d000000000000000".to_owned(),
        "17 d000000000000000".to_owned(),
        "0e 04 ffffffffffffffff 00".to_owned(),
        "06 fffffffffffffffe 01 aa".to_owned(),
        format!("18 02 02 14 {} {token}", "aa".repeat(20)),
    ];
    for text in legal {
        assert!(decoded(&hex(&text)).is_ok(), "{text}");
    }
}

#[test]
fn path_ids_above_32_bits_violate_the_protocol() {
    let types = [
        "3e", "3f", "7e75", "7e76", "7e77", "7e78", "7e79", "7e7a", "7e7b", "7e7c",
    ];
    for frame_type in types {
        let bytes = hex(&format!("{frame_type} c000000100000000 00 00 00 00"));
        let error = decode(&mut Reader::new(&bytes)).expect_err(frame_type);
        assert_eq!(error.kind, FrameErrorKind::PathIdTooLarge);
        assert_eq!(error.code(), TransportErrorCode::PROTOCOL_VIOLATION);
    }
}

#[test]
fn unknown_types_are_refused() {
    for text in [
        "20", "2f", "32", "3d", "4040", "40ae", "40b0", "7e74", "7e7d", "95228c00",
    ] {
        assert_eq!(refused(text), FrameErrorKind::Unknown, "{text}");
    }
}

#[test]
fn a_type_in_more_bytes_than_needed_violates_the_protocol() {
    let bytes = hex("4001");
    let error = decode(&mut Reader::new(&bytes)).unwrap_err();
    assert_eq!(
        error,
        FrameError {
            frame_type: 1,
            kind: FrameErrorKind::LongType
        }
    );
    assert_eq!(error.code(), TransportErrorCode::PROTOCOL_VIOLATION);
}

#[test]
fn an_error_names_the_frame_and_the_problem() {
    let error = decode(&mut Reader::new(&[0x07, 0x00])).unwrap_err();
    assert_eq!(error.to_string(), "frame new_token (0x7): an empty token");
}

#[test]
fn padding_is_one_frame_up_to_the_next() {
    let bytes = hex("0000000001 00");
    let mut reader = Reader::new(&bytes);
    let lengths: Vec<_> = std::iter::from_fn(|| decode(&mut reader).ok()).collect();
    let expected = [
        (FrameType::PADDING, Frame::Padding { length: 4 }),
        (FrameType::PING, Frame::Ping),
        (FrameType::PADDING, Frame::Padding { length: 1 }),
    ];
    assert_eq!(lengths, expected);
}

#[test]
fn types_fall_into_the_classes_of_table_3() {
    let known = (0..=0x1f)
        .chain(0x30..=0x31)
        .chain(0x3e..=0x3f)
        .chain([0xaf, 0x02f5])
        .chain(0x3e75..=0x3e7c);
    let known: Vec<u64> = known.collect();
    let of = |class: fn(FrameType) -> bool| -> Vec<u64> {
        (0..0x4000)
            .filter(|value| known.contains(value) && class(FrameType(*value)))
            .collect()
    };
    let quiet = of(|frame_type| !frame_type.is_ack_eliciting());
    assert_eq!(quiet, [0x00, 0x02, 0x03, 0x1c, 0x1d, 0x3e, 0x3f, 0x02f5]);
    assert_eq!(of(FrameType::is_probing), [0x00, 0x18, 0x1a, 0x1b]);
    let early = of(FrameType::allowed_in_initial_or_handshake);
    assert_eq!(early, [0x00, 0x01, 0x02, 0x03, 0x06, 0x1c]);
    // Excludes frames that answer, that complete the handshake, and those of extensions except
    // DATAGRAM.
    let in_zero_rtt = [0x00, 0x01, 0x04, 0x05].into_iter().chain(0x08..=0x18);
    let in_zero_rtt = in_zero_rtt.chain([0x1a, 0x1c, 0x1d, 0x30, 0x31]);
    let in_zero_rtt: Vec<u64> = in_zero_rtt.collect();
    assert_eq!(of(FrameType::allowed_in_zero_rtt), in_zero_rtt);
    assert!(!FrameType(0x3fff).allowed_in_zero_rtt(), "an unknown type");
    let multipath: Vec<u64> = (0x3e..=0x3f).chain(0x3e75..=0x3e7c).collect();
    assert_eq!(of(FrameType::is_multipath), multipath);
    assert!((0..0x4000).all(|v| known.contains(&v) == (FrameType(v).name() != "unknown")));
}

#[test]
fn a_frame_beyond_the_limit_is_not_written() {
    let frame = Frame::PathAbandon {
        path: PathId(1),
        code: 0x3e,
    };
    let mut out = vec![7];
    assert!(!frame.encode_within(&mut out, Form::Multipath, 4));
    assert_eq!(out, [7]);
    assert!(frame.encode_within(&mut out, Form::Multipath, 5));
    assert_eq!(out, hex("07 7e75 01 3e"));
}

#[test]
fn a_close_reason_is_cut_between_characters() {
    let close = |reason| ConnectionClose {
        application: true,
        code: 0,
        frame_type: 0,
        reason,
    };
    let fitted = |reason: &'static str, available| {
        std::str::from_utf8(close(reason.as_bytes()).fitted(available).reason).unwrap()
    };
    // Three bytes precede the reason.
    assert_eq!(fitted("abc", 100), "abc");
    assert_eq!(fitted("abc", 6), "abc");
    assert_eq!(fitted("abc", 5), "ab");
    assert_eq!(fitted("a\u{20ac}b", 6), "a");
    assert_eq!(fitted("a\u{20ac}b", 7), "a\u{20ac}");
    assert_eq!(fitted("a\u{20ac}b", 8), "a\u{20ac}b");
    assert_eq!(fitted("\u{1f600}", 6), "");
    assert_eq!(fitted("abc", 3), "");
    assert_eq!(fitted("abc", 0), "");
}

#[test]
fn an_acknowledgement_of_nothing_is_not_written() {
    let mut out = Vec::new();
    let written = put_ack(
        &mut out,
        Form::Plain,
        PathId::ZERO,
        std::iter::empty(),
        9,
        0,
        None,
        99,
    );
    assert_eq!((written, out.len()), (None, 0));
    let ranges = || [1..=2].into_iter();
    assert_eq!(
        put_ack(
            &mut out,
            Form::Plain,
            PathId::ZERO,
            ranges(),
            0,
            0,
            None,
            99
        ),
        None
    );
    assert_eq!(
        put_ack(&mut out, Form::Plain, PathId::ZERO, ranges(), 9, 0, None, 4),
        None
    );
    assert_eq!(
        put_ack(&mut out, Form::Plain, PathId::ZERO, ranges(), 9, 0, None, 5),
        Some(())
    );
    assert_eq!(out, hex("02 02 00 00 01"));
}

#[test]
#[should_panic(expected = "descend with gaps")]
fn ranges_that_touch_are_a_mistake_of_the_caller() {
    let ranges = [5..=6, 3..=4].into_iter();
    let _ = put_ack(
        &mut Vec::new(),
        Form::Plain,
        PathId::ZERO,
        ranges,
        9,
        0,
        None,
        99,
    );
}

#[test]
fn a_stream_header_is_what_the_decoder_expects() {
    let id = StreamId(4);
    for (offset, fin) in [(0, false), (70, true), (varint::MAX - 2, false)] {
        for with_length in [true, false] {
            let mut out = Vec::new();
            put_stream_header(&mut out, id, offset, with_length.then_some(2), fin);
            assert_eq!(out.len(), stream_header_len(id, offset, 2, with_length));
            out.extend([0xaa, 0xbb]);
            let data = &[0xaa, 0xbb];
            assert_eq!(
                decoded(&out),
                Ok(Frame::Stream(Stream {
                    id,
                    offset,
                    fin,
                    data
                }))
            );
        }
    }
}

#[test]
fn a_datagram_header_is_what_the_decoder_expects() {
    for with_length in [true, false] {
        let mut out = Vec::new();
        put_datagram_header(&mut out, with_length.then_some(100));
        assert_eq!(out.len(), datagram_header_len(100, with_length));
        out.extend([0xaa; 100]);
        assert_eq!(decoded(&out), Ok(Frame::Datagram { data: &[0xaa; 100] }));
    }
}
