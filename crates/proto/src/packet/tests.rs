//! Room, what is noted, and what is taken back.

use super::*;
use crate::recovery::sent::SentFrame;
use anabranch_wire::frame::{Form, Frame};

const DONE: Frame<'static> = Frame::HandshakeDone;

#[test]
fn a_frame_that_does_not_fit_leaves_no_trace() {
    let mut buf = vec![7; 3];
    let mut frames = Frames::new(&mut buf, 4);
    assert!(frames.is_empty() && frames.room() == 1);
    let large = Frame::MaxData { limit: 1 << 40 };
    assert!(!frames.put_noted(&large, Form::Plain, SentFrame::MaxData));
    assert!(frames.is_empty() && frames.sent().is_empty() && !frames.is_ack_eliciting());
    assert!(frames.put_noted(&DONE, Form::Plain, SentFrame::HandshakeDone));
    assert!(!frames.ping());
    assert_eq!(frames.into_sent()[..], [SentFrame::HandshakeDone]);
    assert_eq!(buf, [7, 7, 7, 0x1e]);
}

#[test]
fn what_is_taken_back_asks_for_nothing() {
    let mut buf = Vec::new();
    let mut frames = Frames::new(&mut buf, 100);
    assert!(frames.put(&Frame::Timestamp { time: 1 }) && !frames.is_ack_eliciting());
    let mark = frames.mark();
    frames.put_noted(&DONE, Form::Plain, SentFrame::HandshakeDone);
    assert!(frames.is_ack_eliciting() && !frames.is_at(mark));
    assert_eq!(frames.sent_since(mark), [SentFrame::HandshakeDone]);
    frames.go_back(mark);
    assert!(frames.is_at(mark) && frames.sent().is_empty() && !frames.is_ack_eliciting());
}

#[test]
fn a_packet_is_not_begun_where_it_would_hold_next_to_nothing() {
    let heading = Heading {
        level: Level::OneRtt,
        path: PathId::ZERO,
        via: Via::Route,
        dcid: ConnectionId::default(),
        scid: ConnectionId::default(),
        token: &[],
        key_phase: false,
        pn: 0,
        largest_acked: None,
    };
    let mut buf = vec![1; 10];
    assert!(Packet::begin(&heading, &mut buf, 10 + MIN_USEFUL_ROOM - 1).is_none());
    let packet = Packet::begin(&heading, &mut buf, 10 + MIN_USEFUL_ROOM);
    let packet = packet.expect("there is room");
    assert!(!packet.has_frames());
    packet.give_up();
    assert_eq!(buf, [1; 10]);
}
