//! The third paper, section 3.2: two paths and a shared receive buffer of eleven packets.
//!
//! Figure 3 loses the first two packets of path 2, figure 4 loses none but is slower on path 2. In
//! both, the sender ends up unable to send although its window is open. The paper gives no times;
//! ours keep the order of events that its text describes.

use super::examples::{Verdict, equal, scheduler};
use super::{Acknowledged, Growth, Model, ModelPath, Trace};
use anabranch_proto::time::{Duration, Instant};

/// Receive buffer of 16 KB in packets of 1468 bytes.
const BUFFER: u64 = 11;

/// One acknowledgement in the paper's table: the packet it answers, the window of its path, the
/// packets in flight on that path before and after sending, the advertised window, what the
/// receiver can accept before sending, what is sent, and what the receiver can accept afterwards.
type Row = (u64, u64, (u64, u64), u64, u64, &'static [u64], u64);

#[rustfmt::skip]
const FIGURE_3: [Row; 11] = [
    ( 1,  3, (1, 3), 11, 8, &[5, 6],   6),
    ( 2,  4, (2, 4), 11, 7, &[7, 8],   5),
    ( 5,  5, (3, 5), 10, 5, &[9, 10],  3),
    ( 6,  6, (4, 6),  9, 3, &[11, 12], 1),
    ( 7,  7, (5, 6),  8, 1, &[13],     0),
    ( 8,  8, (5, 5),  7, 0, &[],       0),
    ( 9,  9, (4, 4),  6, 0, &[],       0),
    (10, 10, (3, 3),  5, 0, &[],       0),
    (11, 11, (2, 2),  4, 0, &[],       0),
    (12, 12, (1, 1),  3, 0, &[],       0),
    (13, 13, (0, 0),  2, 0, &[],       0),
];

#[rustfmt::skip]
const FIGURE_4: [Row; 8] = [
    (1, 3, (1, 3), 11, 8, &[5, 6],   6),
    (2, 4, (2, 4), 11, 7, &[7, 8],   5),
    (3, 3, (1, 3), 11, 6, &[9, 10],  4),
    (4, 4, (2, 4), 11, 5, &[11, 12], 3),
    (5, 5, (3, 5), 11, 4, &[13, 14], 2),
    (6, 6, (4, 6), 11, 3, &[15, 16], 1),
    (7, 7, (5, 7), 11, 2, &[17, 18], 0),
    (8, 8, (6, 7), 11, 1, &[19],     0),
];

fn run(lost: &[u64], one_way_us: [u64; 2]) -> Trace {
    let path = |us| ModelPath {
        serialisation: Duration::from_millis(1),
        forward: Duration::from_micros(us),
        backward: Duration::from_micros(us),
        window: 2,
    };
    let model = Model {
        paths: one_way_us.map(path).to_vec(),
        growth: Growth::SlowStart,
        receive_buffer: Some(BUFFER),
        packets: 1000,
        lost: lost.to_vec(),
        late: Vec::new(),
        paced: false,
        until: Instant::from_nanos(185_000_000),
    };
    // Data takes whichever window opens, as in the paper's simulator.
    model.run(&mut *scheduler("round-robin:mode=fill"))
}

fn figure_3() -> Trace {
    run(&[3, 4], [25_000, 25_000])
}

fn figure_4() -> Trace {
    run(&[], [30_000, 50_500])
}

/// A [`Row`] as our run produced it.
type Found = (u64, u64, (u64, u64), u64, u64, Vec<u64>, u64);

fn row(ack: &Acknowledged) -> Found {
    let path = ack.path;
    (
        ack.packet,
        ack.windows[path],
        (ack.outstanding_before[path], ack.outstanding[path]),
        ack.advertised,
        ack.peer_window_before,
        ack.sent.clone(),
        ack.peer_window,
    )
}

fn published(rows: &[Row]) -> Vec<Found> {
    let row = |row: &Row| (row.0, row.1, row.2, row.3, row.4, row.5.to_vec(), row.6);
    rows.iter().map(row).collect()
}

/// Number of packets sent in answer to the acknowledgements of packets 5 to 8.
fn released(trace: &Trace) -> usize {
    let answers = (5..=8).filter_map(|packet| trace.answer_to(packet));
    answers.map(|row| row.sent.len()).sum()
}

/// What the receiver has delivered, holds and advertises after this packet.
fn stored(trace: &Trace, packet: u64) -> Option<(u64, Vec<u64>, u64)> {
    let row = trace.arrived.iter().find(|row| row.packet == packet);
    row.map(|row| (row.cumulative, row.held.clone(), row.advertised))
}

fn first_rows(trace: &Trace, count: usize) -> Vec<Found> {
    trace.acknowledged.iter().take(count).map(row).collect()
}

fn of_figure_3() -> Vec<Verdict> {
    let (id, trace) = ("critical-fig3-trace", figure_3());
    vec![
        equal(
            (id, "table", "every acknowledgement until the sender stalls"),
            &published(&FIGURE_3),
            &first_rows(&trace, usize::MAX),
        ),
        equal(
            (id, "row 10", "packet 8 is stored: 7 of 11 packets are free"),
            &Some((2, vec![5, 6, 7, 8], 7)),
            &stored(&trace, 8),
        ),
        equal(
            (id, "row 15", "packets 5 to 13 wait for 3 and 4"),
            &Some((2, (5..=13).collect(), 2)),
            &stored(&trace, 13),
        ),
        equal(
            (id, "release", "five packets answer acknowledgements 5 to 8"),
            &5,
            &released(&trace),
        ),
    ]
}

fn of_figure_4() -> Vec<Verdict> {
    let (id, trace) = ("critical-fig4-trace", figure_4());
    let order = trace.arrival_order().into_iter();
    let from_13: Vec<u64> = order.skip_while(|packet| *packet != 13).take(3).collect();
    vec![
        equal(
            (
                id,
                "table",
                "every acknowledgement until the sender is blocked",
            ),
            &published(&FIGURE_4),
            &first_rows(&trace, FIGURE_4.len()),
        ),
        equal(
            (
                id,
                "release",
                "seven packets answer acknowledgements 5 to 8",
            ),
            &7,
            &released(&trace),
        ),
        equal(
            (
                id,
                "rows 13-15",
                "13 waits, 9 is passed up at once, 14 waits",
            ),
            &(vec![13, 9, 14], Some((9, vec![13, 14], 9))),
            &(from_13, stored(&trace, 14)),
        ),
    ]
}

pub(super) fn verdicts() -> Vec<Verdict> {
    let mut all = of_figure_3();
    all.extend(of_figure_4());
    all
}
