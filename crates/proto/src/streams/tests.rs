//! Behaviour of one side, and of two sides over a perfect channel. [`channel`] holds the bad one.

use super::*;
use crate::error::TransportError;
use crate::packet::Frames;
use crate::recovery::sent::{SentFrame, SentFrames};
use crate::sched::{Backlog, ClassSet, UnitKind};
use anabranch_wire::cursor::Reader;
use anabranch_wire::frame::{Frame, Stream as StreamFrame, decode};
use anabranch_wire::{PathId, TransportErrorCode};

mod buffers;
mod channel;
mod classes;
mod gaps;
mod order;
mod repair;
mod view;
mod windows;

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const C: PathId = PathId(2);

fn limits() -> Limits {
    Limits {
        receive_window: 3000,
        max_receive_window: 3000,
        stream_receive_window: 2000,
        max_stream_receive_window: 2000,
        send_buffer: 4000,
        max_streams_bidi: 4,
        max_streams_uni: 4,
        datagram_receive_buffer: 1000,
        datagram_send_buffer: 1000,
        max_datagram_frame_size: 1000,
        ..Limits::default()
    }
}

fn side(side: Side, limits: &Limits) -> Streams {
    let mut streams = Streams::new(side, limits);
    let mut params = TransportParameters::default();
    limits.announce(&mut params);
    streams.on_peer_params(&params);
    streams
}

fn client() -> Streams {
    side(Side::Client, &limits())
}

fn server() -> Streams {
    side(Side::Server, &limits())
}

fn peer_stream(dir: Dir, index: u64) -> StreamId {
    StreamId::new(Side::Client, dir, index)
}

fn pattern(id: StreamId, start: u64, length: usize) -> Bytes {
    (start..start + length as u64)
        .map(|at| (at.wrapping_mul(7) + id.0 * 31) as u8)
        .collect()
}

fn put(streams: &mut Streams, id: StreamId, length: usize) -> usize {
    streams.write(id, &mut pattern(id, 0, length)).unwrap()
}

fn frame(id: StreamId, offset: u64, length: usize, fin: bool) -> (StreamId, u64, Vec<u8>, bool) {
    (id, offset, pattern(id, offset, length).to_vec(), fin)
}

fn receive(
    streams: &mut Streams,
    (id, offset, data, fin): (StreamId, u64, Vec<u8>, bool),
) -> Result<(), TransportError> {
    let frame = StreamFrame {
        id,
        offset,
        fin,
        data: &data,
    };
    streams.on_stream(&frame).map(drop)
}

fn code(result: Result<(), TransportError>) -> TransportErrorCode {
    result.unwrap_err().code
}

fn events(streams: &mut Streams) -> Vec<StreamEvent> {
    std::iter::from_fn(|| streams.poll_event()).collect()
}

/// A packet of up to `limit` bytes with whatever there is to send.
fn packet(streams: &mut Streams, path: PathId, limit: usize) -> (Vec<u8>, SentFrames) {
    let ((), out, sent) = written(limit, |frames| {
        streams.write_control(frames);
        streams.write_datagrams(frames, ClassSet::ALL, u64::MAX, None);
        streams.write_data(frames, path, 0, u64::MAX);
    });
    assert!(out.len() <= limit);
    (out, sent)
}

/// What `write` says, and the packet of up to `limit` bytes that it wrote.
fn written<T>(limit: usize, write: impl FnOnce(&mut Frames<'_>) -> T) -> (T, Vec<u8>, SentFrames) {
    let mut out = Vec::new();
    let mut frames = Frames::new(&mut out, limit);
    let answer = write(&mut frames);
    let sent = frames.into_sent();
    (answer, out, sent)
}

/// Hands the frames of a packet to a side.
fn handle(streams: &mut Streams, payload: &[u8]) -> Result<(), TransportError> {
    let mut reader = Reader::new(payload);
    while !reader.is_empty() {
        match decode(&mut reader).expect("frames are well formed").1 {
            Frame::Padding { .. } => {}
            Frame::Stream(frame) => {
                streams.on_stream(&frame)?;
            }
            Frame::ResetStream {
                id,
                code,
                final_size,
            } => {
                streams.on_reset_stream(id, code, final_size)?;
            }
            Frame::StopSending { id, code } => streams.on_stop_sending(id, code)?,
            Frame::MaxData { limit } => streams.on_max_data(limit),
            Frame::MaxStreamData { id, limit } => streams.on_max_stream_data(id, limit)?,
            Frame::MaxStreams { dir, limit } => streams.on_max_streams(dir, limit),
            Frame::DataBlocked { limit } => streams.on_data_blocked(limit),
            Frame::StreamDataBlocked { id, limit } => streams.on_stream_data_blocked(id, limit)?,
            Frame::StreamsBlocked { dir, limit } => streams.on_streams_blocked(dir, limit),
            Frame::Datagram { data } => streams.on_datagram(PathId::ZERO, data)?,
            other => panic!("{other:?} is not a frame of streams"),
        }
    }
    Ok(())
}

/// Moves everything from one side to the other and acknowledges it.
fn transfer(from: &mut Streams, to: &mut Streams) {
    loop {
        let (payload, sent) = packet(from, A, 1200);
        if payload.is_empty() {
            return;
        }
        handle(to, &payload).unwrap();
        sent.iter().for_each(|frame| from.on_acked(frame));
    }
}

fn settle(one: &mut Streams, other: &mut Streams) {
    while !one.is_idle() || !other.is_idle() {
        transfer(one, other);
        transfer(other, one);
    }
}

fn read_all(streams: &mut Streams, id: StreamId) -> Vec<u8> {
    let mut all = Vec::new();
    while let Ok(Some(bytes)) = streams.read(id, usize::MAX) {
        all.extend_from_slice(&bytes);
    }
    all
}

fn names(sent: &SentFrames) -> Vec<String> {
    let name = |frame| {
        format!("{frame:?}")
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    sent.iter().map(name).collect()
}

#[test]
fn a_stream_arrives_as_written_and_is_forgotten_by_both_sides() {
    let (mut client, mut server) = (client(), server());
    let id = client.open(Dir::Uni).unwrap();
    assert_eq!(put(&mut client, id, 1500), 1500);
    client.finish(id).unwrap();
    transfer(&mut client, &mut server);
    assert_eq!(events(&mut client), [StreamEvent::Finished { id }]);
    let seen = events(&mut server);
    assert_eq!(
        seen,
        [
            StreamEvent::Opened { dir: Dir::Uni },
            StreamEvent::Readable { id }
        ]
    );
    assert_eq!(server.accept(Dir::Uni), Some(id));
    assert_eq!(server.read(id, 10).unwrap().unwrap(), pattern(id, 0, 10));
    assert_eq!(
        server.read(id, 10_000).unwrap().unwrap(),
        pattern(id, 10, 1490)
    );
    assert_eq!(server.read(id, 10), Ok(None));
    assert_eq!(server.read(id, 10), Err(ReadError::Closed));
    assert!(client.live.is_empty() && server.live.is_empty());
}

#[test]
fn nothing_can_be_opened_before_the_peer_allows_it() {
    let mut client = Streams::new(Side::Client, &limits());
    assert_eq!(client.open(Dir::Bi), None);
    let params = TransportParameters {
        initial_max_streams_bidi: 1,
        ..Default::default()
    };
    client.on_peer_params(&params);
    assert_eq!(
        events(&mut client),
        [StreamEvent::Available { dir: Dir::Bi }]
    );
    assert!(client.open(Dir::Bi).is_some());
}

#[test]
fn a_frame_opens_all_streams_below_its_own() {
    let mut server = server();
    receive(&mut server, frame(peer_stream(Dir::Bi, 2), 0, 1, false)).unwrap();
    let accepted: Vec<_> = std::iter::from_fn(|| server.accept(Dir::Bi)).collect();
    assert_eq!(accepted, [0, 1, 2].map(|index| peer_stream(Dir::Bi, index)));
    assert_eq!(server.accept(Dir::Uni), None);
}

#[test]
fn a_stream_above_the_limit_is_a_stream_limit_error() {
    let mut server = server();
    let result = receive(&mut server, frame(peer_stream(Dir::Uni, 4), 0, 1, false));
    assert_eq!(code(result), TransportErrorCode::STREAM_LIMIT_ERROR);
    let result = server.on_max_stream_data(peer_stream(Dir::Bi, 4), 1);
    assert_eq!(code(result), TransportErrorCode::STREAM_LIMIT_ERROR);
}

#[test]
fn frames_in_the_wrong_direction_are_stream_state_errors() {
    let mut server = server();
    let ours = server.open(Dir::Uni).unwrap();
    let theirs = peer_stream(Dir::Uni, 0);
    let unopened = StreamId::new(Side::Server, Dir::Bi, 0);
    let results = [
        receive(&mut server, frame(ours, 0, 1, false)),
        server.on_reset_stream(ours, 0, 0),
        server.on_stream_data_blocked(ours, 0),
        server.on_stop_sending(theirs, 0),
        server.on_max_stream_data(theirs, 1),
        receive(&mut server, frame(unopened, 0, 1, false)),
        server.on_max_stream_data(unopened, 1),
        server.on_stop_sending(unopened, 1),
    ];
    for result in results {
        assert_eq!(code(result), TransportErrorCode::STREAM_STATE_ERROR);
    }
}

#[test]
fn a_final_size_holds_once_it_is_known() {
    let id = peer_stream(Dir::Uni, 0);
    let mut known = server();
    receive(&mut known, frame(id, 90, 10, true)).unwrap();
    let results = [
        receive(&mut known, frame(id, 95, 10, false)),
        receive(&mut known, frame(id, 0, 50, true)),
        known.on_reset_stream(id, 0, 99),
        known.on_reset_stream(id, 0, 101),
    ];
    for result in results {
        assert_eq!(code(result), TransportErrorCode::FINAL_SIZE_ERROR);
    }
    receive(&mut known, frame(id, 0, 90, false)).unwrap();
    assert_eq!(read_all(&mut known, id), pattern(id, 0, 100));

    let mut unknown = server();
    receive(&mut unknown, frame(id, 0, 100, false)).unwrap();
    assert_eq!(
        code(receive(&mut unknown, frame(id, 0, 99, true))),
        TransportErrorCode::FINAL_SIZE_ERROR
    );
    assert_eq!(
        code(unknown.on_reset_stream(id, 0, 99)),
        TransportErrorCode::FINAL_SIZE_ERROR
    );
}

#[test]
fn data_beyond_a_limit_is_a_flow_control_error() {
    let id = peer_stream(Dir::Uni, 0);
    let other = peer_stream(Dir::Uni, 1);
    let flow = TransportErrorCode::FLOW_CONTROL_ERROR;
    assert_eq!(
        code(receive(&mut server(), frame(id, 1999, 2, false))),
        flow
    );
    assert_eq!(code(server().on_reset_stream(id, 0, 2001)), flow);
    assert_eq!(
        code(receive(&mut server(), frame(id, (1 << 62) - 1, 1, false))),
        flow
    );
    // 2000 bytes on one stream leave 1000 of the connection's 3000, counted by offset.
    let mut server = server();
    receive(&mut server, frame(id, 1999, 1, false)).unwrap();
    receive(&mut server, frame(other, 999, 1, false)).unwrap();
    assert_eq!(
        code(receive(&mut server, frame(other, 1000, 1, false))),
        flow
    );
}

#[test]
fn a_reset_frees_memory_returns_credit_and_is_told_once() {
    let mut server = server();
    let id = peer_stream(Dir::Uni, 0);
    receive(&mut server, frame(id, 100, 400, false)).unwrap();
    assert_eq!(server.stats().buffered_out_of_order, 400);
    server.on_reset_stream(id, 7, 1500).unwrap();
    assert_eq!(server.stats().buffered_out_of_order, 0);
    assert_eq!(server.inbound.consumed(), 1500);
    assert!(names(&packet(&mut server, A, 1200).1).contains(&"MaxData".to_owned()));
    assert!(events(&mut server).contains(&StreamEvent::Readable { id }));
    assert_eq!(server.read(id, 10), Err(ReadError::Reset(7)));
    assert_eq!(server.read(id, 10), Err(ReadError::Closed));
    assert!(server.live.is_empty());
}

#[test]
fn a_reset_after_all_bytes_arrived_changes_nothing() {
    let mut server = server();
    let id = peer_stream(Dir::Uni, 0);
    receive(&mut server, frame(id, 0, 50, true)).unwrap();
    server.on_reset_stream(id, 7, 50).unwrap();
    assert_eq!(read_all(&mut server, id), pattern(id, 0, 50));
}

#[test]
fn a_stopped_stream_returns_all_credit_and_ends_with_the_peers_reset() {
    let (mut client, mut server) = (client(), server());
    let id = client.open(Dir::Bi).unwrap();
    put(&mut client, id, 1000);
    transfer(&mut client, &mut server);
    server.stop(id, 42.into()).unwrap();
    assert_eq!(server.read(id, 10), Err(ReadError::Closed));
    assert_eq!(server.stop(id, 42.into()), Err(ClosedStream));
    put(&mut client, id, 500);
    transfer(&mut client, &mut server);
    assert_eq!(server.inbound.consumed(), 1500);
    settle(&mut client, &mut server);
    assert!(events(&mut client).contains(&StreamEvent::Stopped { id, code: 42 }));
    assert!(server.live[&id].recv.is_none() && client.live[&id].send.is_none());
    assert_eq!(
        client.write(id, &mut pattern(id, 0, 1)),
        Err(WriteError::Closed)
    );
}

#[test]
fn a_stopped_writer_learns_the_code_until_its_reset_arrived() {
    let (mut client, id) = with_stream(100);
    client.on_stop_sending(id, 9).unwrap();
    client.on_stop_sending(id, 9).unwrap();
    assert_eq!(events(&mut client), [StreamEvent::Stopped { id, code: 9 }]);
    assert_eq!(
        client.write(id, &mut pattern(id, 0, 1)),
        Err(WriteError::Stopped(9))
    );
    assert_eq!(client.finish(id), Err(ClosedStream));
    assert_eq!(client.reset(id, 1.into()), Ok(()));
    let (payload, sent) = packet(&mut client, A, 1200);
    let reset = Frame::ResetStream {
        id,
        code: 9,
        final_size: 0,
    };
    assert_eq!(decode(&mut Reader::new(&payload)).unwrap().1, reset);
    sent.iter().for_each(|frame| client.on_acked(frame));
    assert!(client.live.is_empty());
}

fn with_stream(length: usize) -> (Streams, StreamId) {
    with_stream_within(&limits(), length)
}

fn with_stream_within(limits: &Limits, length: usize) -> (Streams, StreamId) {
    let mut client = side(Side::Client, limits);
    let id = client.open(Dir::Uni).unwrap();
    put(&mut client, id, length);
    (client, id)
}

#[test]
fn a_lost_reset_is_sent_again() {
    let (mut client, id) = with_stream(100);
    let (_, data) = packet(&mut client, A, 80);
    client.reset(id, 3.into()).unwrap();
    let (_, sent) = packet(&mut client, A, 1200);
    assert_eq!(names(&sent), ["ResetStream"]);
    for frame in sent.iter().chain(&data) {
        client.on_lost(frame, A);
    }
    let (_, sent) = packet(&mut client, A, 1200);
    assert_eq!(names(&sent), ["ResetStream"]);
    data.iter().for_each(|frame| client.on_acked(frame));
    assert_eq!(client.live.len(), 1);
}

#[test]
fn a_blocked_writer_is_told_when_the_streams_limit_rises() {
    let (mut client, id) = with_stream(2000);
    assert_eq!(
        client.write(id, &mut pattern(id, 0, 1)),
        Err(WriteError::Blocked)
    );
    let (_, sent) = packet(&mut client, A, 4000);
    assert_eq!(names(&sent), ["StreamDataBlocked", "Stream"]);
    assert_eq!(
        client.write(id, &mut pattern(id, 0, 1)),
        Err(WriteError::Blocked)
    );
    assert!(
        !client.has_control(),
        "the peer is told once for each limit"
    );
    client.on_max_stream_data(id, 1999).unwrap();
    assert_eq!(events(&mut client), []);
    client.on_max_stream_data(id, 2500).unwrap();
    assert_eq!(events(&mut client), [StreamEvent::Writable { id }]);
    assert_eq!(put(&mut client, id, 1000), 500);
}

#[test]
fn a_full_send_buffer_blocks_until_a_quarter_of_it_is_free() {
    let limits = Limits {
        send_buffer: 1000,
        ..limits()
    };
    let mut client = side(Side::Client, &limits);
    let id = client.open(Dir::Uni).unwrap();
    assert_eq!(put(&mut client, id, 1500), 1000);
    assert_eq!(
        client.write(id, &mut pattern(id, 0, 1)),
        Err(WriteError::Blocked)
    );
    let (_, first) = packet(&mut client, A, 220);
    let (_, second) = packet(&mut client, A, 220);
    first.iter().for_each(|frame| client.on_acked(frame));
    assert_eq!(events(&mut client), []);
    second.iter().for_each(|frame| client.on_acked(frame));
    assert_eq!(events(&mut client), [StreamEvent::Writable { id }]);
}

#[test]
fn the_connections_limit_holds_data_back_and_is_reported_once() {
    let mut client = client();
    let (first, second) = (
        client.open(Dir::Uni).unwrap(),
        client.open(Dir::Uni).unwrap(),
    );
    put(&mut client, first, 2000);
    put(&mut client, second, 1500);
    client.finish(second).unwrap();
    assert_eq!(client.backlog().unsent, 3000);
    let (_, sent) = packet(&mut client, A, 10_000);
    assert_eq!(names(&sent), ["Stream", "Stream"]);
    let backlog = client.backlog();
    assert_eq!(
        (backlog.unsent, backlog.credit, backlog.unacked),
        (0, 0, 3000)
    );
    assert_eq!(client.next_unit().kind, UnitKind::Idle);
    assert_eq!(names(&packet(&mut client, A, 100).1), ["DataBlocked"]);
    assert!(!client.has_control());
    client.on_max_data(4000);
    assert_eq!(client.backlog().unsent, 500);
    let (_, sent) = packet(&mut client, A, 10_000);
    let last = SentFrame::Stream {
        id: second,
        start: 1000,
        length: 500,
        fin: true,
    };
    assert_eq!(sent[..], [last]);
}

#[test]
fn the_peers_application_reads_the_limits_up() {
    let (mut client, mut server) = (client(), server());
    let id = client.open(Dir::Uni).unwrap();
    let mut rest = pattern(id, 0, 50_000);
    let mut received = Vec::new();
    while received.len() < 50_000 {
        let _ = client.write(id, &mut rest);
        transfer(&mut client, &mut server);
        received.extend(read_all(&mut server, id));
        transfer(&mut server, &mut client);
    }
    assert_eq!(received, pattern(id, 0, 50_000));
    assert_eq!(server.stats().bytes_delivered, 50_000);
}

#[test]
fn lost_limits_are_sent_again_with_present_values() {
    let mut server = server();
    let id = peer_stream(Dir::Uni, 0);
    receive(&mut server, frame(id, 0, 1000, false)).unwrap();
    read_all(&mut server, id);
    let (_, sent) = packet(&mut server, A, 1200);
    assert_eq!(names(&sent), ["MaxData", "MaxStreamData"]);
    receive(&mut server, frame(id, 1000, 100, false)).unwrap();
    read_all(&mut server, id);
    assert!(!server.has_control());
    sent.iter().for_each(|frame| server.on_lost(frame, A));
    let (payload, _) = packet(&mut server, A, 1200);
    let mut reader = Reader::new(&payload);
    assert_eq!(
        decode(&mut reader).unwrap().1,
        Frame::MaxData { limit: 4100 }
    );
    assert_eq!(
        decode(&mut reader).unwrap().1,
        Frame::MaxStreamData { id, limit: 3100 }
    );
}

#[test]
fn a_window_in_full_use_grows_to_its_maximum() {
    let limits = Limits {
        max_stream_receive_window: 100_000,
        max_receive_window: 120_000,
        send_buffer: 1_000_000,
        ..limits()
    };
    let (mut client, mut server) = (side(Side::Client, &limits), side(Side::Server, &limits));
    let id = client.open(Dir::Uni).unwrap();
    let mut now = Instant::ZERO;
    for _ in 0..200 {
        now += Duration::from_millis(10);
        server.set_tuning(Duration::from_millis(10), now);
        let _ = client.write(id, &mut Bytes::from(vec![0; 200_000]));
        transfer(&mut client, &mut server);
        read_all(&mut server, id);
        transfer(&mut server, &mut client);
    }
    let stream = server.live[&id].recv.as_ref().unwrap().grant.window();
    assert_eq!((stream, server.stats().receive_window), (100_000, 120_000));
}

#[test]
fn many_short_streams_leave_nothing_behind() {
    let (mut client, mut server) = (client(), server());
    for _ in 0..5_000 {
        let id = client
            .open(Dir::Bi)
            .expect("closed streams make room for new ones");
        put(&mut client, id, 10);
        client.finish(id).unwrap();
        transfer(&mut client, &mut server);
        assert_eq!(server.accept(Dir::Bi), Some(id));
        assert_eq!(read_all(&mut server, id).len(), 10);
        put(&mut server, id, 20);
        server.finish(id).unwrap();
        settle(&mut client, &mut server);
        assert_eq!(read_all(&mut client, id).len(), 20);
        settle(&mut client, &mut server);
        assert!(client.live.is_empty() && server.live.is_empty());
        assert!(client.control.streams.is_empty() && server.control.streams.is_empty());
        events(&mut client);
        events(&mut server);
    }
}

#[test]
fn a_frame_for_a_forgotten_stream_is_ignored() {
    let mut server = server();
    let id = peer_stream(Dir::Uni, 0);
    receive(&mut server, frame(id, 0, 10, true)).unwrap();
    read_all(&mut server, id);
    assert!(server.live.is_empty());
    receive(&mut server, frame(id, 0, 10, true)).unwrap();
    server.on_reset_stream(id, 0, 10).unwrap();
    assert!(server.live.is_empty());
}

#[test]
fn a_waiting_application_is_told_about_news_once() {
    let mut server = server();
    let id = peer_stream(Dir::Uni, 0);
    for offset in [0, 10, 20] {
        receive(&mut server, frame(id, offset, 10, false)).unwrap();
    }
    assert_eq!(events(&mut server).len(), 2);
    read_all(&mut server, id);
    receive(&mut server, frame(id, 40, 10, false)).unwrap();
    assert_eq!(events(&mut server), []);
    receive(&mut server, frame(id, 30, 10, false)).unwrap();
    assert_eq!(events(&mut server), [StreamEvent::Readable { id }]);
}
