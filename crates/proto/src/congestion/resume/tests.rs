//! The phases of careful resume, each with its ways out, and what controllers make of them.

use super::super::tests::{ack, at, controller, loss, spurious};
use super::super::{AckEvent, Controller, Cubic, NewReno, RttView};
use super::*;
use proptest::prelude::*;

const INITIAL: u64 = 10_000;
const PACKET: u64 = 1000;
/// What `ack` says of the RTT.
const RTT: Duration = Duration::from_millis(50);
/// To the nearest KiB below.
const REMEMBERED: u64 = 400 * 1024;
const JUMP: u64 = REMEMBERED / 2;

fn memory(rtt_ms: u64) -> PathMemory {
    PathMemory::new(REMEMBERED, Duration::from_millis(rtt_ms)).unwrap()
}

fn resuming() -> CarefulResume {
    let mut resume = CarefulResume::default();
    resume.begin(memory(50), at(10_000), INITIAL);
    resume
}

/// The initial window is acknowledged 50 ms after it was sent.
fn first_ack() -> AckEvent {
    ack(50, 0, INITIAL)
}

fn sent(now_ms: u64, in_flight: u64) -> SentEvent {
    SentEvent {
        now: at(now_ms),
        bytes: PACKET,
        bytes_in_flight: in_flight,
        app_limited: false,
    }
}

/// In flight before it: what is acknowledged, and more.
fn ack_of_flight(now_ms: u64, sent_ms: u64, bytes: u64, prior_in_flight: u64) -> AckEvent {
    AckEvent {
        prior_in_flight,
        ..ack(now_ms, sent_ms, bytes)
    }
}

fn unvalidated() -> CarefulResume {
    let mut resume = resuming();
    assert_eq!(resume.on_ack(&first_ack(), 20_000), Step::Set(JUMP));
    resume
}

#[test]
fn no_memory_is_worth_more_than_the_longest_jump() {
    let huge = PathMemory::new(u64::MAX, RTT).unwrap();
    let mut resume = CarefulResume::default();
    resume.begin(huge, at(10_000), INITIAL);
    assert_eq!(resume.on_ack(&first_ack(), 20_000), Step::Set(MAX_JUMP));
}

/// 150 packets left after the jump, the first at 51 ms and the last at 90 ms.
fn validating() -> CarefulResume {
    let mut resume = unvalidated();
    assert_eq!(resume.on_sent(&sent(51, PACKET), PACKET), None);
    assert_eq!(resume.on_sent(&sent(90, 150_000), PACKET), None);
    let first = ack_of_flight(101, 51, PACKET, 150_000);
    assert_eq!(resume.on_ack(&first, JUMP), Step::Set(150_000));
    assert_eq!(resume.name(), Some("validating"));
    resume
}

#[test]
fn a_confirmed_path_jumps_to_half_of_what_it_carried_spread_over_a_round_trip() {
    let mut resume = resuming();
    assert!(resume.is_settled());
    let half = ack(50, 0, INITIAL / 2);
    assert_eq!(resume.on_ack(&half, INITIAL), Step::Grow);
    assert_eq!(resume.on_ack(&half, 15_000), Step::Set(JUMP));
    assert_eq!(resume.pacing_rate(), Some(JUMP * 20));
    assert_eq!(resume.name(), Some("unvalidated"));
    assert!(!resume.is_settled());
}

#[test]
fn a_sender_with_little_to_send_waits_with_the_jump() {
    let mut resume = resuming();
    let idle = AckEvent {
        app_limited: true,
        ..first_ack()
    };
    assert_eq!(resume.on_ack(&idle, INITIAL), Step::Grow);
    let busy = ack(500, 450, PACKET);
    assert_eq!(resume.on_ack(&busy, INITIAL), Step::Set(JUMP));
}

#[test]
fn an_rtt_of_another_path_resumes_nothing() {
    let jumps = |remembered_ms| {
        let mut resume = CarefulResume::default();
        resume.begin(memory(remembered_ms), at(10_000), INITIAL);
        let jumped = resume.on_ack(&first_ack(), 20_000) != Step::Grow;
        let later = resume.on_ack(&ack(100, 51, INITIAL), 20_000);
        assert_eq!(later == Step::Grow, !jumped, "it is decided once");
        jumped
    };
    assert_eq!(
        [4, 5, 50, 99, 100].map(jumps),
        [false, true, true, true, false]
    );
}

#[test]
fn what_was_remembered_is_of_no_use_later() {
    for (now, jumps) in [(10_000, true), (10_001, false)] {
        let mut resume = resuming();
        let step = resume.on_ack(&ack(now, now - 50, INITIAL), 20_000);
        assert_eq!(step == Step::Set(JUMP), jumps);
        assert_eq!(resume.is_settled(), !jumps);
    }
}

#[test]
fn a_window_as_large_as_the_jump_needs_none() {
    let mut resume = resuming();
    assert_eq!(resume.on_ack(&first_ack(), JUMP), Step::Grow);
    assert_eq!(resume.on_ack(&first_ack(), 20_000), Step::Grow);
}

#[test]
fn a_loss_or_mark_before_the_jump_means_none() {
    for ecn in [false, true] {
        let mut resume = resuming();
        let event = CongestionEvent {
            ecn,
            ..loss(40, 0, PACKET)
        };
        assert_eq!(resume.on_congestion(&event), None);
        assert_eq!(resume.on_ack(&first_ack(), 20_000), Step::Grow);
    }
}

#[test]
fn acknowledgements_of_what_was_sent_before_the_jump_leave_the_window() {
    let mut resume = unvalidated();
    resume.on_sent(&sent(51, PACKET), PACKET);
    let earlier = ack(60, 49, 5000);
    assert_eq!(resume.on_ack(&earlier, JUMP), Step::Hold);
}

#[test]
fn what_is_in_flight_when_the_first_unvalidated_packet_arrives_is_validated() {
    let mut resume = validating();
    assert_eq!(resume.pacing_rate(), None);
    let middle = ack(120, 70, 70_000);
    assert_eq!(resume.on_ack(&middle, 150_000), Step::Grow);
    assert_eq!(resume.name(), Some("validating"));
    let last = ack(140, 90, 70_000);
    assert_eq!(resume.on_ack(&last, 220_000), Step::Grow);
    assert!(resume.is_settled());
}

#[test]
fn a_full_window_is_validated_as_it_is() {
    let mut resume = unvalidated();
    assert_eq!(resume.on_sent(&sent(60, JUMP - PACKET), PACKET), None);
    let full = resume.on_sent(&sent(61, JUMP), PACKET);
    assert_eq!(full, Some(JUMP));
    assert_eq!(resume.name(), Some("validating"));
    assert_eq!(resume.on_sent(&sent(62, JUMP), PACKET), None);
}

#[test]
fn a_jump_lasts_a_round_trip() {
    let mut resume = unvalidated();
    resume.on_sent(&sent(52, PACKET), PACKET);
    let late = ack_of_flight(101, 40, PACKET, 90_000);
    assert_eq!(resume.on_ack(&late, JUMP), Step::Set(90_000));
    assert_eq!(resume.name(), Some("validating"));
}

#[test]
fn a_jump_that_was_not_used_leaves_what_the_path_carried() {
    let mut resume = unvalidated();
    let arrived = ack_of_flight(60, 49, 5000, 12_000);
    assert_eq!(resume.on_ack(&arrived, JUMP), Step::Hold);
    resume.on_sent(&sent(61, 12_000), PACKET);
    let first = ack_of_flight(111, 61, PACKET, 12_000);
    let carried = INITIAL + 5000 + PACKET;
    assert_eq!(resume.on_ack(&first, JUMP), Step::Set(carried));
    assert!(resume.is_settled());
    assert_eq!(resume.on_ack(&ack(200, 150, PACKET), carried), Step::Grow);
}

#[test]
fn a_jump_that_nothing_was_sent_in_for_a_round_trip_is_over_with_the_next_packet() {
    let mut resume = unvalidated();
    let next = resume.on_sent(&sent(5000, PACKET), PACKET);
    assert_eq!(next, Some(INITIAL));
    assert!(resume.is_settled());
}

#[test]
fn congestion_leaves_half_of_what_the_path_carried_and_holds_it_until_the_jump_is_over() {
    let mut resume = validating();
    resume.on_ack(&ack(105, 60, 20_000), 150_000);
    let carried = INITIAL + PACKET + 20_000;
    assert_eq!(resume.on_congestion(&loss(106, 62, 30_000)), Some(carried));
    assert_eq!(resume.name(), Some("safe_retreat"));
    assert_eq!(resume.on_congestion(&loss(107, 64, 30_000)), None, "once");
    assert_eq!(resume.on_ack(&ack(110, 80, 9000), 15_500), Step::Hold);
    let last = resume.on_ack(&ack(140, 90, PACKET), 15_500);
    assert_eq!(last, Step::LimitSlowStart(after_retreat(carried + 10_000)));
    assert!(resume.is_settled());
}

#[test]
fn congestion_while_the_jump_is_being_sent_ends_it() {
    let mut resume = unvalidated();
    resume.on_sent(&sent(55, PACKET), PACKET);
    assert_eq!(resume.on_congestion(&loss(60, 0, PACKET)), Some(INITIAL));
    assert_eq!(resume.pacing_rate(), None);
    assert_eq!(resume.on_sent(&sent(61, JUMP), PACKET), None);
    assert_ne!(resume.on_ack(&ack(105, 55, PACKET), 5000), Step::Hold);
}

#[test]
fn what_is_lost_later_and_a_path_that_lost_everything_are_no_matter_of_the_jump() {
    let mut later = validating();
    later.on_congestion(&loss(106, 62, PACKET));
    assert_eq!(later.on_congestion(&loss(160, 110, PACKET)), None);
    assert!(later.is_settled());
    let mut silent = validating();
    let event = CongestionEvent {
        persistent: true,
        ..loss(900, 90, 100_000)
    };
    silent.on_congestion(&event);
    assert!(silent.is_settled());
}

#[test]
fn a_memory_survives_being_written_and_one_of_nothing_is_none() {
    let memory = PathMemory::new(1_300_000, Duration::from_micros(200_123)).unwrap();
    assert_eq!(memory.bytes(), 1_300_000 / 1024 * 1024);
    assert_eq!(memory.rtt(), Duration::from_micros(200_123));
    assert_eq!(PathMemory::decode(memory.encode()), Some(memory));
    assert_eq!(PathMemory::new(1023, RTT), None);
    assert_eq!(PathMemory::new(1 << 20, Duration::ZERO), None);
    assert_eq!(PathMemory::decode([0; 8]), None);
    assert_eq!(PathMemory::decode([0, 0, 0, 0, 1, 1, 1, 1]), None);
    assert_eq!(PathMemory::decode([1, 1, 1, 1, 0, 0, 0, 0]), None);
    let most = PathMemory::new(u64::MAX, Duration::MAX).unwrap();
    assert_eq!(PathMemory::decode(most.encode()), Some(most));
}

/// A controller for packets of 1000 bytes that has jumped and sent a packet.
fn jumped(mut controller: Box<dyn Controller>) -> Box<dyn Controller> {
    controller.resume(memory(50), at(10_000));
    controller.on_ack(&first_ack(), &[]);
    assert_eq!(controller.window(), JUMP);
    controller.on_sent(&sent(51, PACKET));
    controller
}

#[test]
fn loss_based_controllers_resume_and_others_do_not() {
    let jumps = |name: &str| {
        let mut controller = controller(name);
        controller.resume(memory(50), at(10_000));
        controller.on_ack(&ack(50, 0, 15_000), &[]);
        controller.window() == JUMP
    };
    for name in ["new-reno", "cubic", "westwood", "cmt"] {
        assert!(jumps(name), "{name}");
    }
    for name in [
        "lia", "olia", "balia", "wvegas", "cmt-rpv1", "cmt-rpv2", "bbr", "constant",
    ] {
        assert!(!jumps(name), "{name}");
        assert_eq!(controller(name).memorable(), None);
    }
}

#[test]
fn slow_start_goes_on_from_what_was_in_flight() {
    let mut reno = jumped(Box::new(NewReno::new(1000)));
    assert_eq!(
        (reno.phase(), reno.pacing_rate()),
        ("unvalidated", Some(JUMP * 20))
    );
    reno.on_ack(&ack(60, 49, 5000), &[]);
    assert_eq!(reno.window(), JUMP);
    reno.on_ack(&ack_of_flight(101, 51, PACKET, 180_000), &[]);
    assert_eq!((reno.window(), reno.phase()), (180_000, "validating"));
    reno.on_ack(&ack(110, 60, 50_000), &[]);
    assert_eq!((reno.window(), reno.phase()), (230_000, "slow_start"));
}

#[test]
fn a_retreat_leaves_half_of_the_pipe_and_slow_start_ends_at_what_it_proved_to_be() {
    for mut it in [
        jumped(Box::new(NewReno::new(1000))),
        jumped(Box::new(Cubic::new(1000))),
    ] {
        it.on_sent(&sent(95, 180_000));
        it.on_ack(&ack_of_flight(101, 51, 40_000, 180_000), &[]);
        it.on_congestion(&loss(110, 70, 5000), &[]);
        assert_eq!((it.window(), it.phase()), (25_000, "safe_retreat"));
        it.on_ack(&ack(120, 80, 20_000), &[]);
        assert_eq!(it.window(), 25_000);
        it.on_ack(&ack(140, 95, 10_000), &[]);
        assert_eq!((it.window(), it.ssthresh()), (25_000, 40_000));
        it.on_ack(&ack(170, 120, 10_000), &[]);
        assert_eq!((it.window(), it.phase()), (35_000, "slow_start"));
        it.on_ack(&ack(180, 130, 10_000), &[]);
        assert!((40_000..42_000).contains(&it.window()), "{}", it.window());
    }
}

#[test]
fn a_jump_is_never_restored_by_losses_that_were_none() {
    let mut reno = jumped(Box::new(NewReno::new(1000)));
    reno.on_congestion(&loss(60, 51, PACKET), &[]);
    assert_eq!(reno.window(), 5000);
    reno.on_spurious_loss(&spurious(61, 60, PACKET));
    assert_eq!(reno.window(), 5000);
}

#[test]
fn a_path_that_starts_over_has_nothing_to_resume() {
    let mut reno = NewReno::new(1000);
    reno.resume(memory(50), at(10_000));
    reno.restart(at(10));
    reno.on_ack(&ack(60, 11, 20_000), &[]);
    assert_eq!(reno.window(), 22_000);
    let mut idle = jumped(Box::new(NewReno::new(1000)));
    idle.on_idle(at(2000));
    assert_eq!((idle.window(), idle.pacing_rate()), (INITIAL, None));
}

#[test]
fn what_a_path_carried_is_known_when_it_was_acknowledged() {
    let mut reno = NewReno::new(1000);
    reno.on_ack(&ack(10, 0, 69_999), &[]);
    assert_eq!(reno.memorable(), None, "half of it is on its way");
    reno.on_ack(&ack(20, 0, 1), &[]);
    assert_eq!(reno.memorable(), Some(40_000));
    reno.on_congestion(&loss(100, 90, PACKET), &[]);
    assert_eq!(reno.memorable(), None, "in recovery");
    reno.on_ack(&ack(200, 150, PACKET), &[]);
    assert_eq!(reno.memorable(), Some(40_025));
    assert_eq!(jumped(Box::new(NewReno::new(1000))).memorable(), None);
}

proptest! {
    #[test]
    fn no_window_exceeds_the_jump_before_it_is_validated_nor_falls_below_two_packets(
        steps in prop::collection::vec((0_u8..4, 1_u64..400, 1_u64..60), 1..60)
    ) {
        let mut controller: Box<dyn Controller> = Box::new(Cubic::new(1000));
        controller.resume(memory(50), at(10_000));
        let (mut now, mut in_flight) = (60, 0_u64);
        for (kind, packets, passed) in steps {
            now += passed;
            let bytes = (packets * PACKET).min(in_flight);
            match kind {
                0 => {
                    in_flight = in_flight.max(controller.window());
                    controller.on_sent(&sent(now, in_flight));
                }
                3 => {
                    in_flight -= bytes;
                    controller.on_congestion(&loss(now, now - passed, bytes), &[]);
                }
                _ => {
                    let mut event = ack_of_flight(now, now - passed, bytes, in_flight);
                    event.rtt = RttView { latest: RTT, min: RTT, smoothed: RTT };
                    in_flight -= bytes;
                    controller.on_ack(&event, &[]);
                }
            }
            prop_assert!(controller.window() >= 2 * PACKET);
            if controller.phase() == "unvalidated" {
                prop_assert_eq!(controller.window(), JUMP);
            }
        }
    }
}
