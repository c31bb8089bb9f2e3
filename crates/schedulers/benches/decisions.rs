//! What one decision of each scheduler costs.
//!
//! Prints nanoseconds per decision at 2 and 8 paths, for three moments of a transfer: every path
//! free, the favoured one full, all full; for each scheduler alone and in each wrapper. Names given
//! as arguments choose among them. That no decision allocates is checked by a test
//! (`tests/allocations.rs`).

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../tests/paths/mod.rs"]
mod paths;

use anabranch_proto::sched::{PathView, Scheduler, SendView};
use std::hint::black_box;
use std::time::Instant;

/// Batches of decisions; the fastest one counts, as the machine may have other things to do. Short
/// ones fit between them.
const BATCHES: u32 = 600;
const DECISIONS: u32 = 1_500;

fn main() {
    println!(
        "{:<26} {:>5} {:>10} {:>10} {:>10}",
        "scheduler", "paths", "free", "one full", "all full"
    );
    let registry = anabranch_schedulers::builtin();
    let names: Vec<_> = registry.entries().iter().map(|entry| entry.name).collect();
    let mut all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    for wrapper in registry.wrappers().iter().map(|wrapper| wrapper.name) {
        all.extend(names.iter().map(|name| format!("{wrapper}+{name}")));
    }
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<_> = wanted.iter().filter(|arg| !arg.starts_with("--")).collect();
    all.retain(|name| wanted.is_empty() || wanted.contains(&name));
    for name in all {
        for count in [2, 8] {
            let free = paths::unequal(count);
            let mut one_full = free.clone();
            paths::fill(&mut one_full[0]);
            let mut all_full = free.clone();
            all_full.iter_mut().for_each(paths::fill);
            let nanos = [free, one_full, all_full].map(|views| {
                let spec = name.parse().expect("a name is a specification");
                let scheduler = registry.build(&spec).expect("a built-in scheduler");
                per_decision(scheduler, &views)
            });
            println!(
                "{:<26} {count:>5} {:>10.1} {:>10.1} {:>10.1}",
                name, nanos[0], nanos[1], nanos[2]
            );
        }
    }
}

/// Nanoseconds per decision, with the event that follows it where something is sent.
fn per_decision(mut scheduler: Box<dyn Scheduler>, views: &[PathView]) -> f64 {
    let all = paths::streams();
    let streams: &[_] = if scheduler.wants().streams { &all } else { &[] };
    let mut batch = |number: u32| {
        let started = Instant::now();
        for index in 0..DECISIONS {
            let view = SendView {
                streams,
                ..paths::waiting(views, u64::from(number * DECISIONS + index))
            };
            let choice = scheduler.select(black_box(&view));
            if let Some(event) = paths::sent(black_box(&choice)) {
                scheduler.on_event(&event);
            }
        }
        started.elapsed().as_secs_f64() * 1e9 / f64::from(DECISIONS)
    };
    (0..BATCHES).map(&mut batch).fold(f64::INFINITY, f64::min)
}
