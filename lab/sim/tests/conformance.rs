//! Every registered scheduler against the conformance kit:
//! `cargo test --release -p anabranch-sim --test conformance -- --nocapture`.

use anabranch_schedulers::Names;
use anabranch_sim::conformance::Kit;
use std::num::NonZero;
use std::thread::{self, ScopedJoinHandle};

/// Modes that are excused from some rules on some networks, and from no others.
const STRICT: [&str; 2] = ["round-robin:mode=hold", "weighted:mode=hold"];

/// Wrappers that only add copies are tried around a scheduler that never waits, one that does, and
/// one that takes turns; the guard, which takes paths away, around every scheduler.
const COPIED: [&str; 3] = ["min-rtt", "ecf", "round-robin"];

/// Checks all schedulers with their default settings, both bare and inside wrappers, and the strict
/// modes.
fn check_all(kit: &Kit) {
    let names = Names::default();
    let plain = names.schedulers.entries().iter();
    let mut specs: Vec<String> = plain.map(|entry| entry.name.to_owned()).collect();
    let plain = specs.len();
    for wrapper in names.schedulers.wrappers() {
        let all = specs[..plain].iter();
        let inner = all.filter(|name| wrapper.name == "guard" || COPIED.contains(&name.as_str()));
        let wrapped: Vec<String> = inner
            .map(|name| format!("{}+{name}", wrapper.name))
            .collect();
        specs.extend(wrapped);
    }
    assert!(specs.iter().any(|spec| spec == "tail+min-rtt"));
    specs.push("guard+tail+min-rtt".to_owned());
    specs.extend(STRICT.map(str::to_owned));
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let failed: Vec<&str> = thread::scope(|scope| {
        let (specs, names) = (&specs, &names);
        let share = |first| specs.iter().skip(first).step_by(workers);
        let start = |first| scope.spawn(move || fail(kit, names, share(first)));
        let running: Vec<_> = (0..workers).map(start).collect();
        let ended = running.into_iter().map(ScopedJoinHandle::join);
        ended.flat_map(|failed| failed.expect("no panic")).collect()
    });
    assert!(failed.is_empty(), "{failed:?} do not conform");
}

/// Those of them that do not conform.
fn fail<'a>(kit: &Kit, names: &Names, specs: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let conforms = |spec: &&String| {
        let report = kit.check(names, spec).expect("a registered name");
        eprintln!("{report}");
        report.is_conformant()
    };
    specs
        .filter(|spec| !conforms(spec))
        .map(String::as_str)
        .collect()
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "takes half a minute: CI runs it in a step of its own"
)]
fn every_scheduler_conforms_or_is_excused() {
    check_all(&Kit::new());
}
