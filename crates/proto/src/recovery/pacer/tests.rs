//! What pacer must do.

use super::*;
use proptest::prelude::*;

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1_000)
}

fn paced(rate: u64) -> Pacer {
    let mut pacer = Pacer::new(Instant::ZERO);
    pacer.set_rate(Instant::ZERO, rate, 1200);
    pacer
}

/// Sends packets of `size` whenever allowed until `end`; returns when each one left.
fn send_until(pacer: &mut Pacer, end: Instant, size: u64, lateness: Duration) -> Vec<Instant> {
    let (mut now, mut sent) = (Instant::ZERO, vec![]);
    loop {
        let ready = pacer.ready_at(now, size);
        if ready > now {
            now = ready + lateness;
        }
        if now > end {
            return sent;
        }
        pacer.on_sent(now, size);
        sent.push(now);
    }
}

#[test]
fn without_a_rate_everything_leaves_at_once() {
    let mut pacer = Pacer::new(Instant::ZERO);
    for _ in 0..10_000 {
        assert_eq!(pacer.ready_at(at(5), 1500), at(5));
        pacer.on_sent(at(5), 1500);
    }
}

#[test]
fn ten_packets_leave_at_once_at_a_low_rate_then_one_at_a_time() {
    let mut pacer = paced(120_000);
    let sent = send_until(&mut pacer, at(50_000), 1200, Duration::ZERO);
    assert_eq!(sent[..10], [Instant::ZERO; 10]);
    assert_eq!(
        sent[10..],
        [at(10_000), at(20_000), at(30_000), at(40_000), at(50_000)]
    );
}

#[test]
fn at_a_high_rate_packets_leave_in_batches_of_a_millisecond() {
    // 120 MB/s: 100 packets per millisecond, two milliseconds at first.
    let mut pacer = paced(120_000_000);
    let sent = send_until(&mut pacer, at(3_000), 1200, Duration::ZERO);
    let leaving = |micros| sent.iter().filter(|time| **time == at(micros)).count();
    assert_eq!(sent.len(), 500);
    assert_eq!(
        (leaving(0), leaving(1_000), leaving(2_000), leaving(3_000)),
        (200, 100, 100, 100)
    );
}

#[test]
fn a_driver_that_wakes_up_late_by_less_than_a_batch_keeps_the_rate() {
    let mut pacer = paced(120_000_000);
    let late = Duration::from_micros(900);
    let sent = send_until(&mut pacer, at(1_000_000), 1200, late).len();
    assert!((99_000..=100_200).contains(&sent), "{sent} packets");
}

#[test]
fn a_pause_earns_no_more_than_one_burst() {
    let mut pacer = paced(1_200_000);
    send_until(&mut pacer, at(100), 1200, Duration::ZERO);
    let now = at(3_600_000_000);
    let mut burst = 0;
    while pacer.ready_at(now, 1200) <= now {
        pacer.on_sent(now, 1200);
        burst += 1;
    }
    assert_eq!(burst, BURST_PACKETS);
}

#[test]
fn a_higher_rate_shortens_a_wait_that_has_begun() {
    let mut pacer = paced(MIN_RATE);
    send_until(&mut pacer, at(1), 1200, Duration::ZERO);
    assert_eq!(pacer.ready_at(at(1), 1200), at(1_200_000));
    pacer.set_rate(at(1), 1_200_000, 1200);
    assert!(pacer.ready_at(at(1), 1200) <= at(1_001));
}

#[test]
fn packets_that_did_not_ask_delay_others_by_no_more_than_a_burst() {
    let mut pacer = paced(1_200_000);
    for _ in 0..1_000 {
        pacer.on_sent(at(0), 1200);
    }
    // the debt of a burst, and the packet itself
    assert_eq!(pacer.ready_at(at(0), 1200), at(11_000));
}

#[test]
fn a_packet_larger_than_the_bucket_is_sent_when_it_is_full() {
    let mut pacer = paced(1_200_000);
    pacer.on_sent(at(0), 12_000);
    assert_eq!(pacer.ready_at(at(0), 60_000), at(10_000));
}

#[test]
fn absurd_rates_neither_panic_nor_stop_a_path() {
    for rate in [0, 1, u64::MAX] {
        let mut pacer = paced(rate);
        for _ in 0..20 {
            pacer.on_sent(at(1), u64::from(u16::MAX));
        }
        assert!(pacer.ready_at(at(1), 1200) < at(30_000_000));
        pacer.set_rate(Instant::FAR_FUTURE, u64::MAX, 1200);
        assert_eq!(
            pacer.ready_at(Instant::FAR_FUTURE, 1200),
            Instant::FAR_FUTURE
        );
    }
}

#[test]
fn the_rate_of_a_window_is_a_quarter_above_one_window_per_rtt() {
    let rtt = Duration::from_millis(100);
    assert_eq!(rate_for_window(120_000, rtt, false), 1_500_000);
    assert_eq!(rate_for_window(120_000, rtt, true), 2_400_000);
    assert_eq!(rate_for_window(u64::MAX, Duration::ZERO, true), u64::MAX);
}

proptest! {
    #[test]
    fn no_span_of_time_carries_more_than_the_rate_and_one_bucket(
        rate in 10_000u64..10_000_000_000,
        sizes in prop::collection::vec(40u64..1500, 20..400),
        pauses in prop::collection::vec(0u64..3_000_000, 20..400),
    ) {
        let mut pacer = paced(rate);
        let (mut now, mut sent) = (Instant::ZERO, vec![]);
        for (size, pause) in sizes.iter().zip(&pauses) {
            now = pacer.ready_at(now, *size);
            pacer.on_sent(now, *size);
            sent.push((now, *size));
            now += Duration::from_nanos(if pause % 3 == 0 { *pause } else { 0 });
        }
        for first in 0..sent.len() {
            let mut bytes = 0;
            for (time, size) in &sent[first..] {
                bytes += size;
                let allowed = in_time(rate, time.since(sent[first].0)) + pacer.burst() + 1;
                prop_assert!(bytes <= allowed, "{bytes} bytes where {allowed} are allowed");
            }
        }
    }

    #[test]
    fn a_busy_sender_reaches_its_rate_within_one_percent(
        rate in 50_000u64..500_000_000,
        size in 100u64..1200,
    ) {
        let mut pacer = paced(rate);
        // As long as 2000 packets take, or 200 batches if that is longer.
        let nanos = (2_000 * size * NANOS / rate).max(200_000_000);
        let sent = send_until(&mut pacer, Instant::from_nanos(nanos), size, Duration::ZERO);
        let bytes = sent.len() as u64 * size - pacer.burst();
        let expected = in_time(rate, Duration::from_nanos(nanos));
        prop_assert!(bytes.abs_diff(expected) * 100 <= expected, "{bytes} instead of {expected}");
    }
}
