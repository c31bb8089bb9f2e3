//! Both halves against naive models.

use super::*;
use crate::recovery::sent::SentFrames;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn crypto(sent: &SentFrames) -> Vec<(u64, u32)> {
    let only = |frame: &SentFrame| match *frame {
        SentFrame::Crypto { start, length } => (start, length),
        _ => panic!("not CRYPTO: {frame:?}"),
    };
    sent.iter().map(only).collect()
}

#[test]
fn a_frame_that_does_not_fit_is_not_begun() {
    let mut sender = Sender::default();
    sender.append(&[7; 100]);
    let mut out = vec![0; 10];
    for limit in 0..14 {
        assert!(!sender.write(&mut Frames::new(&mut out, limit)));
    }
    assert_eq!(out.len(), 10);
    let mut frames = Frames::new(&mut out, 14);
    assert!(sender.write(&mut frames));
    assert_eq!(crypto(&frames.into_sent()), [(0, 1)]);
    assert_eq!(out[10..], [6, 0, 1, 7]);
}

#[test]
fn data_too_far_ahead_is_refused() {
    let mut receiver = Receiver::default();
    receiver.push(MAX_AHEAD - 1, &[1]).unwrap();
    for offset in [MAX_AHEAD, varint::MAX, u64::MAX] {
        let error = receiver.push(offset, &[1]).unwrap_err();
        assert_eq!(error.code, TransportErrorCode::CRYPTO_BUFFER_EXCEEDED);
    }
    // What is delivered moves the limit.
    receiver.push(0, &[1; 10]).unwrap();
    assert_eq!(receiver.pop().unwrap().len(), 10);
    receiver.push(MAX_AHEAD + 9, &[1]).unwrap();
}

#[test]
fn too_many_holes_are_refused() {
    let mut receiver = Receiver::default();
    let results = (0..=MAX_RUNS as u64).map(|index| receiver.push(2 * index + 1, &[1]));
    let failed = results.filter(Result::is_err).count();
    assert_eq!(failed, 1);
}

proptest! {
    #[test]
    fn received_bytes_come_out_once_and_in_order(
        pieces in prop::collection::vec((0_usize..200, 0_usize..40), 0..60),
    ) {
        let data: Vec<u8> = (0..240).map(|index| index as u8).collect();
        let mut receiver = Receiver::default();
        let (mut have, mut delivered) = (BTreeSet::new(), Vec::new());
        for (start, length) in pieces {
            receiver.push(start as u64, &data[start..start + length]).unwrap();
            have.extend(start..start + length);
            while let Some(bytes) = receiver.pop() {
                prop_assert!(!bytes.is_empty());
                delivered.extend(bytes);
            }
            let in_order = (0..data.len()).take_while(|index| have.contains(index)).count();
            prop_assert_eq!(&delivered[..], &data[..in_order]);
            prop_assert_eq!(receiver.has_gap(), have.len() > in_order);
        }
    }

    #[test]
    fn what_is_not_acknowledged_is_sent_until_it_is(
        steps in prop::collection::vec((0_u8..4, 0_usize..40, 1_usize..60), 0..80),
    ) {
        let mut sender = Sender::default();
        let mut data = Vec::new();
        // Bytes to be sent, bytes acknowledged, frames in flight.
        let (mut due, mut acked) = (BTreeSet::new(), BTreeSet::new());
        let mut flying: Vec<(u64, u32)> = Vec::new();
        for (step, which, amount) in steps {
            let frame = (!flying.is_empty()).then(|| which % flying.len().max(1));
            match (step, frame) {
                (0, _) => {
                    due.extend(data.len() as u64..(data.len() + amount) as u64);
                    sender.append(&vec![which as u8; amount]);
                    data.extend(vec![which as u8; amount]);
                }
                (1, Some(frame)) => {
                    let (start, length) = flying.swap_remove(frame);
                    sender.on_acked(start, length);
                    acked.extend(start..start + u64::from(length));
                    due.retain(|byte| !acked.contains(byte));
                }
                (2, Some(frame)) => {
                    let (start, length) = flying.swap_remove(frame);
                    sender.on_lost(start, length);
                    due.extend((start..start + u64::from(length)).filter(|b| !acked.contains(b)));
                }
                _ => {
                    let mut out = Vec::new();
                    let mut frames = Frames::new(&mut out, amount);
                    sender.write(&mut frames);
                    let sent = frames.into_sent();
                    prop_assert!(out.len() <= amount);
                    let mut reader = anabranch_wire::cursor::Reader::new(&out);
                    for (start, length) in crypto(&sent) {
                        prop_assert_eq!(reader.varint(), Ok(FRAME_TYPE));
                        prop_assert_eq!(reader.varint(), Ok(start));
                        let bytes = reader.length_prefixed().unwrap();
                        let at = start as usize;
                        prop_assert_eq!(bytes, &data[at..at + length as usize]);
                        for byte in start..start + u64::from(length) {
                            prop_assert!(due.remove(&byte), "byte {} was not due", byte);
                        }
                        flying.push((start, length));
                    }
                    prop_assert!(reader.is_empty());
                }
            }
            prop_assert_eq!(sender.is_pending(), !due.is_empty());
        }
    }
}

#[test]
fn one_byte_at_a_time_before_one_far_ahead_takes_no_room_but_its_own() {
    let mut receiver = Receiver::default();
    receiver.push(MAX_AHEAD - 2, &[9]).unwrap();
    for at in 0..1000 {
        receiver.push(at, &[at as u8]).unwrap();
        let piece = receiver.pop().unwrap();
        assert_eq!(piece, [at as u8]);
        // A piece that came with the room of all that waits behind it would have had it copied.
        assert!(piece.capacity() <= 64, "{} bytes for one", piece.capacity());
    }
    assert!(receiver.has_gap());
}
