//! What it learns on two paths that change: every second the fast path alternates between an RTT of
//! 20 ms and one of 400 ms that its estimate does not show.
//!
//! `cargo run --package learning-scheduler --example compare`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use anabranch_proto::sched::{Backlog, Decision, PathEvent, PathView, SendView, Unit};
use anabranch_proto::spec::SpecError;
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;

const UNITS: u32 = 4000;
const PHASE: u32 = 1000;

fn main() -> Result<(), SpecError> {
    let registry = learning_scheduler::registry();
    for name in ["min-rtt", "ecf", "peekaboo", "peekaboo:forget=0.98"] {
        let mut scheduler = registry.build(&name.parse()?)?;
        let mut now = Instant::from_nanos(1);
        let (mut total, mut waits) = (Duration::ZERO, [0; 4]);
        for unit in 0..UNITS {
            let phase = unit / PHASE;
            let fast_takes = Duration::from_millis(if phase.is_multiple_of(2) { 25 } else { 400 });
            let mut paths = [PathView::new(0), PathView::new(1)];
            for (path, ms) in paths.iter_mut().zip([20, 100]) {
                path.smoothed_rtt = Duration::from_millis(ms);
            }
            paths[0].bytes_in_flight = paths[0].congestion_window;
            let choice = scheduler.select(&view(&paths, now));
            let is_wait = matches!(choice.decision, Decision::Hold { .. });
            waits[phase as usize] += u32::from(is_wait);
            let (id, took) = if is_wait {
                (0, fast_takes)
            } else {
                (1, Duration::from_millis(100))
            };
            let (path, bytes) = (PathId(id), 1200);
            scheduler.on_event(&PathEvent::Sent { path, bytes });
            now += took;
            total += took;
            let rtt = Some(took);
            let bytes = 12_000 + bytes;
            scheduler.on_event(&PathEvent::Acked { path, bytes, rtt });
            paths[0].bytes_in_flight = 0;
            scheduler.select(&view(&paths, now));
        }
        let mean = total.as_millis() / u128::from(UNITS);
        println!("{name:20} {mean:4} ms per unit; waits of {PHASE} in each phase: {waits:?}");
    }
    Ok(())
}

fn view(paths: &[PathView], now: Instant) -> SendView<'_> {
    SendView {
        now,
        paths,
        backlog: Backlog {
            unsent: 12_000,
            send_window: 100_000,
            ..Backlog::default()
        },
        unit: Unit {
            bytes: 1200,
            ..Unit::default()
        },
        ..SendView::default()
    }
}
