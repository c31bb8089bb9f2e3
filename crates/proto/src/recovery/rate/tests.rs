//! What rate must do.

use super::super::sent_packets::tests::packet;
use super::*;
use std::collections::VecDeque;

const SIZE: u64 = 1200;
const RTT: Duration = Duration::from_millis(100);

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// An estimator with the packets on their way.
#[derive(Default)]
struct Path {
    rate: DeliveryRate,
    flight: VecDeque<SentPacket>,
}

impl Path {
    fn send(&mut self, ms: u64) {
        let before = self.flight.len() as u64 * SIZE;
        let rate = self.rate.on_sent(at(ms), before);
        let bytes_in_flight_after = before + SIZE;
        self.flight.push_back(SentPacket {
            bytes_in_flight_after,
            rate,
            ..packet(at(ms))
        });
    }

    fn ack(&mut self, ms: u64, count: usize) -> Option<RateSample> {
        let acked: Vec<_> = self.flight.drain(..count).collect();
        for packet in acked.iter().rev() {
            self.rate.on_packet_acked(at(ms), packet);
        }
        self.rate.finish_ack(at(ms), RTT)
    }

    fn lose(&mut self) {
        self.flight.pop_front();
        self.rate.on_lost(SIZE);
    }

    /// One packet each `gap` ms and as many acknowledgements a round trip later.
    fn run(&mut self, from: u64, to: u64, gap: u64) -> Option<RateSample> {
        let mut last = None;
        for ms in from..to {
            if ms >= from + 100 && (ms - from).is_multiple_of(gap) {
                last = self.ack(ms, 1);
            }
            if (ms - from).is_multiple_of(gap) {
                self.send(ms);
            }
        }
        last
    }
}

#[test]
fn a_steady_flow_is_measured_exactly() {
    let mut path = Path::default();
    let sample = path.run(0, 1000, 2).unwrap();
    assert_eq!(sample.rate, SIZE * 500);
    assert_eq!(
        (sample.interval, sample.newly_acked, sample.app_limited),
        (RTT, SIZE, false)
    );
    assert_eq!(sample.delivered - sample.prior_delivered, 50 * SIZE);
    assert_eq!(path.rate.bandwidth(), SIZE * 500);
    assert_eq!(path.rate.delivered(), sample.delivered);
}

#[test]
fn acknowledgements_that_arrive_in_a_bunch_do_not_inflate_the_rate() {
    let mut path = Path::default();
    path.run(0, 500, 2);
    // 50 packets are on their way, sent 2 ms apart; all are acknowledged at once.
    let sample = path.ack(500, 50).unwrap();
    assert_eq!(sample.newly_acked, 50 * SIZE);
    assert!(
        sample.rate <= SIZE * 500 * 101 / 100,
        "{} bytes/s",
        sample.rate
    );
}

#[test]
fn a_burst_is_measured_by_its_acknowledgements() {
    let mut path = Path::default();
    (0..10).for_each(|_| path.send(0));
    assert_eq!(
        path.ack(100, 1).unwrap().rate,
        SIZE * 10,
        "one packet in 100 ms"
    );
    let samples: Vec<_> = (1..10)
        .map(|n| path.ack(100 + 10 * n, 1).unwrap())
        .collect();
    let last = samples[8];
    assert_eq!(
        (last.rate, last.in_flight_at_send),
        (SIZE * 10_000 / 190, 10 * SIZE)
    );
}

#[test]
fn the_newest_packet_of_a_frame_makes_the_sample_in_any_order() {
    let mut path = Path::default();
    path.run(0, 300, 2);
    let mut forward = path.rate.clone();
    let acked: Vec<_> = path.flight.drain(..4).collect();
    for packet in &acked {
        forward.on_packet_acked(at(306), packet);
    }
    for packet in acked.iter().rev() {
        path.rate.on_packet_acked(at(306), packet);
    }
    let sample = forward.finish_ack(at(306), RTT);
    assert!(sample.is_some());
    assert_eq!(sample, path.rate.finish_ack(at(306), RTT));
}

#[test]
fn samples_are_lower_bounds_until_what_was_in_flight_is_delivered() {
    let mut path = Path::default();
    path.run(0, 400, 2);
    path.rate.set_app_limited(path.flight.len() as u64 * SIZE);
    assert!(path.rate.is_app_limited());
    path.send(400);
    let sample = path.ack(400, 50).unwrap();
    assert!(!sample.app_limited, "these were sent before");
    assert!(path.rate.is_app_limited());
    let sample = path.ack(500, 1).unwrap();
    assert!(sample.app_limited);
    assert!(
        !path.rate.is_app_limited(),
        "everything from then was delivered"
    );
}

#[test]
fn slow_samples_of_a_sender_with_room_to_spare_do_not_lower_the_bandwidth() {
    let mut path = Path::default();
    path.run(0, 1000, 2);
    path.ack(1000, 50);
    for round in 0..50 {
        path.rate.set_app_limited(0);
        path.send(1000 + round * 200);
        assert!(path.ack(1100 + round * 200, 1).unwrap().app_limited);
    }
    assert_eq!(path.rate.bandwidth(), SIZE * 500);
}

#[test]
fn idle_time_does_not_count_as_time_spent_delivering() {
    let mut path = Path::default();
    path.run(0, 1000, 2);
    path.ack(1000, 50);
    path.send(60_000);
    let sample = path.ack(60_100, 1).unwrap();
    assert_eq!((sample.interval, sample.rate), (RTT, SIZE * 10));
}

#[test]
fn a_sample_shorter_than_the_smallest_rtt_is_not_taken() {
    let mut path = Path::default();
    path.send(0);
    assert_eq!(path.ack(99, 1), None);
    assert_eq!((path.rate.bandwidth(), path.rate.delivered()), (0, SIZE));
    assert_eq!(
        path.rate.finish_ack(at(500), RTT),
        None,
        "nothing was acknowledged"
    );
}

#[test]
fn losses_between_sending_and_acknowledgement_are_in_the_sample() {
    let mut path = Path::default();
    path.run(0, 400, 2);
    path.lose();
    path.lose();
    assert_eq!(path.ack(404, 1).unwrap().lost, 2 * SIZE);
}

#[test]
fn packets_outside_the_flight_take_no_part() {
    let mut rate = DeliveryRate::new();
    let snapshot = rate.on_sent(at(0), 0);
    let late = SentPacket {
        in_flight: false,
        rate: snapshot,
        ..packet(at(0))
    };
    rate.on_packet_acked(at(100), &late);
    assert_eq!((rate.finish_ack(at(100), RTT), rate.delivered()), (None, 0));
}

#[test]
fn the_bandwidth_follows_a_slower_path_after_ten_round_trips() {
    let mut path = Path::default();
    path.run(0, 1000, 1);
    path.ack(1000, 100);
    assert_eq!(path.rate.bandwidth(), SIZE * 1000);
    path.run(1000, 1700, 4);
    assert_eq!(path.rate.bandwidth(), SIZE * 1000);
    path.ack(1700, 25);
    path.run(1700, 2700, 4);
    assert_eq!(path.rate.bandwidth(), SIZE * 250);
}
