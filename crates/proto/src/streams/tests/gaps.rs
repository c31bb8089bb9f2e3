//! Windows that grow with what waits behind a gap.

use super::*;

const WINDOW: u64 = 4000;

fn growing() -> Limits {
    Limits {
        receive_window: 2 * WINDOW,
        max_receive_window: 64 * WINDOW,
        stream_receive_window: WINDOW,
        max_stream_receive_window: 8 * WINDOW,
        ..limits()
    }
}

/// A side whose application has read 1000 bytes of the stream.
fn reading(id: StreamId) -> Streams {
    let mut server = side(Side::Server, &growing());
    receive(&mut server, frame(id, 0, 1000, false)).unwrap();
    assert_eq!(read_all(&mut server, id).len(), 1000);
    told(&mut server, id);
    server
}

/// The limits of a stream and of the connection, as the peer is told of them now; zero for those it
/// is not.
fn told(server: &mut Streams, id: StreamId) -> (u64, u64) {
    let (mut stream, mut connection) = (0, 0);
    let ((), out, _) = written(1000, |frames| server.write_control(frames));
    let mut reader = Reader::new(&out);
    while !reader.is_empty() {
        match decode(&mut reader).unwrap().1 {
            Frame::MaxStreamData { id: of, limit } if of == id => stream = limit,
            Frame::MaxData { limit } => connection = limit,
            _ => {}
        }
    }
    (stream, connection)
}

#[test]
fn a_window_grows_with_what_waits_behind_a_gap() {
    let id = peer_stream(Dir::Uni, 0);
    let mut server = reading(id);
    receive(&mut server, frame(id, 1001, 1000, false)).unwrap();
    assert_eq!(told(&mut server, id), (0, 0));
    receive(&mut server, frame(id, 2001, 2000, false)).unwrap();
    // Four times 3000 bytes, and one and a half times that for the connection.
    assert_eq!(told(&mut server, id), (1000 + 12_000, 1000 + 18_000));
    receive(&mut server, frame(id, 1000, 1, false)).unwrap();
    assert_eq!(read_all(&mut server, id).len(), 3001);
    assert_eq!(told(&mut server, id), (4001 + 12_000, 4001 + 18_000));
}

#[test]
fn a_window_grows_with_a_gap_to_its_maximum_and_no_further() {
    let id = peer_stream(Dir::Uni, 0);
    let (mut server, mut limit, mut received) = (reading(id), WINDOW, 1001);
    while received + 1000 <= limit {
        receive(&mut server, frame(id, received, 1000, false)).unwrap();
        received += 1000;
        limit = limit.max(told(&mut server, id).0);
    }
    assert_eq!(limit, 1000 + 8 * WINDOW);
}

#[test]
fn a_peer_of_whom_nothing_was_read_gets_no_larger_window_for_a_gap() {
    let mut server = side(Side::Server, &growing());
    let id = peer_stream(Dir::Uni, 0);
    receive(&mut server, frame(id, 1, WINDOW as usize - 1, false)).unwrap();
    assert_eq!(told(&mut server, id), (0, 0));
}

#[test]
fn an_application_that_leaves_data_unread_gets_no_larger_window_for_a_gap() {
    let id = peer_stream(Dir::Uni, 0);
    let mut server = reading(id);
    receive(&mut server, frame(id, 1000, 501, false)).unwrap();
    receive(&mut server, frame(id, 1600, 3400, false)).unwrap();
    assert_eq!(told(&mut server, id), (0, 0));
    assert_eq!(read_all(&mut server, id).len(), 501);
    receive(&mut server, frame(id, 1501, 1, false)).unwrap();
    assert_eq!(told(&mut server, id).0, 1501 + 4 * 3400);
}

#[test]
fn gaps_widen_a_window_by_32_times_what_was_read_at_most() {
    let id = peer_stream(Dir::Uni, 0);
    let mut server = side(Side::Server, &growing());
    receive(&mut server, frame(id, 0, 30, false)).unwrap();
    read_all(&mut server, id);
    told(&mut server, id);
    receive(&mut server, frame(id, 31, WINDOW as usize - 31, false)).unwrap();
    assert_eq!(told(&mut server, id), (30 + WINDOW + 960, 0));
}

#[test]
fn what_is_never_read_earns_no_window() {
    let limits = Limits {
        receive_window: WINDOW,
        ..growing()
    };
    let mut server = side(Side::Server, &limits);
    let [id, other] = [0, 1].map(|index| peer_stream(Dir::Uni, index));
    server.on_reset_stream(other, 1, 2000).unwrap();
    assert_eq!(told(&mut server, id), (0, 2000 + WINDOW));
    receive(&mut server, frame(id, 1, WINDOW as usize - 1, false)).unwrap();
    assert_eq!(told(&mut server, id), (0, 0));
}

#[test]
fn a_window_grows_with_a_gap_to_two_thirds_of_what_others_have_left() {
    let limits = Limits {
        receive_reserve: 3000,
        max_receive_window: 3 * WINDOW,
        ..growing()
    };
    let mut server = side(Side::Server, &limits);
    let [id, other] = [0, 1].map(|index| peer_stream(Dir::Uni, index));
    receive(&mut server, frame(other, 0, 3000, false)).unwrap();
    receive(&mut server, frame(id, 0, 1000, false)).unwrap();
    read_all(&mut server, id);
    told(&mut server, id);
    receive(&mut server, frame(id, 1001, 3000, false)).unwrap();
    // Of 15,000 bytes 6001 are taken, the gap with them.
    assert_eq!(told(&mut server, id).0, 1000 + (15_000 - 6001) / 3 * 2);
}

#[test]
fn what_is_read_before_a_gap_is_enough_to_grow() {
    let id = peer_stream(Dir::Uni, 0);
    let mut server = side(Side::Server, &growing());
    receive(&mut server, frame(id, 1001, 2000, false)).unwrap();
    receive(&mut server, frame(id, 0, 1000, false)).unwrap();
    assert_eq!(told(&mut server, id), (0, 0));
    read_all(&mut server, id);
    assert_eq!(told(&mut server, id).0, 1000 + 8000);
}

/// Gaps in so many streams that are read otherwise, with so many bytes behind each.
fn gaps(server: &mut Streams, streams: u64, held: usize, fin: bool) {
    for index in 1..=streams {
        let id = peer_stream(Dir::Uni, index);
        receive(server, frame(id, 0, 100, false)).unwrap();
        read_all(server, id);
        receive(server, frame(id, 101, held, fin)).unwrap();
    }
}

#[test]
fn gaps_in_many_streams_widen_the_connection_alone() {
    let first = peer_stream(Dir::Uni, 0);
    for fin in [false, true] {
        let mut server = reading(first);
        gaps(&mut server, 3, 900, fin);
        assert_eq!(told(&mut server, first), (0, 1300 + 4 * 2700), "{fin}");
        let windows = server
            .live
            .values()
            .filter_map(|stream| stream.recv.as_ref());
        assert!(
            windows
                .map(|recv| recv.grant.window())
                .all(|it| it == WINDOW)
        );
    }
}

#[test]
fn a_stream_whose_end_is_known_needs_no_larger_window() {
    let id = peer_stream(Dir::Uni, 0);
    let mut server = reading(id);
    receive(&mut server, frame(id, 1001, 3000, true)).unwrap();
    assert_eq!(told(&mut server, id).0, 0);
}
