//! Properties of every kind of frame, with generated contents.

use super::*;
use crate::testing::{cid_of, number};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::RangeInclusive;

/// The parts from which frames are generated.
#[derive(Debug, Clone)]
struct Parts {
    kind: usize,
    numbers: [u64; 4],
    path: PathId,
    cid: ConnectionId,
    array: [u8; 16],
    flag: bool,
    bytes: Vec<u8>,
    ranges: Vec<RangeInclusive<u64>>,
}

const KINDS: usize = 29;

fn parts() -> impl Strategy<Value = Parts> {
    (
        0..KINDS,
        [number(), number(), number(), number()],
        any::<u32>(),
        cid_of(1),
        any::<[u8; 16]>(),
        any::<bool>(),
        vec(any::<u8>(), 1..80),
        ranges(100),
    )
        .prop_map(
            |(kind, numbers, path, cid, array, flag, bytes, ranges)| Parts {
                kind,
                numbers,
                path: PathId(path),
                cid,
                array,
                flag,
                bytes,
                ranges,
            },
        )
}

/// Descending ranges with gaps between them, at least one.
fn ranges(max: usize) -> impl Strategy<Value = Vec<RangeInclusive<u64>>> {
    let step = prop_oneof![0..3_u64, 0..200_u64, 0..1_u64 << 40];
    (number(), vec((step.clone(), step), 1..max)).prop_map(|(largest, steps)| {
        let mut ranges = Vec::new();
        let mut next = Some(largest);
        for (length, gap) in steps {
            let Some(end) = next else { break };
            let start = end.saturating_sub(length);
            ranges.push(start..=end);
            next = start.checked_sub(gap + 2);
        }
        ranges
    })
}

/// Encodes ranges as an ACK frame carries them, in the most straightforward way.
fn encoded_ranges(ranges: &[RangeInclusive<u64>]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, ranges[0].end() - ranges[0].start());
    for pair in ranges.windows(2) {
        varint::put(&mut out, pair[0].start() - pair[1].end() - 2);
        varint::put(&mut out, pair[1].end() - pair[1].start());
    }
    out
}

impl Parts {
    fn ecn(&self) -> Option<EcnCounts> {
        let [_, ect0, ect1, ce] = self.numbers;
        self.flag.then_some(EcnCounts { ect0, ect1, ce })
    }

    /// Builds a frame to be written in `form`; `ranges` is the encoding of [`Self::ranges`].
    fn frame<'a>(&'a self, ranges: &'a [u8], form: Form) -> Frame<'a> {
        let [a, b, _, _] = self.numbers;
        let named = if form == Form::Plain {
            PathId::ZERO
        } else {
            self.path
        };
        let path = self.path;
        let data = &self.bytes[..];
        let half = *self.array.first_chunk().unwrap();
        let status = if self.flag {
            PathStatus::Backup
        } else {
            PathStatus::Available
        };
        match self.kind {
            0 => Frame::Padding { length: data.len() },
            1 => Frame::Ping,
            2 => {
                let (largest, ecn) = (*self.ranges[0].end(), self.ecn());
                Frame::Ack(Ack {
                    path: named,
                    largest,
                    delay: a,
                    ranges,
                    ecn,
                })
            }
            3 => Frame::NewToken { token: data },
            4 => Frame::NewConnectionId(self.new_connection_id(named)),
            5 => Frame::RetireConnectionId {
                path: named,
                sequence: a,
            },
            6 => Frame::PathChallenge { data: half },
            7 => Frame::PathResponse { data: half },
            8 => Frame::ConnectionClose(ConnectionClose {
                application: self.flag,
                code: a,
                frame_type: if self.flag { 0 } else { b },
                reason: data,
            }),
            9 => Frame::HandshakeDone,
            10 => Frame::Datagram { data },
            11 => Frame::PathAbandon { path, code: a },
            12 => Frame::PathStatus {
                path,
                sequence: a,
                status,
            },
            13 => Frame::MaxPathId { limit: path },
            14 => Frame::PathsBlocked { limit: path },
            15 => Frame::PathCidsBlocked {
                path,
                next_sequence: a,
            },
            _ => self.stream_frame(),
        }
    }

    fn stream_frame(&self) -> Frame<'_> {
        let [a, b, c, _] = self.numbers;
        let id = StreamId(a);
        let dir = if self.flag { Dir::Uni } else { Dir::Bi };
        let count = b.min(MAX_STREAM_COUNT);
        let data = &self.bytes[..];
        let offset = b.min(varint::MAX - data.len() as u64);
        match self.kind {
            16 => Frame::ResetStream {
                id,
                code: b,
                final_size: c,
            },
            17 => Frame::StopSending { id, code: b },
            18 => Frame::Crypto { offset, data },
            19 => Frame::Stream(Stream {
                id,
                offset,
                fin: self.flag,
                data,
            }),
            20 => Frame::MaxData { limit: b },
            21 => Frame::MaxStreamData { id, limit: b },
            22 => Frame::MaxStreams { dir, limit: count },
            23 => Frame::DataBlocked { limit: b },
            24 => Frame::StreamDataBlocked { id, limit: b },
            25 => Frame::Timestamp { time: b },
            26 => Frame::ImmediateAck,
            27 => {
                let [
                    sequence,
                    ack_eliciting_threshold,
                    max_ack_delay_us,
                    reordering_threshold,
                ] = self.numbers;
                Frame::AckFrequency(AckFrequency {
                    sequence,
                    ack_eliciting_threshold,
                    max_ack_delay_us,
                    reordering_threshold,
                })
            }
            _ => Frame::StreamsBlocked { dir, limit: count },
        }
    }

    fn new_connection_id(&self, path: PathId) -> NewConnectionId {
        let [a, b, _, _] = self.numbers;
        let (sequence, retire_prior_to) = (a.max(b), a.min(b));
        let reset_token = ResetToken(self.array);
        NewConnectionId {
            path,
            sequence,
            retire_prior_to,
            cid: self.cid,
            reset_token,
        }
    }
}

fn form() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::Plain), Just(Form::Multipath)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_frame_comes_back_as_written(parts in parts(), form in form()) {
        let ranges = encoded_ranges(&parts.ranges);
        let frame = parts.frame(&ranges, form);
        let mut out = Vec::new();
        frame.encode(&mut out, form);
        prop_assert_eq!(out.len(), frame.encoded_len(form));
        let mut reader = Reader::new(&out);
        let (frame_type, again) = decode(&mut reader).unwrap();
        prop_assert!(reader.is_empty());
        prop_assert_eq!(frame_type, frame.frame_type(form));
        prop_assert_ne!(frame_type.name(), "unknown");
        prop_assert_eq!(&again, &frame);
        if let Frame::Ack(ack) = again {
            prop_assert_eq!(ack.ranges().collect::<Vec<_>>(), parts.ranges);
        }
    }

    #[test]
    fn every_frame_cut_short_is_refused(parts in parts(), form in form()) {
        let ranges = encoded_ranges(&parts.ranges);
        let frame = parts.frame(&ranges, form);
        prop_assume!(!matches!(frame, Frame::Padding { .. }));
        let mut out = Vec::new();
        frame.encode(&mut out, form);
        for cut in 0..out.len() {
            let result = decode(&mut Reader::new(&out[..cut]));
            prop_assert_eq!(result.unwrap_err().kind, FrameErrorKind::UnexpectedEnd);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_always_advance(bytes in vec(any::<u8>(), 0..200)) {
        let mut reader = Reader::new(&bytes);
        while !reader.is_empty() {
            let before = reader.remaining();
            let Ok((_, frame)) = decode(&mut reader) else { break };
            prop_assert!(reader.remaining() < before);
            if let Frame::Ack(ack) = frame {
                prop_assert!(ack.ranges().count() > 0);
            }
        }
    }

    #[test]
    fn put_ack_writes_the_newest_ranges_that_fit(
        ranges in ranges(200),
        (max_ranges, room, before) in (1_usize..200, 0_usize..600, 0_usize..20),
        (delay, path, form) in (number(), any::<u32>().prop_map(PathId), form()),
        ecn in prop::option::of([number(), number(), number()]),
    ) {
        let ecn = ecn.map(|[ect0, ect1, ce]| EcnCounts { ect0, ect1, ce });
        let path = if form == Form::Plain { PathId::ZERO } else { path };
        let model = |count: usize| {
            let encoded = encoded_ranges(&ranges[..count]);
            let largest = *ranges[0].end();
            let mut out = vec![0x55; before];
            Frame::Ack(Ack { path, largest, delay, ranges: &encoded, ecn }).encode(&mut out, form);
            out
        };
        let limit = before + room;
        let most = ranges.len().min(max_ranges);
        let best = (1..=most).map(model).take_while(|out| out.len() <= limit).last();

        let mut out = vec![0x55; before];
        let written =
            put_ack(&mut out, form, path, ranges.iter().cloned(), max_ranges, delay, ecn, limit);
        prop_assert_eq!(written.is_some(), best.is_some());
        prop_assert_eq!(out, best.unwrap_or(vec![0x55; before]));
    }

    #[test]
    fn a_fitted_close_fits_and_keeps_as_much_as_it_can(
        reason in "\\PC{0,100}", available in 4_usize..200, application in any::<bool>(),
    ) {
        let whole = ConnectionClose {
            application, code: 5, frame_type: 0, reason: reason.as_bytes(),
        };
        let fitted = whole.fitted(available);
        let len = |close| Frame::ConnectionClose(close).encoded_len(Form::Plain);
        prop_assert!(len(fitted) <= available);
        let kept = std::str::from_utf8(fitted.reason).expect("cut between characters");
        prop_assert!(reason.starts_with(kept));
        if let Some(next) = reason[kept.len()..].chars().next() {
            let longer = &reason.as_bytes()[..kept.len() + next.len_utf8()];
            let longer = ConnectionClose { reason: longer, ..whole };
            prop_assert!(len(longer) > available);
        }
    }
}
