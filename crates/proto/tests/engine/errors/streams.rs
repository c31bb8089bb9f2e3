//! Streams, flow control and datagrams (RFC 9000, sections 2 to 4 and 19; RFC 9221).

use super::{BOTH, ZERO, assert_breach, assert_bytes, assert_closed, assert_harmless};
use crate::raw::{RawPeer, Setup};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::wire::frame::{Frame, Stream};
use anabranch_proto::wire::{Dir, Side, StreamId, TransportErrorCode as Code};

/// Windows and numbers of streams the victim allows by default.
const STREAM_WINDOW: u64 = 2 << 20;
const STREAMS: u64 = 128;

fn data(id: StreamId, offset: u64, data: &[u8], fin: bool) -> Frame<'_> {
    Frame::Stream(Stream {
        id,
        offset,
        fin,
        data,
    })
}

fn reset(id: StreamId, final_size: u64) -> Frame<'static> {
    Frame::ResetStream {
        id,
        code: 1,
        final_size,
    }
}

/// A stream the victim would open, and one of its peer.
fn streams(victim: Side, dir: Dir, index: u64) -> (StreamId, StreamId) {
    (
        StreamId::new(victim, dir, index),
        StreamId::new(victim.peer(), dir, index),
    )
}

#[test]
fn frames_for_a_stream_the_victim_never_opened_are_state_errors() {
    for victim in BOTH {
        let (own, _) = streams(victim, Dir::Bi, 0);
        let frames = [
            data(own, 0, b"x", false),
            reset(own, 0),
            Frame::StopSending { id: own, code: 1 },
            Frame::MaxStreamData { id: own, limit: 9 },
            Frame::StreamDataBlocked { id: own, limit: 9 },
        ];
        for frame in frames {
            assert_breach(victim, &[frame], Code::STREAM_STATE_ERROR);
        }
    }
}

#[test]
fn nothing_is_received_on_a_stream_that_only_sends() {
    for victim in BOTH {
        let (own, _) = streams(victim, Dir::Uni, 0);
        let frames = [
            data(own, 0, b"x", false),
            reset(own, 0),
            Frame::StreamDataBlocked { id: own, limit: 9 },
        ];
        for frame in frames {
            let mut peer = RawPeer::against(victim);
            let opened = peer.connection().expect("the victim").open(Dir::Uni);
            assert_eq!(opened, Some(own));
            peer.frames(ZERO, &[frame]);
            assert_closed(&peer, Code::STREAM_STATE_ERROR);
        }
    }
}

#[test]
fn nothing_is_asked_of_a_stream_that_only_receives() {
    for victim in BOTH {
        let (_, theirs) = streams(victim, Dir::Uni, 0);
        let frames = [
            Frame::StopSending {
                id: theirs,
                code: 1,
            },
            Frame::MaxStreamData {
                id: theirs,
                limit: 9,
            },
        ];
        for frame in frames {
            assert_breach(victim, &[frame], Code::STREAM_STATE_ERROR);
        }
    }
}

#[test]
fn a_stream_beyond_the_limit_is_refused_whatever_names_it() {
    for victim in BOTH {
        for dir in [Dir::Bi, Dir::Uni] {
            let (_, last) = streams(victim, dir, STREAMS - 1);
            let (_, beyond) = streams(victim, dir, STREAMS);
            assert_harmless(victim, &[data(last, 0, b"x", false)]);
            let frames = [data(beyond, 0, b"x", false), reset(beyond, 0)];
            for frame in frames {
                assert_breach(victim, &[frame], Code::STREAM_LIMIT_ERROR);
            }
        }
        let (_, beyond) = streams(victim, Dir::Bi, STREAMS);
        let frames = [
            Frame::StopSending {
                id: beyond,
                code: 1,
            },
            Frame::MaxStreamData {
                id: beyond,
                limit: 9,
            },
            Frame::StreamDataBlocked {
                id: beyond,
                limit: 9,
            },
        ];
        for frame in frames {
            assert_breach(victim, &[frame], Code::STREAM_LIMIT_ERROR);
        }
    }
}

#[test]
fn data_beyond_the_window_of_a_stream_is_a_flow_control_error() {
    for victim in BOTH {
        let (_, id) = streams(victim, Dir::Uni, 0);
        assert_harmless(victim, &[data(id, STREAM_WINDOW - 1, b"x", false)]);
        let code = Code::FLOW_CONTROL_ERROR;
        assert_breach(victim, &[data(id, STREAM_WINDOW, b"x", false)], code);
        assert_breach(victim, &[reset(id, STREAM_WINDOW + 1)], code);
    }
}

#[test]
fn data_beyond_the_window_of_the_connection_is_a_flow_control_error() {
    for victim in BOTH {
        let (_, first) = streams(victim, Dir::Uni, 0);
        let (_, second) = streams(victim, Dir::Uni, 1);
        // Two full streams exceed the 3 MiB of the connection.
        let last = STREAM_WINDOW - 1;
        let code = Code::FLOW_CONTROL_ERROR;
        let frames = [
            data(first, last, b"x", false),
            data(second, last, b"x", false),
        ];
        assert_breach(victim, &frames, code);
        let frames = [data(first, last, b"x", false), reset(second, STREAM_WINDOW)];
        assert_breach(victim, &frames, code);
    }
}

#[test]
fn the_final_size_of_a_stream_does_not_change() {
    for victim in BOTH {
        let (_, id) = streams(victim, Dir::Uni, 0);
        let code = Code::FINAL_SIZE_ERROR;
        let end = data(id, 0, b"four", true);
        for second in [
            data(id, 4, b"x", false),
            data(id, 0, b"fo", true),
            data(id, 0, b"longer", true),
            reset(id, 3),
            reset(id, 5),
        ] {
            assert_breach(victim, &[end.clone(), second], code);
        }
        assert_breach(victim, &[data(id, 0, b"four", false), reset(id, 3)], code);
        let gap = data(id, 10, b"x", false);
        assert_breach(victim, &[gap, data(id, 0, b"four", true)], code);
        assert_breach(victim, &[reset(id, 4), data(id, 4, b"x", false)], code);
        assert_harmless(victim, &[end.clone(), end, reset(id, 4)]);
    }
}

#[test]
fn stream_counts_above_two_to_the_60_are_encoding_errors() {
    let count = [0xd0, 0, 0, 0, 0, 0, 0, 1];
    for victim in BOTH {
        for kind in [0x12, 0x13, 0x16, 0x17] {
            let payload = [&[kind][..], &count].concat();
            assert_bytes(victim, &payload, Code::FRAME_ENCODING_ERROR);
        }
    }
}

#[test]
fn stream_data_beyond_the_largest_offset_is_an_encoding_error() {
    let payload = [
        0x0e, 0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0xaa,
    ];
    for victim in BOTH {
        assert_bytes(victim, &payload, Code::FRAME_ENCODING_ERROR);
    }
}

#[test]
fn limits_that_shrink_are_ignored() {
    for victim in BOTH {
        let frames = [
            Frame::MaxData { limit: 0 },
            Frame::MaxStreams {
                dir: Dir::Bi,
                limit: 0,
            },
            Frame::DataBlocked { limit: 0 },
            Frame::StreamsBlocked {
                dir: Dir::Uni,
                limit: 0,
            },
        ];
        assert_harmless(victim, &frames);
    }
}

#[test]
fn a_datagram_that_was_not_announced_is_a_violation() {
    let mut transport = TransportConfig::default();
    transport.streams.max_datagram_frame_size = 0;
    let mut peer = RawPeer::client(Setup {
        transport: transport.clone(),
        ..Setup::default()
    })
    .establish();
    peer.frames(ZERO, &[Frame::Datagram { data: b"x" }]);
    assert_closed(&peer, Code::PROTOCOL_VIOLATION);

    transport.streams.max_datagram_frame_size = 100;
    let mut peer = RawPeer::client(Setup {
        transport,
        ..Setup::default()
    })
    .establish();
    peer.frames(ZERO, &[Frame::Datagram { data: &[0; 90] }]);
    peer.assert_alive();
    peer.frames(ZERO, &[Frame::Datagram { data: &[0; 100] }]);
    assert_closed(&peer, Code::PROTOCOL_VIOLATION);
}
