//! What received must do.

use super::*;
use crate::recovery::ack_policy::{MAX_DELAY, MAX_PACKETS};
use anabranch_wire::cursor::Reader;
use anabranch_wire::frame::{AckFrequency, Frame, decode};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn receive(received: &mut ReceivedPackets, ms: u64, pn: u64) {
    assert!(!received.is_duplicate(pn));
    received.on_received(at(ms), pn, true, None);
}

fn received(numbers: impl IntoIterator<Item = u64>) -> ReceivedPackets {
    let mut received = ReceivedPackets::new();
    for pn in numbers {
        receive(&mut received, 0, pn);
    }
    received
}

/// Writes an acknowledgement and reads it again: ranges, delay, ECN counts.
fn report(
    received: &mut ReceivedPackets,
    ms: u64,
) -> (Vec<std::ops::RangeInclusive<u64>>, u64, Option<EcnCounts>) {
    let mut out = vec![];
    let mut frames = Frames::new(&mut out, 1200);
    let path = PathId(3);
    assert!(received.write_ack(at(ms), &mut frames, Form::Multipath, path));
    let sent = frames.into_sent();
    let (_, frame) = decode(&mut Reader::new(&out)).unwrap();
    let Frame::Ack(ack) = frame else {
        panic!("an acknowledgement was written")
    };
    assert_eq!(
        sent[..],
        [SentFrame::Ack {
            path,
            largest: ack.largest
        }]
    );
    assert_eq!(ack.path, path);
    (ack.ranges().collect(), ack.delay, ack.ecn)
}

#[test]
fn every_second_packet_is_acknowledged_and_a_single_one_after_the_delay() {
    let mut received = received([0]);
    assert_eq!(received.deadline(), Some(at(25)));
    assert!(!received.ack_due(at(24)) && received.ack_due(at(25)));
    receive(&mut received, 10, 1);
    assert!(received.ack_due(at(10)));
    report(&mut received, 10);
    assert_eq!(
        (received.deadline(), received.has_unreported()),
        (None, false)
    );
    receive(&mut received, 11, 2);
    assert_eq!(received.deadline(), Some(at(36)));
}

#[test]
fn a_larger_threshold_and_another_delay_can_be_set() {
    let mut received = ReceivedPackets::new();
    received.set_ack_eliciting_threshold(10);
    received.set_max_ack_delay(Duration::from_millis(5));
    (0..9).for_each(|pn| receive(&mut received, pn, pn));
    assert_eq!(
        received.deadline(),
        Some(at(5)),
        "the first packet's delay stands"
    );
    receive(&mut received, 2, 9);
    assert!(received.ack_due(at(2)));
}

#[test]
fn a_packet_out_of_order_or_behind_a_gap_is_acknowledged_at_once() {
    let mut received = received([0, 1]);
    report(&mut received, 0);
    receive(&mut received, 1, 3);
    assert!(received.ack_due(at(1)), "2 is missing");
    report(&mut received, 1);
    receive(&mut received, 2, 4);
    assert!(!received.ack_due(at(2)), "an old gap is no news");
    receive(&mut received, 3, 2);
    assert!(received.ack_due(at(3)), "2 came late");
}

#[test]
fn packets_that_elicit_nothing_count_as_present_but_are_not_acknowledged_alone() {
    let mut received = received([0]);
    report(&mut received, 0);
    received.on_received(at(1), 1, false, Some(Ecn::Ce));
    assert_eq!(
        (received.deadline(), received.has_unreported()),
        (None, false)
    );
    receive(&mut received, 2, 2);
    assert!(!received.ack_due(at(2)), "1 is no gap");
    assert_eq!(report(&mut received, 2).0, [0..=2]);
}

#[test]
fn the_first_packet_may_have_any_number() {
    let received = received([77]);
    assert_eq!(received.deadline(), Some(at(25)));
    assert_eq!((received.largest(), received.expected()), (Some(77), 78));
}

#[test]
fn a_congestion_mark_is_acknowledged_at_once_and_counted() {
    let mut received = ReceivedPackets::new();
    received.on_received(at(0), 0, true, Some(Ecn::Ect0));
    assert!(!received.ack_due(at(0)));
    assert_eq!(
        report(&mut received, 0).2,
        Some(EcnCounts {
            ect0: 1,
            ect1: 0,
            ce: 0
        })
    );
    received.on_received(at(1), 1, true, Some(Ecn::Ce));
    assert!(received.ack_due(at(1)));
    received.on_received(at(1), 2, true, Some(Ecn::Ect1));
    assert_eq!(
        report(&mut received, 1).2,
        Some(EcnCounts {
            ect0: 1,
            ect1: 1,
            ce: 1
        })
    );
}

#[test]
fn counts_are_left_out_where_no_packet_was_marked() {
    assert_eq!(report(&mut received([0]), 0).2, None);
}

#[test]
fn the_delay_runs_from_the_largest_packet_in_units_of_the_exponent() {
    let mut received = ReceivedPackets::new();
    receive(&mut received, 0, 5);
    receive(&mut received, 3, 4);
    assert_eq!(report(&mut received, 4).1, 500, "4 ms in units of 8 us");
}

#[test]
fn an_acknowledgement_can_be_asked_for_once_something_arrived() {
    let mut received = ReceivedPackets::new();
    received.request_immediate();
    assert!(!received.ack_due(at(9)));
    let mut out = vec![];
    let mut frames = Frames::new(&mut out, 99);
    assert!(!received.write_ack(at(9), &mut frames, Form::Plain, PathId::ZERO));
    receive(&mut received, 9, 0);
    assert!(received.ack_due(at(9)));
}

#[test]
fn an_acknowledgement_that_does_not_fit_stays_due() {
    let mut received = received([0, 1]);
    let mut out = vec![0; 20];
    let mut frames = Frames::new(&mut out, 23);
    assert!(!received.write_ack(at(0), &mut frames, Form::Plain, PathId::ZERO));
    assert!(frames.is_empty() && frames.sent().is_empty());
    assert!(received.ack_due(at(0)) && received.has_unreported());
    let mut frames = Frames::new(&mut out, 25);
    assert!(received.write_ack(at(0), &mut frames, Form::Plain, PathId::ZERO));
}

#[test]
fn what_an_acknowledged_acknowledgement_reported_is_not_repeated() {
    let mut received = received([0, 1, 5, 6]);
    assert_eq!(report(&mut received, 0).0, [5..=6, 0..=1]);
    receive(&mut received, 1, 7);
    received.on_ack_acked(6);
    assert_eq!(report(&mut received, 1).0, [7..=7]);
    assert!(received.is_duplicate(1) && !received.is_duplicate(3));
    received.on_ack_acked(7);
    assert_eq!(
        report(&mut received, 1).0,
        [7..=7],
        "a frame reports something"
    );
    receive(&mut received, 2, 3);
    assert_eq!(
        report(&mut received, 2).0,
        [5..=7, 3..=3],
        "a late packet is news"
    );
}

#[test]
fn a_late_packet_stays_reported_until_an_acknowledgement_surely_had_it() {
    let mut received = received([0, 1, 3]);
    report(&mut received, 0);
    receive(&mut received, 1, 2);
    report(&mut received, 1);
    // The peer got the first acknowledgement up to 3, or the second one: who knows.
    received.on_ack_acked(3);
    receive(&mut received, 2, 4);
    assert_eq!(report(&mut received, 2).0, [2..=4]);
    received.on_ack_acked(4);
    receive(&mut received, 3, 5);
    assert_eq!(report(&mut received, 3).0, [5..=5]);
}

#[test]
fn every_other_packet_lost_for_long_costs_bounded_memory() {
    let mut received = ReceivedPackets::new();
    for pn in (0..20_000).step_by(2) {
        receive(&mut received, 0, pn);
    }
    assert_eq!(received.ranges.len(), MAX_RANGES);
    let (ranges, ..) = report(&mut received, 0);
    assert_eq!(
        (ranges.len(), ranges[0].clone()),
        (MAX_REPORTED_RANGES, 19_998..=19_998)
    );
    assert!(received.is_duplicate(1), "older than what is remembered");
    assert!(!received.is_duplicate(19_997));
    receive(&mut received, 0, 19_743);
    assert!(received.is_duplicate(19_743));
}

#[test]
fn numbers_beyond_any_real_connection_do_no_harm() {
    let mut received = received([(1 << 62) - 2, (1 << 62) - 1, 0]);
    assert_eq!(received.expected(), 1 << 62);
    received.on_ack_acked((1 << 62) - 1);
    report(&mut received, 0);
}

#[derive(Debug, Clone)]
enum Op {
    Receive(u64),
    Report,
    /// The peer received the frame that is this many frames old.
    Confirm(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0u64..200).prop_map(Op::Receive),
        2 => Just(Op::Report),
        1 => (0usize..6).prop_map(Op::Confirm),
    ]
}

proptest! {
    #[test]
    fn every_packet_is_reported_until_the_peer_knows_of_it(
        ops in prop::collection::vec(op(), 1..250),
    ) {
        let mut received = ReceivedPackets::new();
        let (mut all, mut known) = (BTreeSet::new(), BTreeSet::new());
        let mut frames: Vec<BTreeSet<u64>> = vec![];
        for op in ops {
            match op {
                // A window that moves on, as numbers do, with reordering up to its width.
                Op::Receive(offset) => {
                    let pn = all.len() as u64 + offset;
                    prop_assert_eq!(received.is_duplicate(pn), all.contains(&pn));
                    if all.insert(pn) {
                        received.on_received(at(0), pn, true, None);
                    }
                    prop_assert_eq!(received.largest(), all.last().copied());
                }
                Op::Report if !all.is_empty() && received.ranges.len() <= MAX_REPORTED_RANGES => {
                    let (ranges, ..) = report(&mut received, 0);
                    let frame: BTreeSet<u64> = ranges.into_iter().flatten().collect();
                    prop_assert!(frame.is_subset(&all));
                    prop_assert!(all.is_subset(&frame.union(&known).copied().collect()));
                    frames.push(frame);
                }
                Op::Confirm(age) if age < frames.len() => {
                    let frame = &frames[frames.len() - 1 - age];
                    known.extend(frame);
                    received.on_ack_acked(*frame.last().unwrap());
                }
                Op::Report | Op::Confirm(_) => {}
            }
        }
    }
}

fn asked(threshold: u64, ms: u64, reordering: u64) -> AckPolicy {
    AckPolicy::asked(&AckFrequency {
        sequence: 0,
        ack_eliciting_threshold: threshold,
        max_ack_delay_us: ms * 1000,
        reordering_threshold: reordering,
    })
}

/// The tables of draft-ietf-quic-ack-frequency, section 6.2.1: what is received, and whether an
/// acknowledgement is due then.
#[test]
fn reordering_within_what_was_asked_for_waits_and_beyond_it_does_not() {
    let three = [
        (0, false),
        (1, false),
        (3, false),
        (4, false),
        (5, true),
        (8, false),
        (9, true),
        (10, true),
        (11, false),
    ];
    let five = [
        (0, false),
        (1, false),
        (3, false),
        (5, false),
        (6, false),
        (7, true),
        (8, false),
        (9, true),
    ];
    for (threshold, vector) in [(3, &three[..]), (5, &five[..])] {
        let mut received = ReceivedPackets::new();
        received.set_policy(at(0), asked(1000, 500, threshold));
        for (pn, due) in vector {
            receive(&mut received, *pn, *pn);
            assert_eq!(received.ack_due(at(*pn)), *due, "{threshold}: packet {pn}");
            if *due {
                report(&mut received, *pn);
            }
        }
    }
}

#[test]
fn a_packet_so_late_that_it_counts_as_lost_is_acknowledged_at_once() {
    let mut received = ReceivedPackets::new();
    received.set_policy(at(0), asked(1000, 500, 3));
    for pn in [0, 1, 3, 4, 5, 7] {
        receive(&mut received, 0, pn);
    }
    report(&mut received, 0);
    receive(&mut received, 1, 6);
    assert!(!received.ack_due(at(1)), "6 is late by one");
    receive(&mut received, 1, 2);
    assert!(received.ack_due(at(1)), "2 is late by five");
}

#[test]
fn reordering_of_no_interest_makes_no_acknowledgement_due() {
    let mut received = ReceivedPackets::new();
    received.set_policy(at(0), asked(1000, 500, 0));
    for pn in [5, 90, 3, 40] {
        receive(&mut received, 0, pn);
    }
    assert!(!received.ack_due(at(0)));
    assert_eq!(received.deadline(), Some(at(500)));
}

#[test]
fn gaps_are_reported_before_they_are_too_many_for_one_frame() {
    let mut received = ReceivedPackets::new();
    received.set_policy(at(0), asked(1000, 500, 0));
    let mut gaps = 0;
    while !received.ack_due(at(0)) {
        receive(&mut received, 0, gaps * 2);
        gaps += 1;
    }
    assert_eq!(gaps, MAX_UNREPORTED_GAPS as u64);
    assert_eq!(report(&mut received, 0).0.len(), MAX_UNREPORTED_GAPS);
    receive(&mut received, 0, 1000);
    assert!(!received.ack_due(at(0)), "counted anew");
}

#[test]
fn of_congestion_marks_in_a_row_the_first_is_urgent_if_fewer_acknowledgements_are_wanted() {
    let mark = |received: &mut ReceivedPackets, pn, ecn| {
        received.on_received(at(0), pn, true, Some(ecn));
        let due = received.ack_due(at(0));
        if due {
            report(received, 0);
        }
        due
    };
    for (threshold, again) in [(1, true), (2, false)] {
        let mut received = ReceivedPackets::new();
        received.set_policy(at(0), asked(threshold, 500, 3));
        assert!(mark(&mut received, 0, Ecn::Ce));
        assert_eq!(mark(&mut received, 1, Ecn::Ce), again, "{threshold}");
        received.on_received(at(0), 2, false, Some(Ecn::Ect0));
        assert!(mark(&mut received, 3, Ecn::Ce), "{threshold}");
    }
}

#[test]
fn what_waits_when_a_request_comes_is_held_to_it() {
    let mut received = received([0]);
    received.set_policy(at(1), asked(1, 10, 3));
    assert_eq!(received.deadline(), Some(at(11)), "sooner than before");
    received.set_policy(at(2), asked(1, 500, 3));
    assert_eq!(received.deadline(), Some(at(11)), "a promise is kept");
    received.set_policy(at(3), asked(0, 500, 3));
    assert!(received.ack_due(at(3)));
}

#[test]
fn what_is_asked_for_is_granted_within_bounds() {
    let most = asked(u64::MAX, 16_383, u64::MAX);
    assert_eq!(most.packets, MAX_PACKETS);
    assert_eq!(most.delay, MAX_DELAY);
    let mut received = ReceivedPackets::new();
    received.set_policy(at(0), most);
    for pn in 0..u64::from(MAX_PACKETS) {
        assert!(!received.ack_due(at(0)), "packet {pn}");
        receive(&mut received, 0, pn);
    }
    assert!(received.ack_due(at(0)));
}
