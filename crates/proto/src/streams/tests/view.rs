//! What a scheduler is told.

use super::*;
use crate::sched::{ClassSet, MAX_STREAM_VIEWS};

fn ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Sends one packet of `length` bytes of fresh data on `A`.
fn send(streams: &mut Streams, now: Instant, length: u64) -> SentFrames {
    streams.set_clock(now);
    written(10_000, |frames| streams.write_data(frames, A, 0, length)).2
}

#[test]
fn the_age_of_a_hole_counts_from_its_first_sending_until_it_is_acknowledged() {
    let mut client = client();
    let id = client.open(Dir::Uni).unwrap();
    put(&mut client, id, 300);
    let first = send(&mut client, ms(10), 100);
    let second = send(&mut client, ms(20), 100);
    assert_eq!(client.backlog().oldest_unacked, Some(ms(10)));
    client.on_lost(&first[0], A);
    let again = send(&mut client, ms(40), 100);
    client.on_acked(&second[0]);
    assert_eq!(client.backlog().oldest_unacked, Some(ms(10)));
    client.on_acked(&again[0]);
    assert_eq!(client.backlog().oldest_unacked, None);
    send(&mut client, ms(50), 100);
    assert_eq!(client.backlog().oldest_unacked, Some(ms(50)));
}

#[test]
fn the_oldest_of_several_streams_counts() {
    let mut client = client();
    let ids = [(); 2].map(|()| client.open(Dir::Uni).unwrap());
    let mut sent = Vec::new();
    for (id, at) in ids.into_iter().zip([10, 20]) {
        put(&mut client, id, 100);
        sent.push(send(&mut client, ms(at), 100));
    }
    assert_eq!(client.backlog().oldest_unacked, Some(ms(10)));
    client.on_acked(&sent[0][0]);
    assert_eq!(client.backlog().oldest_unacked, Some(ms(20)));
    client.reset(ids[1], 0.into()).unwrap();
    assert_eq!(client.backlog().oldest_unacked, None);
}

#[test]
fn the_send_window_reaches_from_the_oldest_hole_to_the_nearer_of_both_limits() {
    let mut client = client();
    let id = client.open(Dir::Uni).unwrap();
    assert_eq!(client.backlog().send_window, 3000, "the peer's limit");
    put(&mut client, id, 2000);
    let first = send(&mut client, ms(0), 500);
    let second = send(&mut client, ms(0), 500);
    assert_eq!(client.backlog().send_window, 3000);
    client.on_acked(&second[0]);
    // Only the hole keeps the window where it is.
    assert_eq!(client.backlog().send_window, 3000);
    client.on_acked(&first[0]);
    assert_eq!(client.backlog().send_window, 2000);
    client.on_max_data(100_000);
    // 1000 bytes are written and not sent; the buffer has space for 3000 more.
    assert_eq!(client.backlog().send_window, 4000);
}

#[test]
fn both_ends_of_a_stream_are_critical_and_its_middle_is_not() {
    let roomy = Limits {
        receive_window: 1 << 20,
        stream_receive_window: 1 << 20,
        send_buffer: 1 << 20,
        ..limits()
    };
    let mut client = side(Side::Client, &roomy);
    let id = client.open(Dir::Uni).unwrap();
    put(&mut client, id, 30_000);
    client.finish(id).unwrap();
    let mut critical = Vec::new();
    for _ in 0..30 {
        critical.push(client.next_unit().critical);
        send(&mut client, ms(0), 1000);
    }
    let expected: Vec<bool> = (0..30).map(|at| !(12..28).contains(&at)).collect();
    assert_eq!(critical, expected);
}

#[test]
fn a_datagram_tells_its_flow_deadline_skew_and_worth() {
    let mut client = client();
    let options = DatagramOptions {
        flow: 7,
        deadline: Some(ms(9)),
        max_skew: Some(Duration::from_millis(20)),
        repair: false,
        critical: true,
        class: 3,
        tag: 0,
    };
    client
        .send_datagram_with(Bytes::from_static(b"x"), options)
        .unwrap();
    let unit = client.next_unit();
    assert_eq!(unit.kind, UnitKind::Datagram);
    assert_eq!((unit.flow, unit.deadline), (7, Some(ms(9))));
    assert_eq!(unit.max_skew, options.max_skew);
    assert!(unit.critical);
    client.set_clock(ms(9));
    assert_eq!(client.next_unit().kind, UnitKind::Idle);
    assert_eq!(client.stats().datagrams_expired, 1);
}

#[test]
fn streams_are_shown_in_the_order_of_their_turns_as_far_as_credit_lets_them_send() {
    let many = Limits {
        max_streams_uni: 100,
        ..limits()
    };
    let mut client = side(Side::Client, &many);
    let ids: Vec<StreamId> = (0..3).map(|_| client.open(Dir::Uni).unwrap()).collect();
    for id in &ids {
        put(&mut client, *id, 1200);
    }
    client.set_priority(ids[2], 5).unwrap();
    client.finish(ids[1]).unwrap();
    let mut views = Vec::new();
    client.fill_views(ClassSet::ALL, &mut views);
    let shown: Vec<_> = views.iter().map(|view| (view.id, view.priority)).collect();
    assert_eq!(shown, [(ids[2], 5), (ids[0], 0), (ids[1], 0)]);
    assert_eq!(views.iter().map(|view| view.unsent).max(), Some(1200));
    assert_eq!(views.iter().filter(|view| view.finished).count(), 1);
    send(&mut client, ms(0), 2900);
    client.fill_views(ClassSet::ALL, &mut views);
    assert!(views.iter().all(|view| view.unsent <= 100), "{views:?}");
    for _ in 0..40 {
        let id = client.open(Dir::Uni).unwrap();
        client.write(id, &mut Bytes::from_static(b"x")).unwrap();
    }
    client.fill_views(ClassSet::ALL, &mut views);
    assert_eq!(views.len(), MAX_STREAM_VIEWS);
}

#[test]
fn one_stream_sends_alone_if_it_is_named() {
    let mut client = client();
    let ids = [(); 2].map(|()| client.open(Dir::Uni).unwrap());
    for id in ids {
        put(&mut client, id, 100);
    }
    assert!(client.would_write_stream(1200, ids[1]));
    let (bytes, _, sent) = written(1200, |frames| client.write_stream(frames, ids[1], u64::MAX));
    assert_eq!(bytes, 100);
    let [
        SentFrame::Stream {
            id, length: 100, ..
        },
    ] = sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!(id, ids[1]);
    assert!(!client.would_write_stream(1200, ids[1]));
    assert_eq!(client.backlog().unsent, 100);
}

#[test]
fn what_a_packet_would_hold_is_known_before_it_is_begun() {
    let mut client = client();
    let id = client.open(Dir::Uni).unwrap();
    assert!(!client.would_write_fresh(ClassSet::ALL, 1200, 0));
    put(&mut client, id, 300);
    assert!(client.would_write_fresh(ClassSet::ALL, 1200, 0));
    assert!(client.would_write_fresh(ClassSet::ALL, 1200, 299));
    assert!(
        !client.would_write_fresh(ClassSet::ALL, 1200, 300),
        "nothing is behind that"
    );
    assert!(
        !client.would_write_fresh(ClassSet::ALL, 20, 0),
        "too little of it fits"
    );
    let first = send(&mut client, ms(10), 300);
    assert!(!client.would_write_again(ClassSet::ALL, 1200));
    assert!(client.would_copy(&first[0], B, 1200));
    client.on_lost(&first[0], A);
    assert!(client.would_write_again(ClassSet::ALL, 1200));
    assert!(!client.would_write_again(ClassSet::ALL, 20));
}

#[test]
fn control_frames_that_became_pointless_are_not_counted() {
    let mut client = client();
    let id = client.open(Dir::Uni).unwrap();
    put(&mut client, id, 2000);
    let refused = client.write(id, &mut Bytes::from_static(b"more"));
    assert_eq!(refused, Err(WriteError::Blocked));
    assert!(client.settle_control(), "STREAM_DATA_BLOCKED");
    client.on_max_stream_data(id, 2500).unwrap();
    assert!(!client.settle_control());
    let ((), out, _) = written(1200, |frames| client.write_control(frames));
    assert!(out.is_empty());
}
