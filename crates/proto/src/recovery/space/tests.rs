//! What space must do.

use super::super::sent_packets::tests::packet;
use super::*;
use crate::time::Duration;
use anabranch_wire::TransportErrorCode;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn space() -> PacketSpace {
    PacketSpace::new(&mut Rng::from_seed([7; 32]))
}

fn space_with(count: u64) -> PacketSpace {
    let mut space = space();
    for ms in 0..count {
        let pn = space.next_pn();
        space.on_sent(pn, packet(at(ms)));
    }
    space
}

fn rtt() -> RttEstimator {
    let mut rtt = RttEstimator::new(Duration::from_millis(333));
    rtt.on_sample(Duration::from_millis(80), Duration::ZERO, at(80));
    rtt
}

type Acked = (
    Result<Option<LargestNewlyAcked>, TransportError>,
    Vec<u64>,
    u32,
);

fn ack(space: &mut PacketSpace, ranges: &[RangeInclusive<u64>]) -> Acked {
    let mut acked = vec![];
    let newest = space.on_ack(ranges.iter().cloned(), &mut acked);
    let late = acked.iter().filter(|(_, packet)| packet.lost_at.is_some());
    let late = late.count() as u32;
    (newest, acked.iter().map(|(pn, _)| *pn).collect(), late)
}

#[test]
fn an_acknowledgement_tells_its_newest_packet_and_the_rest_in_descending_order() {
    let mut space = space_with(10);
    let (newest, acked, spurious) = ack(&mut space, &[7..=8, 2..=3]);
    let expected = LargestNewlyAcked {
        pn: 8,
        time_sent: at(8),
        ack_eliciting: true,
        is_largest_ever: true,
    };
    assert_eq!(newest, Ok(Some(expected)));
    assert_eq!(
        (acked, spurious, space.largest_acked()),
        (vec![8, 7, 3, 2], 0, Some(8))
    );
    assert_eq!(space.bytes_in_flight(), 6 * 1200);
}

#[test]
fn a_repeated_largest_number_is_no_rtt_sample() {
    let mut space = space_with(10);
    ack(&mut space, &[8..=8]).0.unwrap();
    let newest = ack(&mut space, &[6..=8]).0.unwrap().unwrap();
    assert_eq!((newest.pn, newest.is_largest_ever), (7, false));
    assert_eq!(ack(&mut space, &[6..=8]).0, Ok(None));
    // An acknowledgement that was overtaken moves nothing back.
    let newest = ack(&mut space, &[5..=5]).0.unwrap().unwrap();
    assert_eq!(
        (newest.is_largest_ever, space.largest_acked()),
        (false, Some(8))
    );
}

#[test]
fn acknowledging_a_packet_never_sent_is_a_violation() {
    let mut space = space_with(10);
    let error = ack(&mut space, &[9..=10]).0.unwrap_err();
    assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
    assert!(ack(&mut self::space(), &[0..=0]).0.is_err());
}

#[test]
fn acknowledging_a_skipped_number_is_a_violation() {
    let mut space = space();
    let mut previous = None;
    let skipped = loop {
        let pn = space.next_pn();
        space.on_sent(pn, packet(at(pn)));
        if let Some(previous) = previous
            && pn != previous + 1
        {
            break previous + 1;
        }
        previous = Some(pn);
    };
    assert!(skipped >= FIRST_SKIP_DISTANCE / 2);
    assert!(ack(&mut space, &[skipped..=skipped]).0.is_err());
    assert!(ack(&mut space, &[0..=skipped + 1]).0.is_err());
    assert!(
        ack(&mut space, &[skipped + 1..=skipped + 1, 0..=skipped - 1])
            .0
            .is_ok()
    );
}

#[test]
fn skipped_numbers_get_rare_and_never_end() {
    let mut space = space();
    let (mut skips, mut expected) = (vec![], 0);
    for _ in 0..400_000 {
        assert_eq!(space.peek_pn(), expected);
        space.next_pn();
        expected += 1;
        if space.peek_pn() != expected {
            skips.push(expected);
            expected += 1;
        }
    }
    assert!(space.skipped.len() <= MAX_SKIPPED_REMEMBERED);
    assert!(
        skips
            .windows(2)
            .all(|pair| pair[1] - pair[0] <= MAX_SKIP_DISTANCE * 3 / 2 + 1)
    );
    assert!(
        (20..60).contains(&skips.len()),
        "{} numbers were skipped",
        skips.len()
    );
}

#[test]
fn a_loss_found_wrong_is_reported_with_its_packet() {
    let mut space = space_with(10);
    let mut lost = vec![];
    ack(&mut space, &[9..=9]).0.unwrap();
    space.detect_lost(at(85), &rtt(), &mut lost);
    assert_eq!(lost.len(), 7, "0 to 6 are three numbers behind");
    assert_eq!(
        space.loss_time(),
        Some(at(7 + 90)),
        "9/8 of 80 ms after packet 7"
    );
    let (newest, acked, spurious) = ack(&mut space, &[4..=9]);
    assert_eq!((acked, spurious), (vec![8, 7, 6, 5, 4], 3));
    assert_eq!(newest.unwrap().map(|newest| newest.pn), Some(8));
    space.detect_lost(at(86), &rtt(), &mut lost);
    assert_eq!((space.loss_time(), space.bytes_in_flight()), (None, 0));
}

#[test]
fn an_acknowledgement_of_nothing_but_a_wrong_loss_is_told_too() {
    let mut space = space_with(10);
    ack(&mut space, &[9..=9]).0.unwrap();
    space.detect_lost(at(85), &rtt(), &mut vec![]);
    let (newest, acked, spurious) = ack(&mut space, &[9..=9, 5..=5]);
    assert_eq!((acked, spurious), (vec![5], 1));
    let newest = newest.unwrap().expect("it is new");
    assert_eq!((newest.pn, newest.time_sent), (5, at(5)));
    assert!(!newest.ack_eliciting && !newest.is_largest_ever);
}

#[test]
fn lost_packets_are_forgotten_after_three_ptos() {
    let mut space = space_with(5);
    let (mut lost, rtt) = (vec![], rtt());
    ack(&mut space, &[4..=4]).0.unwrap();
    space.detect_lost(at(4), &rtt, &mut lost);
    assert_eq!(lost.len(), 2);
    let pto = rtt.pto_base();
    space.detect_lost(at(1) + pto * 3, &rtt, &mut lost);
    assert_eq!(
        ack(&mut space, &[0..=1]).2,
        1,
        "packet 0 is too old by a millisecond"
    );
}

#[test]
fn a_closed_path_gives_up_everything_and_takes_late_acknowledgements_quietly() {
    let mut space = space_with(5);
    ack(&mut space, &[4..=4]).0.unwrap();
    space.detect_lost(at(5), &rtt(), &mut vec![]);
    assert_eq!(space.take_all().len(), 2);
    assert_eq!(
        (space.loss_time(), space.ack_eliciting_in_flight()),
        (None, 0)
    );
    assert_eq!(ack(&mut space, &[0..=4]), (Ok(None), vec![], 0));
}

#[test]
fn a_run_of_packets_that_elicit_nothing_is_counted() {
    let mut space = space_with(1);
    for _ in 0..3 {
        let pn = space.next_pn();
        space.on_sent(
            pn,
            SentPacket {
                ack_eliciting: false,
                in_flight: false,
                ..packet(at(9))
            },
        );
    }
    assert_eq!(space.sent_since_ack_eliciting(), 3);
    assert_eq!(space.last_ack_eliciting_sent(), Some(at(0)));
    let pn = space.next_pn();
    space.on_sent(pn, packet(at(10)));
    assert_eq!(space.sent_since_ack_eliciting(), 0);
    assert_eq!(
        space.unacked_from(2).map(|(pn, _)| pn).collect::<Vec<_>>(),
        [2, 3, 4]
    );
    assert_eq!(space.iter_unacked().next().map(|(pn, _)| pn), Some(0));
}
