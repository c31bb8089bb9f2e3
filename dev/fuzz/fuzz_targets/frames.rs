//! A payload splits into frames, and each frame means the same after writing and reading it again.

#![no_main]

use anabranch_wire::cursor::Reader;
use anabranch_wire::frame::{Ack, Form, Frame, FrameType, decode, put_ack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let mut reader = Reader::new(payload);
    let mut out = Vec::new();
    while !reader.is_empty() {
        let before = reader.remaining();
        let Ok((frame_type, frame)) = decode(&mut reader) else {
            return;
        };
        assert!(reader.remaining() < before);
        check(&mut out, frame_type, &frame);
    }
});

fn check(out: &mut Vec<u8>, frame_type: FrameType, frame: &Frame<'_>) {
    let form = if frame_type.is_multipath() {
        Form::Multipath
    } else {
        Form::Plain
    };
    out.clear();
    frame.encode(out, form);
    assert_eq!(out.len(), frame.encoded_len(form));
    let mut reader = Reader::new(out);
    let (again_type, again) = decode(&mut reader).expect("a written frame is read");
    assert!(reader.is_empty());
    assert_eq!(&again, frame);
    assert_eq!(again_type.name(), frame_type.name());
    assert_ne!(frame_type.name(), "unknown");
    if let Frame::Ack(ack) = frame {
        check_ack(ack, form);
    }
}

/// The ranges descend with gaps, and `put_ack` writes them so that they come back.
fn check_ack(ack: &Ack<'_>, form: Form) {
    let ranges: Vec<_> = ack.ranges().collect();
    assert_eq!(ranges[0].end(), &ack.largest);
    assert!(
        ranges
            .windows(2)
            .all(|pair| pair[1].end() + 1 < *pair[0].start())
    );

    let mut out = Vec::new();
    let written = put_ack(
        &mut out,
        form,
        ack.path,
        ranges.iter().cloned(),
        usize::MAX,
        ack.delay,
        ack.ecn,
        usize::MAX,
    );
    assert_eq!(written, Some(()));
    let Ok((_, Frame::Ack(again))) = decode(&mut Reader::new(&out)) else {
        panic!("a written ACK is read");
    };
    assert!(again.ranges().eq(ranges.into_iter().take(0x4000)));
}
