//! What send buf must do.

use super::*;
use proptest::prelude::*;

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const ALL: u64 = u64::MAX / 2;

fn written(length: u64) -> SendBuf {
    let mut buf = SendBuf::default();
    buf.write((0..length).map(|at| at as u8).collect());
    buf
}

/// Sends up to `length` unsent bytes, leaving out the first `skip`.
fn send(buf: &mut SendBuf, skip: u64, length: u64) -> Range<u64> {
    let range = buf.fresh_after(skip, ALL).expect("something is unsent");
    let range = range.start..range.end.min(range.start + length);
    buf.on_first_sent(range.clone(), Instant::ZERO);
    range
}

#[test]
fn bytes_of_several_writes_are_copied_out_as_one() {
    let mut buf = SendBuf::default();
    for piece in [&b"many "[..], b"small ", b"writes"] {
        buf.write(Bytes::from_static(piece));
    }
    let mut out = Vec::new();
    buf.copy_to(3..13, &mut out);
    assert_eq!(out, b"y small wr");
}

#[test]
fn skipped_bytes_stay_unsent_and_take_no_credit_later() {
    let mut buf = written(100);
    assert_eq!(buf.fresh_after(40, ALL), Some(40..100));
    assert_eq!(buf.on_first_sent(40..60, Instant::ZERO), 60);
    assert_eq!(buf.fresh_after(0, 0), Some(0..40));
    let load = buf.load();
    assert_eq!((load.free, load.above, load.unacked), (40, 40, 20));
    assert_eq!(buf.on_first_sent(0..40, Instant::ZERO), 0);
    assert_eq!(buf.fresh_after(0, 0), None);
}

#[test]
fn the_end_of_a_stream_waits_for_credit_of_the_bytes_before_it() {
    let mut buf = written(10);
    buf.finish();
    assert_eq!(buf.load().free, 0);
    assert_eq!(buf.fresh_after(0, 9), Some(0..9));
    assert_eq!(buf.fresh_after(0, 10), Some(0..11));
    buf.on_first_sent(0..10, Instant::ZERO);
    assert_eq!(buf.load().free, 1);
    assert_eq!(buf.fresh_after(0, 0), Some(10..11));
}

#[test]
fn an_acknowledged_copy_cancels_the_retransmission() {
    let mut buf = written(10);
    send(&mut buf, 0, 10);
    assert_eq!(buf.on_lost(0..10, A), 10);
    buf.on_acked(0..4);
    assert_eq!(buf.again_front().map(|(range, _)| range), Some(4..10));
    buf.on_acked(4..10);
    assert_eq!(buf.load(), Load::default());
}

#[test]
fn a_lost_copy_is_not_sent_again_while_another_path_carries_it() {
    let mut buf = written(10);
    send(&mut buf, 0, 10);
    assert_eq!(buf.copyable(0..10, B, 2), Some(0..10));
    buf.on_copied(0..10, A, B);
    assert_eq!(buf.copyable(0..10, B, 2), None);
    assert_eq!(buf.on_lost(0..10, A), 0);
    assert_eq!(buf.on_lost(0..10, B), 10);
    let (range, carried) = buf.again_front().unwrap();
    assert_eq!(range, 0..10);
    assert!(carried.contains(A) && carried.contains(B));
}

#[test]
fn taking_bytes_from_a_doubtful_path_twice_queues_them_once() {
    let mut buf = written(10);
    send(&mut buf, 0, 10);
    assert_eq!(buf.on_lost(0..10, A), 10);
    assert_eq!(buf.on_lost(0..10, A), 0);
    buf.on_sent_again(0..10, B);
    assert_eq!(buf.on_lost(0..10, A), 0);
}

#[test]
fn a_range_with_different_carriers_is_sent_again_in_parts() {
    let mut buf = written(10);
    send(&mut buf, 0, 10);
    buf.on_lost(0..5, A);
    buf.on_lost(5..10, B);
    assert_eq!(buf.again_front().map(|(range, _)| range), Some(0..5));
}

#[test]
fn memory_of_pieces_behind_a_hole_is_freed_once_acknowledged() {
    let mut buf = SendBuf::default();
    for _ in 0..10 {
        buf.write(Bytes::from_static(&[7; 100]));
    }
    send(&mut buf, 0, 1000);
    buf.on_acked(150..1000);
    let held: usize = buf.chunks.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(held, 200);
    assert_eq!(buf.load().held, 150);
    buf.on_acked(0..150);
    assert!(buf.chunks.is_empty());
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Byte {
    Fresh,
    Sent,
    Again,
    Acked,
}

proptest! {
    #[test]
    fn a_send_buffer_behaves_like_a_state_for_each_byte(
        pieces in prop::collection::vec(1..40u64, 1..12),
        finish in any::<bool>(),
        ops in prop::collection::vec((0..5u8, 0..120u64, 1..30u64), 1..80),
    ) {
        let mut buf = SendBuf::default();
        let length: u64 = pieces.iter().sum();
        let bytes: Bytes = (0..length).map(|at| (at % 251) as u8).collect();
        for piece in pieces {
            let from = buf.end() as usize;
            buf.write(bytes.slice(from..from + piece as usize));
        }
        if finish {
            buf.finish();
        }
        let total = length + u64::from(finish);
        let mut model = vec![Byte::Fresh; total as usize];
        for (op, start, size) in ops {
            // Frames cover what was sent together, acknowledged or not.
            let range = start.min(total)..(start + size).min(total);
            let slots = range.start as usize..range.end as usize;
            let all_sent = model[slots.clone()].iter().all(|byte| *byte != Byte::Fresh);
            match op {
                0 | 1 => {
                    let skip = if op == 0 { 0 } else { start };
                    let fresh = (0..total).filter(|at| model[*at as usize] == Byte::Fresh);
                    let expected = fresh.clone().nth(skip as usize);
                    let next = buf.fresh_after(skip, ALL);
                    prop_assert_eq!(next.as_ref().map(|next| next.start), expected);
                    let Some(next) = next else { continue };
                    let next = next.start..next.end.min(next.start + size);
                    buf.on_first_sent(next.clone(), Instant::ZERO);
                    model[next.start as usize..next.end as usize].fill(Byte::Sent);
                }
                2 if all_sent => {
                    let sent = model[slots.clone()].iter().filter(|byte| **byte == Byte::Sent);
                    prop_assert_eq!(buf.on_lost(range, A), sent.count() as u64);
                    model[slots].iter_mut().filter(|byte| **byte == Byte::Sent)
                        .for_each(|byte| *byte = Byte::Again);
                }
                3 if all_sent => {
                    buf.on_acked(range);
                    model[slots].fill(Byte::Acked);
                }
                4 => {
                    let first = model.iter().position(|byte| *byte == Byte::Again);
                    let next = buf.again_front().map(|(range, _)| range);
                    prop_assert_eq!(next.as_ref().map(|next| next.start as usize), first);
                    let Some(next) = next else { continue };
                    let next = next.start..next.end.min(next.start + size);
                    let mut out = Vec::new();
                    let data = next.start..next.end.min(length);
                    buf.copy_to(data.clone(), &mut out);
                    prop_assert_eq!(&out[..], &bytes[data.start as usize..data.end as usize]);
                    buf.on_sent_again(next.clone(), A);
                    model[next.start as usize..next.end as usize].fill(Byte::Sent);
                }
                _ => {}
            }
            let count = |kind| model.iter().filter(|byte| **byte == kind).count() as u64;
            let load = buf.load();
            prop_assert_eq!(load.again, count(Byte::Again));
            prop_assert_eq!(load.unacked, count(Byte::Again) + count(Byte::Sent));
            prop_assert_eq!(load.held, total - count(Byte::Acked));
            let fin_waits = u64::from(finish && load.above > 0);
            prop_assert_eq!(load.above + load.free + fin_waits, count(Byte::Fresh));
            prop_assert_eq!(buf.is_all_acked(), finish && count(Byte::Acked) == total);
        }
    }
}
