//! Paths as schedulers see them in the middle of a transfer.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "tests and benches include it and use their part"
)]
use anabranch_proto::sched::{
    Backlog, Choice, Decision, PathEvent, PathView, SendView, StreamView, Unit, UnitKind,
};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::StreamId;
use std::time::Duration;

/// `count` paths, each a little slower than the one before.
pub fn unequal(count: u32) -> Vec<PathView> {
    (0..count)
        .map(|id| {
            let rtt = Duration::from_millis(20 + 7 * u64::from(id));
            PathView {
                smoothed_rtt: rtt,
                rttvar: rtt / 8,
                latest_rtt: rtt,
                min_rtt: rtt,
                congestion_window: 120_000,
                bytes_in_flight: 60_000,
                delivery_rate: 5_000_000 / u64::from(id + 1),
                last_ack: Some(Instant::ZERO),
                weight: id + 1,
                copyable: true,
                ..PathView::new(id)
            }
        })
        .collect()
}

/// Streams that wait to be sent, one of them almost done.
pub fn streams() -> [StreamView; 4] {
    [0, 4, 8, 12].map(|id| StreamView {
        id: StreamId(id),
        priority: 0,
        class: 0,
        unsent: if id == 8 { 2_000 } else { 2_000_000 },
        finished: id == 8,
    })
}

/// Leaves a path no room.
pub fn fill(path: &mut PathView) {
    path.bytes_in_flight = path.congestion_window;
}

/// The question that is asked for one more packet; time passes from one `index` to the next.
pub fn waiting(paths: &[PathView], index: u64) -> SendView<'_> {
    SendView {
        now: Instant::from_nanos(1_000_000_000 + index * 10_000),
        paths,
        backlog: Backlog {
            unsent: 10_000_000,
            credit: 10_000_000,
            unacked: 200_000,
            ..Backlog::default()
        },
        unit: Unit {
            kind: UnitKind::Fresh,
            bytes: 1200,
            ..Unit::default()
        },
        ..SendView::default()
    }
}

/// What the connection tells the scheduler after carrying a choice out.
pub fn sent(choice: &Choice) -> Option<PathEvent> {
    let bytes = 1200;
    match choice.decision {
        Decision::Send(path)
        | Decision::SendAt { path, .. }
        | Decision::SendStream { path, .. }
        | Decision::Copy(path) => Some(PathEvent::Sent { path, bytes }),
        _ => None,
    }
}
