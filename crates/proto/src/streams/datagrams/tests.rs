//! Queues of datagrams: what fits, what is late, what goes together.

use super::*;
use crate::time::Duration;
use anabranch_wire::PathId;
use anabranch_wire::cursor::Reader;
use anabranch_wire::frame::{Frame, decode};

fn ready(limit: usize) -> Datagrams {
    let mut datagrams = Datagrams::new(limit, limit, 65_535);
    datagrams.set_peer_max_frame(65_535);
    datagrams
}

fn send(datagrams: &mut Datagrams, length: usize) -> Result<(), SendDatagramError> {
    let data = Bytes::from(vec![7; length]);
    datagrams.send(data, DatagramOptions::default(), Instant::ZERO)
}

/// The length of the next datagram, which is written.
fn write(datagrams: &mut Datagrams, out: &mut Vec<u8>, limit: usize) -> Option<usize> {
    datagrams
        .write(
            Instant::ZERO,
            &mut Frames::new(out, limit),
            ClassSet::ALL,
            None,
            None,
        )
        .map(|(length, _)| length)
}

fn ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn due(millis: u64) -> DatagramOptions {
    DatagramOptions {
        deadline: Some(ms(millis)),
        ..DatagramOptions::default()
    }
}

#[test]
fn nothing_is_sent_to_a_peer_that_takes_no_datagrams() {
    let mut datagrams = Datagrams::new(1000, 1000, 0);
    assert_eq!(datagrams.max_payload(), None);
    assert_eq!(send(&mut datagrams, 1), Err(SendDatagramError::Unsupported));
    assert!(datagrams.on_received(PathId::ZERO, b"x").is_err());
}

#[test]
fn the_largest_payload_fills_the_frame() {
    let mut datagrams = ready(100_000);
    for frame in [2, 64, 65, 66, 67, 68, 1000, 16_386, 16_387, 16_390, 60_000] {
        datagrams.set_room(100_000);
        datagrams.set_peer_max_frame(frame);
        let max = datagrams.max_payload().unwrap();
        assert!(
            (datagram_header_len(max, true) + max) as u64 <= frame,
            "{frame}"
        );
        assert!(
            (datagram_header_len(max + 2, true) + max + 2) as u64 > frame,
            "{frame}"
        );
    }
}

#[test]
fn a_datagram_is_whole_wherever_the_packet_ends() {
    for room in 100..110 {
        let mut datagrams = ready(1000);
        send(&mut datagrams, 100).unwrap();
        let mut out = Vec::new();
        let Some(100) = write(&mut datagrams, &mut out, room) else {
            assert_eq!((room, out.len()), (100, 0));
            continue;
        };
        assert!(out.len() <= room);
        let mut reader = Reader::new(&out);
        let mut found = None;
        while !reader.is_empty() {
            if let (_, Frame::Datagram { data }) = decode(&mut reader).unwrap() {
                found = Some(data.to_vec());
            }
        }
        assert_eq!(found, Some(vec![7; 100]));
    }
}

#[test]
fn a_full_queue_turns_away_and_tells_when_half_is_free() {
    let mut datagrams = ready(4 * (100 + OVERHEAD));
    for _ in 0..4 {
        send(&mut datagrams, 100).unwrap();
    }
    assert_eq!(send(&mut datagrams, 100), Err(SendDatagramError::Full));
    write(&mut datagrams, &mut Vec::new(), 1000);
    assert!(!datagrams.take_unblocked());
    write(&mut datagrams, &mut Vec::new(), 1000);
    assert!(datagrams.take_unblocked());
    assert!(!datagrams.take_unblocked());
}

#[test]
fn a_slow_reader_loses_the_oldest() {
    let mut datagrams = ready(2 * (1 + OVERHEAD));
    for byte in 0..5 {
        datagrams.on_received(PathId::ZERO, &[byte]).unwrap();
    }
    assert_eq!(datagrams.overflowed, 3);
    assert_eq!(datagrams.recv().unwrap().data[..], [3]);
    assert_eq!(datagrams.recv().unwrap().data[..], [4]);
    assert_eq!(datagrams.recv(), None);
}

#[test]
fn datagrams_that_fit_no_more_do_not_block_those_that_do() {
    let mut datagrams = ready(10_000);
    send(&mut datagrams, 1100).unwrap();
    send(&mut datagrams, 10).unwrap();
    datagrams.set_room(600);
    assert_eq!(write(&mut datagrams, &mut Vec::new(), 600), Some(10));
    assert_eq!(datagrams.outgrown, 1);
}

#[test]
fn a_datagram_whose_deadline_passed_is_dropped_and_counted() {
    let mut datagrams = ready(10_000);
    for options in [due(5), DatagramOptions::default(), due(5), due(9)] {
        let data = Bytes::from_static(b"x");
        datagrams.send(data, options, Instant::ZERO).unwrap();
    }
    datagrams.drop_late(ms(4));
    assert_eq!((datagrams.expired.count, datagrams.waiting()), (0, 4));
    datagrams.drop_late(ms(5));
    assert_eq!((datagrams.expired.count, datagrams.waiting()), (1, 3));
    write(&mut datagrams, &mut Vec::new(), 100);
    datagrams.drop_late(ms(9));
    assert_eq!((datagrams.expired.count, datagrams.waiting()), (3, 0));
}

#[test]
fn late_datagrams_make_room_in_a_full_queue() {
    let mut datagrams = ready(2 * (1 + OVERHEAD));
    for options in [DatagramOptions::default(), due(5)] {
        let data = Bytes::from_static(b"x");
        datagrams.send(data, options, Instant::ZERO).unwrap();
    }
    let mut third = |at| {
        let data = Bytes::from_static(b"y");
        datagrams.send(data, DatagramOptions::default(), ms(at))
    };
    assert_eq!(third(4), Err(SendDatagramError::Full));
    assert_eq!(third(5), Ok(()));
    assert_eq!(datagrams.expired.count, 1);
}

#[test]
fn one_packet_holds_datagrams_of_one_flow() {
    let mut datagrams = ready(10_000);
    for flow in [1, 1, 2] {
        let options = DatagramOptions {
            flow,
            ..DatagramOptions::default()
        };
        let data = Bytes::from_static(b"x");
        datagrams.send(data, options, Instant::ZERO).unwrap();
    }
    let mut out = Vec::new();
    let mut frames = Frames::new(&mut out, 100);
    let mut write =
        |previous| datagrams.write(Instant::ZERO, &mut frames, ClassSet::ALL, previous, None);
    let (_, first) = write(None).unwrap();
    assert_eq!(first.flow, 1);
    assert!(write(Some(&first)).is_some());
    assert!(write(Some(&first)).is_none());
    assert_eq!(datagrams.front(ClassSet::ALL).unwrap().flow, 2);
}

#[test]
fn what_expired_is_told_by_tag_once_and_without_what_had_left() {
    let mut datagrams = ready(10_000);
    let repaired = DatagramOptions {
        max_skew: Some(Duration::from_millis(9)),
        repair: true,
        tag: 3,
        ..due(9)
    };
    datagrams
        .send(Bytes::from_static(b"x"), repaired, Instant::ZERO)
        .unwrap();
    write(&mut datagrams, &mut Vec::new(), 100);
    assert!(datagrams.repair(ms(1), NonZeroU64::MIN));
    for tag in [7, 5, 7] {
        let options = DatagramOptions { tag, ..due(5) };
        let data = Bytes::from_static(b"x");
        datagrams.send(data, options, Instant::ZERO).unwrap();
    }
    assert!(!datagrams.expired.take_news());
    datagrams.drop_late(ms(9));
    assert_eq!(datagrams.expired.count, 4);
    assert!(datagrams.expired.take_news() && !datagrams.expired.take_news());
    assert_eq!(datagrams.expired.take(), [(5, 1), (7, 2)].into());
    assert!(!datagrams.expired.take_news() && datagrams.expired.take().is_empty());
}

#[test]
fn tags_that_nobody_asks_for_are_bounded() {
    let mut datagrams = ready(1 << 20);
    for tag in 0..2000 {
        let options = DatagramOptions { tag, ..due(5) };
        let data = Bytes::from_static(b"x");
        datagrams.send(data, options, Instant::ZERO).unwrap();
    }
    datagrams.drop_late(ms(5));
    assert_eq!(datagrams.expired.count, 2000);
    assert_eq!(datagrams.expired.take().len(), 1024);
}
