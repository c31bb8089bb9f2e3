//! The forecast against the times it stands for, and against a naive count.

use super::*;
use crate::tests::{at, fresh};
use anabranch_proto::time::Duration;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn path(window: u64, in_flight: u64, interval_ms: u64, ready_ms: u64) -> PathView {
    PathView {
        smoothed_rtt: Duration::from_millis(50),
        congestion_window: window * 1000,
        bytes_in_flight: in_flight * 1000,
        max_datagram_size: 1000,
        delivery_rate: 1_000_000_u64.checked_div(interval_ms).unwrap_or(0),
        pacing_rate: if interval_ms == 0 { u64::MAX } else { 0 },
        pacer_ready: at(ready_ms),
        ..PathView::new(0)
    }
}

fn sent(forecast: &mut Forecast, ms: u64, packets: u64) {
    forecast.note_time(at(ms));
    let (path, bytes) = (PathId(0), packets * 1000);
    forecast.on_event(&PathEvent::Sent { path, bytes });
}

fn slots(forecast: &Forecast, now_ms: u64, path: &PathView, count: usize) -> Vec<u64> {
    let slots = Slots::new(forecast, at(now_ms), path);
    slots.take(count).map(|at| at / MS).collect()
}

#[test]
fn a_free_window_goes_at_the_pace_of_the_path() {
    let forecast = Forecast::default();
    assert_eq!(slots(&forecast, 0, &path(3, 0, 10, 0), 3), [0, 10, 20]);
    assert_eq!(slots(&forecast, 0, &path(3, 0, 10, 5), 3), [5, 15, 25]);
    assert_eq!(slots(&forecast, 0, &path(3, 0, 0, 0), 3), [0, 0, 0]);
    let at_once = |within| forecast.packets_within(at(0), &path(3, 0, 10, 0), within * MS);
    assert_eq!([0, 9, 10, 20, 49].map(at_once), [1, 1, 2, 3, 3]);
    assert_eq!([50, 60, 70, 100].map(at_once), [4, 5, 6, 7]);
}

#[test]
fn a_full_window_opens_with_the_acknowledgements_of_what_is_in_flight() {
    let mut forecast = Forecast::default();
    sent(&mut forecast, 0, 2);
    sent(&mut forecast, 20, 1);
    let full = path(3, 3, 0, 0);
    assert_eq!(slots(&forecast, 30, &full, 3), [20, 20, 40]);
    let until = |within| forecast.packets_within(at(30), &full, within * MS);
    assert_eq!([0, 19, 20, 39, 40, 49].map(until), [0, 0, 2, 2, 3, 3]);
    assert_eq!([69, 70, 89, 90].map(until), [3, 5, 5, 6], "and once more");
    let (path, bytes, rtt) = (PathId(0), 2000, None);
    forecast.on_event(&PathEvent::Acked { path, bytes, rtt });
    let open = PathView {
        bytes_in_flight: 1000,
        ..full
    };
    assert_eq!(slots(&forecast, 50, &open, 3), [0, 0, 20]);
}

#[test]
fn data_that_no_event_told_of_is_taken_as_halfway() {
    let forecast = Forecast::default();
    assert_eq!(slots(&forecast, 0, &path(2, 2, 0, 0), 2), [25, 25]);
    let until = |within| forecast.packets_within(at(0), &path(2, 2, 0, 0), within * MS);
    assert_eq!([24, 25, 49].map(until), [0, 2, 2]);
}

#[test]
fn a_path_that_failed_is_forgotten() {
    let mut forecast = Forecast::default();
    sent(&mut forecast, 0, 2);
    forecast.on_event(&PathEvent::Abandoned { path: PathId(0) });
    assert!(forecast.log(PathId(0)).is_none());
}

#[test]
fn at_equal_times_the_lower_delay_comes_first() {
    let forward = |id, ms: i64, ready_ms| PathView {
        id: PathId(id),
        forward_delay_us: Some(ms * 1000),
        ..path(10, 0, 10, ready_ms)
    };
    // The fast path sends at 5, 15, 25, 35 and 45: the last arrives with the slow path's packet.
    let paths = [forward(0, 5, 5), forward(1, 50, 0)];
    let view = fresh(&paths);
    let delays = Delays::of(&view);
    let skip = skip(&view, &delays, &Forecast::default(), &paths[1]);
    assert_eq!(skip, 5000);
}

proptest! {
    #[test]
    fn the_count_agrees_with_the_times_within_a_round_trip(
        sends in prop::collection::vec((0_u64..49, 1_u64..4), 0..12),
        room in 0_u64..20,
        interval in 0_u64..9,
        ready in 49_u64..60,
        within in 0_u64..50,
    ) {
        let mut forecast = Forecast::default();
        let mut sends = sends;
        sends.sort_unstable();
        let in_flight: u64 = sends.iter().map(|(_, packets)| packets).sum();
        for (ms, packets) in sends {
            sent(&mut forecast, ms, packets);
        }
        let path = path(in_flight + room, in_flight, interval, ready);
        let now = at(49);
        let times = Slots::new(&forecast, now, &path).take((in_flight + room) as usize);
        let before = times.filter(|time| *time <= within * MS).count() as u64;
        let counted = forecast.packets_within(now, &path, within * MS);
        // Packets of the next window may go when the pacer allows a whole one in this RTT.
        prop_assert_eq!(counted.min(in_flight + room), before);
    }

    #[test]
    fn a_log_keeps_its_sum_and_its_order(
        steps in prop::collection::vec((any::<bool>(), 0_u64..30, 1_u64..5), 0..400),
    ) {
        let mut log = Log::new(PathId(0));
        let (mut now, mut total) = (0, 0_u64);
        for (push, wait, bytes) in steps {
            now += wait;
            if push {
                log.push(now, bytes);
                total += bytes;
            } else {
                log.settle(bytes);
                total = total.saturating_sub(bytes);
            }
            let records: Vec<(u64, u64)> = (0..).map_while(|index| log.get(index)).collect();
            prop_assert!(records.len() <= RECORDS);
            prop_assert!(records.is_sorted_by_key(|(at, _)| *at));
            prop_assert_eq!(records.iter().map(|(_, bytes)| bytes).sum::<u64>(), total);
            prop_assert_eq!(log.total, total);
        }
    }

    #[test]
    fn merged_records_are_off_by_a_16th_of_the_time_they_span(
        gaps in prop::collection::vec(0_u64..20, 33..300),
    ) {
        let mut log = Log::new(PathId(0));
        let mut times = Vec::new();
        let mut now = 0;
        for gap in gaps {
            now += gap;
            log.push(now, 1);
            times.push(now);
        }
        let mut exact = times.iter();
        for (at, bytes) in (0..).map_while(|index| log.get(index)) {
            for sent in exact.by_ref().take(bytes as usize) {
                prop_assert!(*sent >= at && *sent - at <= 2 * now / 16 + 1);
            }
        }
    }
}
