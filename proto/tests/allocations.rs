//! What must not allocate does not.
//!
//! The allocator counts for the whole process, so there is one test in this file.

mod paths;

use anabranch_proto::sched::{
    PathEvent, PathSet, PathView, Registry, Scheduler, SendView, Unit, UnitKind,
};
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
        unit(UnitKind::Idle, PathSet::EMPTY),
    ]
}

fn decide(scheduler: &mut dyn Scheduler, states: &[Vec<PathView>], units: &[Unit]) {
    for round in 0..200 {
        for views in states {
            for unit in units {
                let view = SendView {
                    unit: *unit,
                    ..paths::waiting(views, round)
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
    let registry = Registry::builtin();
    let units = units();
    for entry in registry.entries() {
        for count in [1, 2, 8, 16] {
            let free = paths::unequal(count);
            let mut one_full = free.clone();
            paths::fill(&mut one_full[0]);
            let mut all_full = free.clone();
            all_full.iter_mut().for_each(paths::fill);
            let states = [free, one_full, all_full];
            let spec = entry.name.parse().expect("a name is a specification");
            let allocated = least_allocated(|| {
                let mut scheduler = registry.build(&spec).expect("a built-in scheduler");
                let region = Region::new(ALLOCATOR);
                decide(scheduler.as_mut(), &states, &units);
                let change = region.change();
                change.allocations + change.reallocations
            });
            assert_eq!(allocated, 0, "{} at {count} paths", entry.name);
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
