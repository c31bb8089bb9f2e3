//! Every registered scheduler against the conformance kit:
//! `cargo test --release -p anabranch-sim --test conformance -- --nocapture`.

use anabranch_sim::conformance::Kit;
use anabranch_sim::profile::Names;

/// Modes that are excused from some rules on some networks, and from nothing else.
const STRICT: [&str; 2] = ["round-robin:mode=hold", "weighted:mode=hold"];

/// All schedulers by name with their defaults, and the strict modes.
fn check_all(kit: &Kit) {
    let names = Names::default();
    let mut failed = Vec::new();
    let entries = names.schedulers.entries().iter().map(|entry| entry.name);
    for spec in entries.chain(STRICT) {
        let report = kit.check(&names, spec).expect("a registered name");
        eprintln!("{report}");
        if !report.is_conformant() {
            failed.push(spec);
        }
    }
    assert!(failed.is_empty(), "{failed:?} do not conform");
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "takes minutes without optimisation, seconds with --release"
)]
fn every_scheduler_conforms_or_is_excused() {
    check_all(&Kit::new());
}
