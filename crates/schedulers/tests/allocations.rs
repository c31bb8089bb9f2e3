//! What must not allocate does not.
//!
//! The allocator counts for the whole process, so there is one test in this file.

mod paths;

use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{PathEvent, PathView, Registry, Scheduler, SendView, Unit, UnitKind};
use anabranch_proto::spec::Spec;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// All that can wait: new data, old data, datagrams, nothing.
fn units() -> Vec<Unit> {
    let first: PathSet = [PathId(0)].into_iter().collect();
    let unit = |kind, carried_by| Unit {
        kind,
        bytes: 1200,
        carried_by,
        ..Unit::default()
    };
    vec![
        unit(UnitKind::Fresh, PathSet::EMPTY),
        unit(UnitKind::Retransmission, first),
        unit(UnitKind::Datagram, PathSet::EMPTY),
        Unit {
            flow: 7,
            deadline: Some(Instant::from_nanos(1_050_000_000)),
            critical: true,
            ..unit(UnitKind::Datagram, PathSet::EMPTY)
        },
        unit(UnitKind::Idle, PathSet::EMPTY),
    ]
}

/// Every scheduler alone and in every wrapper, and one whose wrapper has something to do.
fn specs(registry: &Registry) -> Vec<Spec> {
    let names = || registry.entries().iter().map(|entry| entry.name.to_owned());
    let wrappers = registry.wrappers().iter();
    let wrapped =
        wrappers.flat_map(|wrapper| names().map(|name| format!("{}+{name}", wrapper.name)));
    let busy = "guard+tail+min-rtt:guard.window-ms=100,guard.max-wait-ms=1".to_owned();
    let all = names().chain(wrapped).chain([busy]);
    all.map(|text| text.parse().expect("a specification"))
        .collect()
}

fn decide(scheduler: &mut dyn Scheduler, states: &[Vec<PathView>], units: &[Unit]) {
    let streams = paths::streams();
    for round in 0..200 {
        for views in states {
            for unit in units {
                let is_shown = scheduler.wants().streams && unit.kind == UnitKind::Fresh;
                // 10 ms from one round to the next: waits and windows end.
                let view = SendView {
                    unit: *unit,
                    streams: if is_shown { &streams } else { &[] },
                    ..paths::waiting(views, round * 1000)
                };
                let choice = scheduler.select(&view);
                if let Some(event) = paths::sent(&choice) {
                    scheduler.on_event(&event);
                }
            }
        }
        let (path, bytes) = (PathId((round % 2) as u32), 1200);
        scheduler.on_event(&PathEvent::Acked {
            path,
            bytes,
            rtt: None,
        });
        scheduler.on_event(&PathEvent::Lost { path, bytes });
        scheduler.on_event(&PathEvent::Written);
    }
}

#[test]
fn no_scheduler_allocates_to_decide() {
    let registry = anabranch_schedulers::builtin();
    let units = units();
    for spec in specs(&registry) {
        for count in [1, 2, 8, 16] {
            let free = paths::unequal(count);
            let mut one_full = free.clone();
            paths::fill(&mut one_full[0]);
            let mut all_full = free.clone();
            all_full.iter_mut().for_each(paths::fill);
            let states = [free, one_full, all_full];
            let allocated = least_allocated(|| {
                let mut scheduler = registry.build(&spec).expect("a built-in scheduler");
                let region = Region::new(ALLOCATOR);
                decide(scheduler.as_mut(), &states, &units);
                let change = region.change();
                change.allocations + change.reallocations
            });
            assert_eq!(allocated, 0, "{spec} at {count} paths");
        }
    }
    // The counter counts: or the test could not fail.
    let allocated = least_allocated(|| {
        let region = Region::new(ALLOCATOR);
        drop(std::hint::black_box(vec![0u8; 64]));
        region.change().allocations
    });
    assert_eq!(allocated, 1);
}

/// The allocations of the quietest of some attempts: the test harness has a thread of its own.
fn least_allocated(mut attempt: impl FnMut() -> usize) -> usize {
    (0..8).map(|_| attempt()).min().unwrap_or(0)
}
