//! The fifth paper: arrival orders and delays of lowest RTT, delivery delay and the paper's
//! outlook.

use super::examples::{Verdict, equal, scheduler};
use super::{Growth, Model, ModelPath, Trace};
use anabranch_proto::sched::{Backlog, Decision, PathView, SendView, Unit};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;

/// Slide "Receiver Buffer Occupancy": packets in order of arrival with lowest RTT first.
#[rustfmt::skip]
const LOWEST_RTT: [u64; 48] = [
    4, 5, 6, 1, 2, 3, 7, 10, 8, 9, 12, 14, 11, 13, 15, 19, 20, 16, 21, 17, 18, 22, 23, 24, 28, 29,
    30, 25, 26, 27, 31, 32, 33, 36, 38, 39, 34, 35, 37, 40, 41, 44, 42, 46, 48, 43, 45, 47,
];

/// Packets in order of arrival with delivery delay, from the same slide.
#[rustfmt::skip]
const DELIVERY_DELAY: [u64; 48] = [
    1, 2, 3, 4, 5, 6, 7, 10, 8, 11, 9, 13, 12, 14, 15, 19, 16, 20, 17, 21, 18, 22, 23, 24, 28, 29,
    25, 30, 26, 27, 31, 32, 33, 36, 38, 39, 34, 35, 37, 40, 41, 42, 44, 46, 48, 43, 45, 47,
];

/// Outlook: reordering delay and end-to-end delay in milliseconds of packets 1 to 12.
#[rustfmt::skip]
const OUTLOOK: [(u64, u64); 12] = [
    (0, 50), (0, 50), (0, 50), (0, 100), (0, 100), (0, 100), (0, 100), (0, 100),
    (40, 90), (30, 80), (20, 70), (0, 50),
];

/// Reordering delay and end-to-end delay of packets 1 to 12 with intelligent delivery delay.
#[rustfmt::skip]
const INTELLIGENT: [(u64, u64); 12] = [
    (0, 50), (0, 50), (0, 50), (0, 50), (0, 100), (0, 50), (0, 100), (0, 50),
    (0, 100), (0, 100), (0, 100), (0, 50),
];

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Two paths of 1.2 Mbit/s, which transmit a packet of 1500 bytes in 10 ms; that time is included
/// in the forward delays of 10 and 50 ms. Windows of three packets, as the published orders imply.
fn slide(spec: &str, late: &[(u64, Duration)]) -> Trace {
    let path = |forward, backward| ModelPath {
        serialisation: ms(10),
        forward: ms(forward),
        backward: ms(backward),
        window: 3,
    };
    let model = Model {
        paths: vec![path(0, 100), path(40, 10)],
        growth: Growth::Constant,
        receive_buffer: None,
        packets: 60,
        lost: Vec::new(),
        late: late.to_vec(),
        paced: false,
        until: Instant::FAR_FUTURE,
    };
    model.run(&mut *scheduler(spec))
}

/// The paths of the outlook: 50 ms with a window of three, 100 ms with a window of five, one packet
/// per 10 ms and path. Acknowledgements arrive at once.
fn outlook(spec: &str, paced: bool) -> Vec<(u64, u64)> {
    let path = |forward, window| ModelPath {
        serialisation: ms(10),
        forward: ms(forward),
        backward: ms(0),
        window,
    };
    let model = Model {
        paths: vec![path(40, 3), path(90, 5)],
        growth: Growth::Constant,
        receive_buffer: None,
        packets: 12,
        lost: Vec::new(),
        late: Vec::new(),
        paced,
        until: Instant::FAR_FUTURE,
    };
    let trace = model.run(&mut *scheduler(spec));
    let in_ms = |duration: Duration| duration.as_millis() as u64;
    let delays = trace.delays(12).into_iter();
    delays
        .map(|row| (in_ms(row.reordering), in_ms(row.transit + row.reordering)))
        .collect()
}

/// Means over packets 1 to 48 in hundredths of a millisecond: reordering delay, end-to-end delay.
fn means(trace: &Trace) -> (u128, u128) {
    let delays = trace.delays(48);
    let count = delays.len() as u128;
    let reordering: u128 = delays.iter().map(|row| row.reordering.as_micros()).sum();
    let transit: u128 = delays.iter().map(|row| row.transit.as_micros()).sum();
    (reordering / count / 10, (transit + reordering) / count / 10)
}

fn peak_and_sum(order: &[u64]) -> (u64, u64) {
    let occupancy = occupancy(order);
    let peak = occupancy.iter().copied().max().unwrap_or(0);
    (peak, occupancy.iter().sum())
}

fn receive_buffer() -> Vec<Verdict> {
    let id = "bremen-rcvbuf";
    let delivery = slide("delivery-delay", &[]);
    let lowest = slide("min-rtt", &[]);
    let order: Vec<u64> = delivery.arrival_order().into_iter().take(48).collect();
    let slips = [11, 16].map(|packet| slide("min-rtt", &[(packet, ms(10))]));
    let consistent = |trace: &Trace, entries| is_consistent(trace, &LOWEST_RTT[..entries]);
    vec![
        equal(
            (id, "T1", "arrival order with delivery delay, 48 packets"),
            &DELIVERY_DELAY.to_vec(),
            &order,
        ),
        equal(
            (
                id,
                "T2",
                "lowest RTT: 17 entries fit as they are, all 48 with one slip of 10 ms",
            ),
            &(true, false, [true, true]),
            &(
                consistent(&lowest, 17),
                consistent(&lowest, 48),
                slips.map(|trace| consistent(&trace, 48)),
            ),
        ),
        equal(
            (
                id,
                "T3",
                "packets held after each arrival: peak and sum, lowest RTT, delivery delay",
            ),
            &((3, 62), (3, 45)),
            &(peak_and_sum(&LOWEST_RTT), peak_and_sum(&order)),
        ),
        equal(
            (
                id,
                "T4",
                "mean reordering and end-to-end delay in 10 us, delivery delay, lowest RTT",
            ),
            &((625, 4125), (1187, 4687)),
            &(means(&delivery), means(&lowest)),
        ),
    ]
}

fn outlooks() -> Vec<Verdict> {
    let delivery = outlook("delivery-delay", false);
    let intelligent = outlook("idd-like", true);
    let total = |rows: &[(u64, u64)]| rows.iter().map(|(wait, _)| wait).sum::<u64>();
    vec![
        equal(
            (
                "bremen-dd-outlook",
                "T1",
                "reordering and end-to-end delay of 12 packets, ms",
            ),
            &OUTLOOK.to_vec(),
            &delivery,
        ),
        equal(
            (
                "bremen-intelligent-dd",
                "T1",
                "the same where slots are filled by arrival, ms",
            ),
            &INTELLIGENT.to_vec(),
            &intelligent,
        ),
        equal(
            (
                "bremen-intelligent-dd",
                "T2",
                "reordering delay in all: delivery delay, intelligent",
            ),
            &(90, 0),
            &(total(&delivery), total(&intelligent)),
        ),
    ]
}

/// The choice of delivery delay between two paths with these one-way delays, where `room` says
/// which of them can send.
fn select(delays_us: [i64; 2], room: [bool; 2]) -> Option<u32> {
    let path = |at: usize| {
        let path = PathView {
            smoothed_rtt: ms(100),
            forward_delay_us: Some(delays_us[at]),
            congestion_window: 506 * 1200,
            ..PathView::new(at as u32)
        };
        PathView {
            bytes_in_flight: if room[at] { 128 * 1200 } else { 506 * 1200 },
            ..path
        }
    };
    let paths = [path(0), path(1)];
    let view = SendView {
        paths: &paths,
        backlog: Backlog {
            unsent: 1_000_000,
            ..Backlog::default()
        },
        unit: Unit {
            bytes: 1200,
            ..Unit::default()
        },
        ..SendView::default()
    };
    match scheduler("delivery-delay").select(&view).decision {
        Decision::Send(PathId(id)) => Some(id + 1),
        _ => None,
    }
}

fn selectors() -> Vec<Verdict> {
    let full = select([126, 340_200], [false, false]);
    let opened = select([126, 340_200], [false, true]);
    let compared = select([340_199, 340_200], [true, true]);
    let shifted = |by: i64| select([126 + by, 128 + by], [true, true]);
    vec![
        equal(
            (
                "bremen-selector-1",
                "T1",
                "both full: none; subflow 2 opens: subflow 2",
            ),
            &(None, Some(2)),
            &(full, opened),
        ),
        equal(
            (
                "bremen-selector-2",
                "T2",
                "340199 against 340200: subflow 1",
            ),
            &Some(1),
            &compared,
        ),
        equal(
            (
                "bremen-estimator",
                "T2",
                "126 and 128, also with 1000000 added: subflow 1",
            ),
            &[Some(1); 3],
            &[shifted(0), shifted(1_000_000), shifted(-1_000_000)],
        ),
    ]
}

pub(super) fn verdicts() -> Vec<Verdict> {
    let mut all = receive_buffer();
    all.extend(outlooks());
    all.extend(selectors());
    all
}

/// The number of packets that wait behind a gap after each arrival in this order.
fn occupancy(order: &[u64]) -> Vec<u64> {
    let mut held = std::collections::BTreeSet::new();
    let mut next = 1;
    let after = order.iter().map(|packet| {
        held.insert(*packet);
        while held.remove(&next) {
            next += 1;
        }
        held.len() as u64
    });
    after.collect()
}

/// Whether an order of arrival agrees with the times of a trace: they never decrease along it.
fn is_consistent(trace: &Trace, order: &[u64]) -> bool {
    let arrives = |packet: &u64| {
        let row = trace.sent.iter().find(|row| row.packet == *packet);
        row.map(|row| row.arrives)
    };
    let times: Option<Vec<Instant>> = order.iter().map(arrives).collect();
    times.is_some_and(|times| times.is_sorted())
}
